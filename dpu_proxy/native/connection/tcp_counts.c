/* A socket's counts of bytes; see tcp_counts.h. The kernel has them as what the network has carried and what waits in
 * the buffers, which change meanwhile: so the former is read before and after the latter. */
#include "connection/tcp_counts.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define TRIES 64

/* Of tcpi_state, as in <netinet/tcp.h>, which cannot be included together with <linux/tcp.h>. */
enum { ESTABLISHED = 1, FIN_WAIT1 = 4, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING };

static int look(int fd, struct tcp_info *info)
{
	socklen_t length = sizeof *info;

	memset(info, 0, sizeof *info);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length))
		return -errno;
	return length < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info->tcpi_bytes_received ? -ENOSYS : 0;
}

static bool is_same(const struct tcp_info *a, const struct tcp_info *b)
{
	return a->tcpi_bytes_acked == b->tcpi_bytes_acked && a->tcpi_bytes_received == b->tcpi_bytes_received &&
	       a->tcpi_state == b->tcpi_state;
}

bool tcp_has_urgent(int fd)
{
	uint8_t byte;

	return recv(fd, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EINVAL;
}

/* Has FIN come, says the kernel of a closed socket where nothing is unread? Nothing else tells that from a reset whose
 * error somebody has been told. */
static bool fin_is_last(int fd)
{
	struct tcp_zerocopy_receive none = { 0 };
	socklen_t length = sizeof none;

	return getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &none, &length) && errno == EIO;
}

bool tcp_closed_by_both(int fd)
{
	int unacked = 1, unread = 0, error = 0;
	socklen_t length = sizeof error;

	if (ioctl(fd, SIOCOUTQ, &unacked) || unacked || ioctl(fd, SIOCINQ, &unread) ||
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
		return false;
	return !error && (unread || fin_is_last(fd));
}

int tcp_counts(int fd, struct tcp_counts *out)
{
	struct tcp_info before, after;
	int unacked = 0, unread = 0, error;

	for (int i = 0; i < TRIES; i++) {
		bool fin_came;

		error = look(fd, &before);
		if (error)
			return error;
		if (ioctl(fd, SIOCOUTQ, &unacked) || ioctl(fd, SIOCINQ, &unread))
			return -errno;
		if (tcp_has_urgent(fd))
			return -EAGAIN;
		error = look(fd, &after);
		if (error)
			return error;
		if (!is_same(&before, &after))
			continue;
		fin_came = after.tcpi_state >= TIME_WAIT && after.tcpi_state != LISTEN;
		out->ended = after.tcpi_state == CLOSE || after.tcpi_state == TIME_WAIT;
		out->fin_sent = after.tcpi_state >= FIN_WAIT1 && after.tcpi_state != CLOSE_WAIT;
		out->read = after.tcpi_bytes_received - fin_came - (uint32_t)unread;
		out->written = after.tcpi_bytes_acked + (uint32_t)unacked - out->fin_sent;
		return 0;
	}
	return -EAGAIN;
}
