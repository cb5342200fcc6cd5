/* What the kernel reports about a connection's TCP (TCP_INFO), for the supervisor. It is in a file of its own because
 * <linux/tcp.h>, which has fields that <netinet/tcp.h> lacks, cannot be included together with that. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "connection/tcp_figures.h"
#include "worker/worker.h"

void tcp_figures(int fd, struct xts_tcp_figures *out)
{
	struct tcp_info info;
	socklen_t length = sizeof info;

	memset(out, 0, sizeof *out);
	memset(&info, 0, sizeof info); /* an older kernel, or another stack, fills in less */
	if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
		return;
	*out = (struct xts_tcp_figures){
		.known = true,
		.rtt_us = info.tcpi_rtt,
		.rttvar_us = info.tcpi_rttvar,
		.min_rtt_us = info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt,
		.retransmits = info.tcpi_total_retrans,
		.cwnd_segments = info.tcpi_snd_cwnd,
		.mss_bytes = info.tcpi_snd_mss,
		.unacked_segments = info.tcpi_unacked,
		.unsent_bytes = info.tcpi_notsent_bytes,
		.delivery_bytes_per_s = info.tcpi_delivery_rate,
		.busy_us = info.tcpi_busy_time,
		.peer_window_us = info.tcpi_rwnd_limited,
		.send_buffer_us = info.tcpi_sndbuf_limited,
	};
}
