/* Listeners: accept, announce by NEWCONN. A listener's post credits count connections (PROTOCOL.md). */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel.h"

/* accept(2) reports errors of the connection it would have returned: those say nothing about the listener. */
static bool is_passing(int error)
{
	return error == ECONNABORTED || error == EINTR || error == EPROTO || error == ENETDOWN || error == ENOPROTOOPT ||
	       error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH || error == EOPNOTSUPP || error == ENETUNREACH;
}

static void announce(struct connection *l, struct connection *c, const struct sockaddr_storage *peer,
		     const struct xts_tx_slot *slot)
{
	struct xts_newconn m = { .proxy_id = c->proxy_id, .post_credits = connection_grant_window(c) };

	c->state = CONNECTION_ESTABLISHED;
	c->announced = true;
	c->writable = true;
	socket_local(c->fd, &m.local);
	sockaddr_to_endpoint(peer, &m.peer);
	xts_head_encode(slot->data, XTS_REPLY_NEWCONN, 0, 0, l->xts_socket);
	xts_newconn_encode(slot->data, &m);
	channel_submit(l->channel, slot, XTS_NEWCONN_BYTES);
	l->held--;
	l->worker->stats.accepts++;
}

bool listener_send(struct connection *l, uint32_t budget)
{
	struct channel *ch = l->channel;
	struct sockaddr_storage peer;
	struct xts_tx_slot slot;

	while (budget--) {
		struct connection *c;
		socklen_t length = sizeof peer;
		int fd, error = 0;

		if (!l->readable || !l->held)
			return false;
		if (ch->connection_count >= l->worker->config.limits.connections || !channel_window_left(ch)) {
			/* They wait in the kernel's own backlog, as they would behind a busy server. */
			connection_tick_start(l);
			l->readable = false;
			return false;
		}
		if (!channel_slot(ch, &slot))
			return true;
		fd = accept4(l->fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			xts_queue_abandon(ch->queue, &slot);
			if (is_passing(errno))
				continue;
			l->readable = false;
			if (errno != EAGAIN)
				connection_tick_start(l); /* out of descriptors or memory: again a little later */
			return false;
		}
		c = connection_new(ch, fd, l->ip_version, &error);
		if (!c) {
			xts_queue_abandon(ch->queue, &slot);
			close(fd);
			connection_tick_start(l);
			l->readable = false;
			return false;
		}
		announce(l, c, &peer, &slot);
	}
	return true;
}
