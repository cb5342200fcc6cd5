/*
 * The receiving side of a network card, for the switch of a lab (xts_lab/card.py): it is on the egress of the switch's
 * port, and decides on which receive queue of the other end of the cable a frame arrives. As on cards, a frame of IP
 * is spread over the queues (here veth chooses), and any other frame arrives on queue 0, unless a rule for its
 * destination address names another queue. veth takes the transmit queue from the recorded receive queue, and queue N
 * of one end is queue N of the other.
 *
 * It is also what is bad about the cable to that end: a share of frames is lost, singly or several in a row, and a
 * share comes twice.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define RULES_MAX 1024
#define QUEUES_MAX 1024

/* Mirrored in xts_lab/card.py. */
struct xts_lab_rule {
	__u64 queue;
	__u64 frames; /* that it has matched */
};

struct xts_lab_destination {
	__u8 address[ETH_ALEN];
	__u8 reserved[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RULES_MAX);
	__type(key, struct xts_lab_destination);
	__type(value, struct xts_lab_rule);
} xts_lab_rules SEC(".maps");

/* What the cable does, in parts per million of frames, and has done. Mirrored in xts_lab/card.py. */
struct xts_lab_cable {
	__u32 loss_ppm; /* begins to lose */
	__u32 burst;    /* so many in a row */
	__u32 duplicate_ppm;
	__u32 burst_left;
	__u64 lost, duplicated;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xts_lab_cable);
} xts_lab_cables SEC(".maps");

/* Queues on which nothing arrives, as with a driver whose zero copy does not work. Mirrored in xts_lab/card.py. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xts_lab_deaf SEC(".maps");

#define MILLION 1000000u
#define SECOND_COPY 0x5854u /* the mark of one */

/* Is the frame lost on the cable? */
static __always_inline int is_lost(struct xts_lab_cable *cable)
{
	if (!cable->burst_left && bpf_get_prandom_u32() % MILLION < cable->loss_ppm)
		cable->burst_left = cable->burst;
	if (!cable->burst_left)
		return 0;
	cable->burst_left--;
	__sync_fetch_and_add(&cable->lost, 1);
	return 1;
}

static __always_inline void perhaps_twice(struct __sk_buff *frame, struct xts_lab_cable *cable)
{
	if (frame->mark == SECOND_COPY || bpf_get_prandom_u32() % MILLION >= cable->duplicate_ppm)
		return;
	frame->mark = SECOND_COPY;
	if (!bpf_clone_redirect(frame, frame->ifindex, 0))
		__sync_fetch_and_add(&cable->duplicated, 1);
	frame->mark = 0;
}

SEC("tc")
int xts_lab_card(struct __sk_buff *frame)
{
	struct xts_lab_destination destination = { 0 };
	struct xts_lab_cable *cable;
	struct xts_lab_rule *rule;
	__u32 only = 0, queue;
	__u32 *deaf;

	cable = bpf_map_lookup_elem(&xts_lab_cables, &only);
	if (cable && is_lost(cable))
		return TC_ACT_SHOT;
	if (cable && cable->duplicate_ppm)
		perhaps_twice(frame, cable);
	if (frame->protocol == bpf_htons(ETH_P_IP) || frame->protocol == bpf_htons(ETH_P_IPV6))
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(frame, 0, destination.address, ETH_ALEN))
		return TC_ACT_UNSPEC;
	rule = bpf_map_lookup_elem(&xts_lab_rules, &destination);
	if (rule)
		__sync_fetch_and_add(&rule->frames, 1);
	queue = rule ? (__u32)rule->queue : 0;
	deaf = bpf_map_lookup_elem(&xts_lab_deaf, &queue);
	if (deaf && *deaf)
		return TC_ACT_SHOT;
	frame->queue_mapping = queue + 1;
	return TC_ACT_UNSPEC;
}

/* On the port's ingress: veth takes a frame that the program of the other end sends back (XDP_TX) only where there is a
 * program, too. */
SEC("xdp.frags")
int xts_lab_port(struct xdp_md *frame)
{
	(void)frame;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
