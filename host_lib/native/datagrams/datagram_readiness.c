/* The readiness of a datagram socket: see datagrams.h. */
#include <sys/epoll.h>

#include "core/channel.h"
#include "processes/next_proxy.h"
#include "core/received_data.h"
#include "datagrams/datagrams.h"
#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/stack.h"

/* As sock_writeable(): half of the room is free, which is enough for any datagram unless the window is very small. */
static bool is_writable(struct xts_sock *s)
{
	uint32_t enough = s->peer_window / 2;

	if (s->away && s->stack->channel)
		return false; /* it is made again in a moment */
	if (!s->proxy_id)
		return true; /* a send would wait for the proxy's answer, not for room */
	if (enough > DATAGRAM_CREDITS_MAX)
		enough = DATAGRAM_CREDITS_MAX;
	if (enough < s->datagrams->wanted)
		enough = s->datagrams->wanted;
	if (move_has_room(s))
		return true;
	if (s->credits >= enough && channel_can_send(s->stack) && !(s->todo & TODO_DATA)) {
		s->datagrams->wanted = 0;
		return true;
	}
	s->no_space = true;
	if (s->credits >= enough)
		socket_wait_for_link(s);
	return false;
}

uint32_t datagram_events(struct xts_sock *s)
{
	uint32_t events = 0;

	if (s->lost)
		return EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLERR | EPOLLHUP;
	if (s->error || datagram_first_error(s))
		events |= EPOLLERR | (s->datagrams->errors_are_urgent ? EPOLLPRI : 0u);
	if (s->shutdown & RCV_SHUTDOWN)
		events |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
	if (s->shutdown == SHUTDOWN_MASK)
		events |= EPOLLHUP;
	if (datagram_first(s) && !callback_decides(s))
		events |= EPOLLIN | EPOLLRDNORM;
	if (is_writable(s))
		events |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	return events;
}

void datagram_lose(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;

	s->credits = 0;
	if (q->missing || q->offer.missing || q->returned || q->coming) {
		/* the rest of a datagram will not come any more, nor the beginning of one that has gone back */
		buffer_drop(s);
	}
	q->withheld = q->sought = q->leaves = false;
	q->naming = 0;
	q->returned = q->wanted = q->flushed = q->dropped = 0;
	q->rest = false;
	if (s->away)
		return;
	s->error = ENETDOWN;
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP);
}
