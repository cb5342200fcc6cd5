/*
 * Steers XDP-Transport frames to the AF_XDP socket of the queue on which they arrive. It is the only guard on the
 * receiving side, since a process that holds a queue's socket can send any frame. Frames of our EtherType are dropped
 * and counted if they are too short, come from a MAC address other than the peer's, have no socket, or lack the secret
 * of the attachment that has the queue (PROTOCOL.md, "The frame's head"). A probe of the host is sent back; the answer
 * is recorded (PROTOCOL.md, "Which queue a frame is for"). All other
 * frames, including those for a group and those with VLAN tags before our EtherType, are dropped on an interface that
 * is dedicated to XTS (exclusive), before this machine's network stack sees them, and passed to the kernel on other
 * interfaces. Declared for fragments: only the head is read, which is in the linear part.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "wire/wire.h"

#define QUEUES_MAX 256

/* One program is loaded per interface, so this configuration is per interface. Mirrored in xts_bpf/program.py. */
struct xts_steer_config {
	__u16 ethertype; /* network order */
	__u8 peer_mac[6];
	__u8 exclusive;    /* drop other frames instead of passing them */
	__u8 peer_mask[6]; /* the bits of peer_mac that count: the peer has an address for each queue */
	__u8 steered;      /* frames have an address for each queue: there may be probes */
};

/* Index of the counters. Mirrored in xts_bpf/program.py. */
enum { ADMITTED, PASSED, FOREIGN, MALFORMED, NO_SOCKET, OTHERS_DROPPED, WRONG_SECRET, PROBES, COUNTERS };

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

/* The secret of each queue's attachment, as it is in frames; 0: any frame is let in. The owner of a device's queue
 * writes it (headed.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} xts_secrets SEC(".maps");

/* The last answer to a probe for each queue. Mirrored in xts_bpf/program.py. */
struct xts_steer_probe {
	__u64 round;
	__u32 there; /* the queue of the device on which the probe has arrived, plus one */
	__u32 here;  /* that on which its answer has, plus one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, struct xts_steer_probe);
} xts_probes SEC(".maps");

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

static __always_inline int is_peer(const __u8 *source, const struct xts_steer_config *config)
{
	__u8 differs = 0;

#pragma unroll
	for (int i = 0; i < 6; i++)
		differs |= (source[i] ^ config->peer_mac[i]) & config->peer_mask[i];
	return !differs;
}

/* Has the frame the secret of its queue, if that has one? */
static __always_inline int has_secret(const void *data, const void *end, __u32 queue)
{
	const struct xts_wire_headed *frame = data;
	const __u64 *secret = bpf_map_lookup_elem(&xts_secrets, &queue);

	if (!secret || !*secret)
		return 1;
	return data + sizeof(*frame) <= end && frame->head.type == XTS_LINK_HEADED && frame->secret == *secret;
}

/* The probe of a host goes back where it came from, and an answer is recorded. */
static __always_inline int probe(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	struct xts_wire_probe *frame = data;
	struct xts_steer_probe *found;
	struct ethhdr *ethernet = data;
	__u8 address[ETH_ALEN];
	__u32 queue;

	if (data + sizeof(*frame) > (void *)(long)context->data_end)
		return count(MALFORMED, XDP_DROP);
	if (!frame->back) {
		frame->back = bpf_htons(1);
		frame->arrived_on = bpf_htonl(context->rx_queue_index + 1);
		__builtin_memcpy(address, ethernet->h_source, ETH_ALEN);
		__builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
		__builtin_memcpy(ethernet->h_dest, address, ETH_ALEN);
		return count(PROBES, XDP_TX);
	}
	queue = bpf_ntohl(frame->head.id);
	found = bpf_map_lookup_elem(&xts_probes, &queue);
	if (found) {
		found->there = bpf_ntohl(frame->arrived_on);
		found->here = context->rx_queue_index + 1;
		found->round = frame->round;
	}
	return count(PROBES, XDP_DROP);
}

SEC("xdp.frags")
int xts_steer(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	struct xts_wire_head *head = data;
	__u32 zero = 0;
	struct xts_steer_config *config = bpf_map_lookup_elem(&xts_config, &zero);

	if (!config || data + sizeof(*ethernet) > end || ethernet->h_proto != config->ethertype)
		return others(config);
	if (ethernet->h_dest[0] & 1) /* for the bridge that is between: how an end announces its addresses */
		return others(config);
	if (data + XTS_HEAD_BYTES > end)
		return count(MALFORMED, XDP_DROP);
	if (!is_peer(ethernet->h_source, config))
		return count(FOREIGN, XDP_DROP);
	if (config->steered && head->type == XTS_LINK_PROBE)
		return probe(context);
	if (!has_secret(data, end, context->rx_queue_index))
		return count(WRONG_SECRET, XDP_DROP);
	if (bpf_redirect_map(&xts_sockets, context->rx_queue_index, XDP_DROP) != XDP_REDIRECT)
		return count(NO_SOCKET, XDP_DROP);
	return count(ADMITTED, XDP_REDIRECT);
}

char _license[] SEC("license") = "Dual BSD/GPL";
