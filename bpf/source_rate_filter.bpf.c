/*
 * An example of a filter for datagram sockets: it limits the datagrams per second from each source; the rest are
 * dropped on the device. It runs for each datagram that comes for a socket whose host has named it (SO_XTS_FILTER). The
 * contract is that of socket(7): 0 drops the datagram, any other value n keeps at most n bytes of it, counted from the
 * UDP header.
 *
 * All sockets with this filter share the map. If there are more sources than it has room for, those that have been
 * silent for longest are dropped from it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define RATE 100 /* datagrams per second, and the burst that is allowed after a pause */
#define NS_PER_DATAGRAM (1000000000ull / RATE)
#define SECOND_NS 1000000000ull
#define SOURCES 65536

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOURCES);
	__type(key, __u8[16]);
	__type(value, __u64); /* the time until which the source has used up its allowance */
} used_until SEC(".maps");

/* The IPv4 or IPv6 address of the source. */
static int source_of(struct __sk_buff *skb, __u8 address[16])
{
	__u8 version;

	if (bpf_skb_load_bytes_relative(skb, 0, &version, sizeof version, BPF_HDR_START_NET) < 0)
		return -1;
	if (version >> 4 == 6)
		return bpf_skb_load_bytes_relative(skb, 8, address, 16, BPF_HDR_START_NET);
	address[10] = address[11] = 0xff;
	return bpf_skb_load_bytes_relative(skb, 12, address + 12, 4, BPF_HDR_START_NET);
}

SEC("socket")
int source_rate(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns(), *until, next;
	__u8 address[16] = { 0 };

	if (source_of(skb, address) < 0)
		return 0;
	until = bpf_map_lookup_elem(&used_until, address);
	next = until && *until > now - SECOND_NS ? *until : now - SECOND_NS;
	next += NS_PER_DATAGRAM;
	if (next > now)
		return 0;
	if (until)
		*until = next; /* another processor may write it at the same time: the count is not exact */
	else
		bpf_map_update_elem(&used_until, address, &next, BPF_ANY);
	return skb->len;
}

char _license[] SEC("license") = "Dual BSD/GPL";
