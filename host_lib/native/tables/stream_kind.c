/* Streams: TCP connections, and sockets that may become one. The kind's table, and what is short. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/stack.h"
#include "tables/socket_kinds.h"
#include "listeners/listener.h"
#include "processes/inherit.h"
#include "processes/next_proxy.h"
#include "processes/socket_record.h"
#include "attaching/status.h"
#include "streams/stream.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"

/* FIONREAD; of PDUs, those of the first one. */
static int unread(const struct xts_sock *s)
{
	return (int)(s->cold->pdu_first ? s->cold->pdu_first->bytes : s->unread);
}

static uint8_t status(const struct xts_sock *s)
{
	switch (s->state) {
	case TCP_STATE_SYN_SENT:
		return XTS_STATE_SYN_SENT;
	case TCP_STATE_ESTABLISHED:
		if (s->done)
			return s->shutdown & SEND_SHUTDOWN ? XTS_STATE_LAST_ACK : XTS_STATE_CLOSE_WAIT;
		return s->shutdown & SEND_SHUTDOWN ? XTS_STATE_FIN_WAIT : XTS_STATE_ESTABLISHED;
	default:
		return s->phase == PHASE_CONNECTED ? XTS_STATE_FAILED : XTS_STATE_UNCONNECTED;
	}
}

static void lose(struct xts_sock *s)
{
	if (s->state == TCP_STATE_SYN_SENT)
		socket_fail(s, ECONNABORTED);
	else if (s->state == TCP_STATE_ESTABLISHED)
		socket_fail(s, ECONNRESET);
}

static int bind_chosen(struct xts_sock *s)
{
	return s->bound ? asked_bind(s, s->local) : 0;
}

/* --- several processes have it ------------------------------------------------------------------------------------ */

static bool is_unconnected(const struct xts_sock *s)
{
	return s->state == TCP_STATE_CLOSE && s->phase == PHASE_UNCONNECTED;
}

static bool is_fresh(const struct xts_sock *s)
{
	return is_unconnected(s) && !s->bound;
}

static bool is_server(const struct xts_sock *s)
{
	return is_unconnected(s) && s->bound;
}

static bool is_joined(const struct xts_sock *s)
{
	return is_server(s) && s->cold->sharing.key && !s->lost;
}

static void interest(struct xts_sock *s, bool accepts)
{
	(void)s;
	(void)accepts;
}

static void tick(struct xts_sock *s, uint64_t now)
{
	(void)s;
	(void)now;
}

static bool is_sound(const struct socket_record *b)
{
	if (b->state != TCP_STATE_ESTABLISHED && b->state != TCP_STATE_CLOSE)
		return false;
	return b->state == TCP_STATE_CLOSE || b->unread.bytes <= b->window;
}

static bool label_is_sound(const struct socket_record *b)
{
	if (b->state == TCP_STATE_ESTABLISHED)
		return b->passed && b->phase == PHASE_CONNECTED;
	return b->state == TCP_STATE_CLOSE && b->bound && b->phase == PHASE_UNCONNECTED;
}

const struct socket_kind stream_kind = {
	STREAM_ENTRIES,
	.name = "socket",
	.send = stream_send,
	.recv = stream_recv,
	.shutdown = stream_shutdown,
	.ioctl = stream_ioctl,
	.events = stream_events,
	.moves = move_is_of_state,
	.leaves = kind_does_nothing,
	.promises = move_promises,
	.takes_pending = move_takes_pending,
	.ask_first = kind_has_nothing_to_do,
	.listen_again = kind_has_nothing_to_do,
	.is_server = is_server,
	.is_joined = is_joined,
	.may_be_shared = sharing_bound_possible,
	.interest = interest,
	.withdraw = kind_does_nothing,
	.unshared = kind_does_nothing,
	.share_before_fork = stream_share_before_fork,
	.share_tick = tick,
	.give_back_offers = kind_does_nothing,
	.is_away = kind_has_nothing_away,
	.unread = unread,
	.status = status,
	.lose = lose,
	.bind_chosen = bind_chosen,
	.is_fresh = is_fresh,
	.record_is_sound = is_sound,
	.label_is_sound = label_is_sound,
};
