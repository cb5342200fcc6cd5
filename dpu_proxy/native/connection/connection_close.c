/* The close of a connection, as its host has asked for it: at once, or when what waits has been sent, or (lingering)
 * when the peer has acknowledged all of it. */
#include "channel/tickets.h"
#include "connection/connection_inside.h"
#include "connection/socket_kind.h"
#include "processes/share.h"
#include "pushed/pushed.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Have bytes arrived that nobody will read? */
static bool has_unread(struct connection *c)
{
	int bytes = 0;

	if (c->tcp.returned.last)
		return true;
	if (c->tcp.pushed && (c->tcp.pushed->started || c->tcp.pushed->peeking))
		return pushed_has_unread(c);
	return c->readable && !ioctl(c->tcp.fd, FIONREAD, &bytes) && bytes > 0;
}

void connection_close_at_once(struct connection *c)
{
	bool reset = c->state == CONNECTION_ESTABLISHED;

	connection_close_socket(c, reset);
	connection_drop_outgoing(c);
	c->close_reply = true;
}

void connection_close(struct connection *c, uint8_t flags, uint32_t read_bytes)
{
	if (c->close_reply)
		return;
	if (c->state == CONNECTION_CLOSING) { /* the host no longer waits for the end of lingering */
		c->lingering = false;
		c->close_reply = true;
		connection_wake(c);
		return;
	}
	c->connect_reply = false;
	ticket_for_close(c);
	kind_of(c)->close(c, flags, read_bytes != (c->tcp.received_bytes & (XTS_CREDITS_MAX - 1)));
}

void stream_close(struct connection *c, uint8_t flags, bool unread)
{
	c->unwaited = close_is_unwaited(flags);
	if (c->shared) /* a shared socket that is bound and does not listen yet */
		share_leave(c, !(flags & XTS_FLAG_LINGER));
	if (c->state != CONNECTION_ESTABLISHED || flags & XTS_FLAG_ABORT || unread || c->tcp.error || has_unread(c)) {
		connection_close_at_once(c);
	} else {
		c->tcp.fin_wanted = true;
		connection_enter(c, CONNECTION_CLOSING);
		c->lingering = flags & XTS_FLAG_LINGER;
		c->close_reply = !c->lingering;
		if (c->lingering) {
			c->tcp.error = 0;
			connection_look_sooner(c);
			connection_look_later(c);
		}
		if (!outgoing_waits(&c->tcp.out))
			connection_drained(c);
	}
	connection_wake(c);
}

void connection_drained(struct connection *c)
{
	if (c->tcp.pushed && c->tcp.fin_wanted && !c->tcp.fin_done && c->tcp.fd >= 0 && !pushed_finish(c))
		return; /* its protocols have more to send, or the connection has failed */
	if (c->tcp.fin_wanted && !c->tcp.fin_done && c->tcp.fd >= 0) {
		c->tcp.fin_done = true;
		/* A socket that will be closed anyway is closed when CLOSED goes out, and close(2) sends the FIN. If
		 * the host has no frames free for CLOSED, send_late_fins() does it. */
		if (c->lingering || c->state != CONNECTION_CLOSING)
			(void)shutdown(c->tcp.fd, SHUT_WR);
		else if (!c->orphan)
			c->channel->late_fins = true;
	}
	if (c->orphan)
		connection_free(c, false);
}

/* Has the TCP peer acknowledged everything, our FIN included? Negative: the connection has failed. */
static int all_acknowledged(int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof info;
	int error = connection_socket_error(fd);

	if (error)
		return -error;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
		return -errno;
	return info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT &&
	       info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_LAST_ACK && info.tcpi_state != TCP_CLOSING;
}

/* Checks whether a lingering close is done. */
void connection_look_at_lingering(struct connection *c)
{
	int done = c->tcp.fin_done ? all_acknowledged(c->tcp.fd) : 0;

	if (!done)
		return;
	c->tcp.error = done < 0 ? -done : 0;
	c->lingering = false;
	c->close_reply = true;
	connection_look_no_more(c);
	connection_wake(c);
}
