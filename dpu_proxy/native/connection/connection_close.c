/* The close of a connection, as its host has asked for it: at once, or when what waits has been sent, or (lingering)
 * when the peer has acknowledged all of it. */
#include "channel/tickets.h"
#include "connection/connection_inside.h"
#include "datagrams/datagram_socket.h"
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

	if (c->returned.last)
		return true;
	if (c->pushed && (c->pushed->started || c->pushed->peeking))
		return pushed_has_unread(c);
	return c->readable && !ioctl(c->fd, FIONREAD, &bytes) && bytes > 0;
}

static void close_at_once(struct connection *c)
{
	bool reset = c->state == CONNECTION_ESTABLISHED;

	connection_close_socket(c, reset);
	connection_drop_outgoing(c);
	c->close_reply = true;
}

void connection_close_listener(struct connection *c)
{
	c->channel->refusing = c;
	if (c->shared ? !share_end_some(c, !c->channel->refusing_keeps) : !listener_refuse_some(c))
		return;
	c->channel->refusing = NULL;
	if (c->shared)
		share_leave(c, !c->channel->refusing_keeps);
	c->unwaited = c->channel->refusing_unwaited;
	close_at_once(c);
	connection_wake(c);
}

void connection_close_datagram(struct connection *c)
{
	if (c->shared)
		share_leave(c, !c->datagrams->closing_keeps);
	close_at_once(c);
	connection_wake(c);
}

void connection_close(struct connection *c, uint8_t flags, uint32_t read_bytes)
{
	bool unread = read_bytes != (c->received_bytes & (XTS_CREDITS_MAX - 1)), unwaited;

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
	/* a host that will use the socket again (XTS_FLAG_ABORT) also waits for CLOSED */
	unwaited = !(flags & (XTS_FLAG_ABORT | XTS_FLAG_LINGER));
	if (c->state == CONNECTION_LISTENER) {
		c->channel->refusing_unwaited = unwaited;
		c->channel->refusing_keeps = flags & XTS_FLAG_LINGER;
		connection_close_listener(c);
		return;
	}
	if (c->state == CONNECTION_DATAGRAM && !datagram_close(c, flags & XTS_FLAG_LINGER))
		return;
	c->unwaited = unwaited;
	if (c->shared) /* a shared socket that is bound and does not listen yet */
		share_leave(c, !(flags & XTS_FLAG_LINGER));
	if (c->state != CONNECTION_ESTABLISHED || flags & XTS_FLAG_ABORT || unread || c->error || has_unread(c)) {
		close_at_once(c);
	} else {
		c->out.fin_wanted = true;
		connection_enter(c, CONNECTION_CLOSING);
		c->lingering = flags & XTS_FLAG_LINGER;
		c->close_reply = !c->lingering;
		if (c->lingering) {
			c->error = 0;
			connection_look_sooner(c);
			connection_look_later(c);
		}
		if (!outgoing_waits(&c->out))
			connection_drained(c);
	}
	connection_wake(c);
}

void connection_drained(struct connection *c)
{
	if (c->pushed && c->out.fin_wanted && !c->out.fin_done && c->fd >= 0 && !pushed_finish(c))
		return; /* its protocols have more to send, or the connection has failed */
	if (c->out.fin_wanted && !c->out.fin_done && c->fd >= 0) {
		c->out.fin_done = true;
		/* A socket that will be closed anyway is closed when CLOSED goes out, and close(2) sends the FIN. If
		 * the host has no frames free for CLOSED, send_late_fins() does it. */
		if (c->lingering || c->state != CONNECTION_CLOSING)
			(void)shutdown(c->fd, SHUT_WR);
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
	int done = c->out.fin_done ? all_acknowledged(c->fd) : 0;

	if (!done)
		return;
	c->error = done < 0 ? -done : 0;
	c->lingering = false;
	c->close_reply = true;
	connection_look_no_more(c);
	connection_wake(c);
}
