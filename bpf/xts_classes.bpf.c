/*
 * Gives frames from the network to processors by their class: DSCP (the upper six bits of ToS or traffic class), the
 * flow label of IPv6, or the network of VXLAN (VNI). It is on an interface of the device towards the network. The
 * kernel's own TCP there does the rest of a frame's work on the processor that is named, where the worker of
 * the data is. A frame that no rule matches goes on as if the program were not there.
 *
 * The first program chooses. The second one runs on the chosen processor before the network stack does, and counts the
 * frame there: what is counted has arrived. Both read the head again, for nothing goes with a frame from one to the
 * other. Declared for fragments: only heads are read, which are in the linear part.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Mirrored in xts_bpf/classes.py. */
#define RULES_MAX 64
#define CPUS_MAX 128
#define VXLAN_PORT 4789
#define VXLAN_HAS_VNI 0x08000000u

enum kind { NO_MORE, DSCP, FLOW_LABEL, VNI };

struct xts_class_rule {
	__u32 kind; /* NO_MORE: there are no further rules */
	__u32 value;
	__u32 cpu;
	__u32 reserved;
};

struct vxlan {
	__be32 flags;
	__be32 vni; /* the upper 24 bits */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RULES_MAX);
	__type(key, __u32);
	__type(value, struct xts_class_rule);
} xts_class_rules SEC(".maps");

/* By rule and processor. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RULES_MAX *CPUS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} xts_class_frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, CPUS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_cpumap_val));
} xts_class_cpus SEC(".maps");

/* What rules may ask for; a kind that the frame does not have is NONE. */
#define NONE 0xffffffffu
struct class {
	__u32 dscp, flow_label, vni;
};

static __always_inline void read_udp(const void *at, const void *end, struct class *out)
{
	const struct udphdr *udp = at;
	const struct vxlan *tunnel = at + sizeof(*udp);

	if ((const void *)(tunnel + 1) > end || udp->dest != bpf_htons(VXLAN_PORT))
		return;
	if (tunnel->flags & bpf_htonl(VXLAN_HAS_VNI))
		out->vni = bpf_ntohl(tunnel->vni) >> 8;
}

static __always_inline void read_ipv4(const void *at, const void *end, struct class *out)
{
	const struct iphdr *ip = at;

	if ((const void *)(ip + 1) > end || ip->ihl < 5)
		return;
	out->dscp = ip->tos >> 2;
	if (ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(0x1fff)))
		read_udp(at + ip->ihl * 4, end, out);
}

static __always_inline void read_ipv6(const void *at, const void *end, struct class *out)
{
	const struct ipv6hdr *ip = at;
	__u32 first;

	if ((const void *)(ip + 1) > end)
		return;
	first = bpf_ntohl(*(const __be32 *)at); /* version, traffic class, flow label */
	out->dscp = first >> 22 & 63;
	out->flow_label = first & 0xfffff;
	if (ip->nexthdr == IPPROTO_UDP)
		read_udp(ip + 1, end, out);
}

/* The number of the rule for a frame; RULES_MAX: none. */
static __always_inline __u32 rule_of(struct xdp_md *context, __u32 *cpu)
{
	const void *data = (void *)(long)context->data;
	const void *end = (void *)(long)context->data_end;
	const struct ethhdr *ethernet = data;
	struct class class = { NONE, NONE, NONE };

	if ((const void *)(ethernet + 1) > end)
		return RULES_MAX;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		read_ipv4(ethernet + 1, end, &class);
	else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		read_ipv6(ethernet + 1, end, &class);
	for (__u32 i = 0; i < RULES_MAX; i++) {
		__u32 key = i;
		const struct xts_class_rule *rule = bpf_map_lookup_elem(&xts_class_rules, &key);

		if (!rule || rule->kind == NO_MORE)
			break;
		if ((rule->kind == DSCP && rule->value == class.dscp) ||
		    (rule->kind == FLOW_LABEL && rule->value == class.flow_label) ||
		    (rule->kind == VNI && rule->value == class.vni)) {
			*cpu = rule->cpu;
			return i;
		}
	}
	return RULES_MAX;
}

SEC("xdp.frags")
int xts_classes(struct xdp_md *context)
{
	__u32 cpu = 0;

	if (rule_of(context, &cpu) == RULES_MAX)
		return XDP_PASS;
	return bpf_redirect_map(&xts_class_cpus, cpu, XDP_PASS);
}

SEC("xdp.frags/cpumap")
int xts_class_arrived(struct xdp_md *context)
{
	__u32 asked = 0, rule = rule_of(context, &asked), cpu = bpf_get_smp_processor_id(), key;
	__u64 *frames;

	key = rule * CPUS_MAX + cpu;
	if (rule < RULES_MAX && cpu < CPUS_MAX) {
		frames = bpf_map_lookup_elem(&xts_class_frames, &key);
		if (frames)
			(*frames)++; /* nobody else writes this one: it is of this processor */
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
