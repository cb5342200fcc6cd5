/* Parser programs for tests: each kind of answer a program can give. Compiled by the tests. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The first byte is the length, that byte included; 0 is an error, 255 gives the stream up. */
SEC("socket")
int byte(struct __sk_buff *skb)
{
	__u8 length;

	if (bpf_skb_load_bytes(skb, 0, &length, 1) < 0)
		return 0;
	if (length == 255)
		return -86;           /* ESTRPIPE */
	return length ? length : -71; /* EPROTO */
}

/* Needs three bytes to know that a PDU has five. */
SEC("sk_skb/stream_parser")
int three(struct __sk_buff *skb)
{
	return skb->len < 3 ? 0 : 5;
}

SEC("sk_skb/stream_parser")
int never(struct __sk_buff *skb)
{
	return 0;
}

/* The verifier takes no loop without an end. */
SEC("socket")
int endless(struct __sk_buff *skb)
{
	volatile unsigned i = 0;

	for (;;)
		i++;
	return (int)i;
}

SEC("xdp")
int no_parser(struct xdp_md *xdp)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
