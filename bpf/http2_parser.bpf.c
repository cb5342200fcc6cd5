/*
 * An example of a parser for BPF_PARSER: HTTP/2 frames, whose header of nine bytes begins with the length of the rest
 * in three bytes (RFC 9113 4.1). The contract is that of the kernel's strparser: it returns the length of the whole
 * PDU, 0 for "more bytes are needed", or a negative errno. The client's connection preface is a PDU of its own.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define HEADER_BYTES 9
#define PREFACE_BYTES 24

SEC("sk_skb/stream_parser")
int http2_frames(struct __sk_buff *skb)
{
	__u8 head[HEADER_BYTES];

	if (bpf_skb_load_bytes(skb, 0, head, sizeof head) < 0)
		return 0;
	if (head[0] == 'P' && head[1] == 'R' && head[2] == 'I' && head[3] == ' ')
		return PREFACE_BYTES;
	return ((__u32)head[0] << 16 | (__u32)head[1] << 8 | head[2]) + HEADER_BYTES;
}

char _license[] SEC("license") = "Dual BSD/GPL";
