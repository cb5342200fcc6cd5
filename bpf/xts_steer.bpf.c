/*
 * Steers XDP-Transport frames to the AF_XDP socket of the queue on which they arrive. It is the only guard on the
 * receiving side, since a process that holds a queue's socket can send any frame. Frames of our EtherType are dropped
 * and counted if they are too short, come from a MAC address other than the peer's, or have no socket. All other
 * frames, including those with VLAN tags before our EtherType, are dropped on an interface that is dedicated to XTS
 * (exclusive), before this machine's network stack sees them, and passed to the kernel on other interfaces. Declared
 * for fragments: only the head is read, which is in the linear part.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define HEAD_BYTES 24 /* Ethernet header and the common fields of all messages: XTS_HEAD_BYTES */
#define QUEUES_MAX 256

/* One program is loaded per interface, so this configuration is per interface. Mirrored in xts_bpf/program.py. */
struct xts_steer_config {
	__u16 ethertype; /* network order */
	__u8 peer_mac[6];
	__u8 exclusive; /* drop other frames instead of passing them */
	__u8 reserved[7];
};

/* Index of the counters. Mirrored in xts_bpf/program.py. */
enum { ADMITTED, PASSED, FOREIGN, MALFORMED, NO_SOCKET, OTHERS_DROPPED, COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xts_sockets SEC(".maps");

/* The owner of a queue, kept here for an agent that is started after another has died: the program does not use it, but
 * it lives as long as the program. An epoch of 0: none. Mirrored in xts_bpf/program.py. */
struct xts_steer_owner {
	__u64 epoch;
	__u32 uid;
	__u32 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, struct xts_steer_owner);
} xts_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct xts_steer_config);
} xts_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} xts_counters SEC(".maps");

static __always_inline int count(__u32 counter, int action)
{
	__u64 *value = bpf_map_lookup_elem(&xts_counters, &counter);

	if (value)
		(*value)++;
	return action;
}

/* A frame of another EtherType. Without a configuration, nothing is known about the interface. */
static __always_inline int others(const struct xts_steer_config *config)
{
	return config && config->exclusive ? count(OTHERS_DROPPED, XDP_DROP) : count(PASSED, XDP_PASS);
}

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && a[5] == b[5];
}

SEC("xdp.frags")
int xts_steer(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	__u32 zero = 0;
	struct xts_steer_config *config = bpf_map_lookup_elem(&xts_config, &zero);

	if (!config || data + sizeof(*ethernet) > end || ethernet->h_proto != config->ethertype)
		return others(config);
	if (data + HEAD_BYTES > end)
		return count(MALFORMED, XDP_DROP);
	if (!same_mac(ethernet->h_source, config->peer_mac))
		return count(FOREIGN, XDP_DROP);
	if (bpf_redirect_map(&xts_sockets, context->rx_queue_index, XDP_DROP) != XDP_REDIRECT)
		return count(NO_SOCKET, XDP_DROP);
	return count(ADMITTED, XDP_REDIRECT);
}

char _license[] SEC("license") = "Dual BSD/GPL";
