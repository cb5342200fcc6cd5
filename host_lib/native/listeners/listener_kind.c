/* Listeners, from listen(2) to their close: the kind's table (core/socket_kind.h), and what is short. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/transfer.h"
#include "tables/socket_kinds.h"
#include "listeners/listener.h"
#include "processes/inherit.h"
#include "processes/next_proxy.h"
#include "processes/socket_record.h"
#include "attaching/status.h"
#include "streams/stream.h"
#include "ulps/pdu.h"

static ssize_t send_nothing(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message)
{
	(void)message;
	return send_all(s, src, flags);
}

static ssize_t recv_nothing(struct xts_sock *s, const struct sink *to, int flags, struct about *about, bool *keys)
{
	(void)s;
	(void)to;
	(void)about;
	(void)keys;
	return flags & MSG_ERRQUEUE ? -EAGAIN : -ENOTCONN;
}

static int control(struct xts_sock *s, unsigned long request, void *argument)
{
	return request == SIOCOUTQ || request == SIOCOUTQNSD ? -EINVAL : stream_ioctl(s, request, argument);
}

static int unread(const struct xts_sock *s)
{
	(void)s;
	return -EINVAL;
}

static uint32_t events(struct xts_sock *s)
{
	return (s->cold->accept_first ? EPOLLIN | EPOLLRDNORM : 0u) | (s->error ? EPOLLIN | EPOLLRDNORM | EPOLLERR : 0u);
}

static uint8_t status(const struct xts_sock *s)
{
	(void)s;
	return XTS_STATE_LISTEN;
}

static void lose(struct xts_sock *s)
{
	if (!s->away)
		socket_fail(s, ENETDOWN);
}

static int bind_chosen(struct xts_sock *s)
{
	return asked_bind(s, s->local);
}

static bool is_fresh(const struct xts_sock *s)
{
	(void)s;
	return false;
}

static bool yes(const struct xts_sock *s)
{
	(void)s;
	return true;
}

static void before_fork(struct xts_sock *s)
{
	(void)s; /* it has its key since listen(2), or is passed with one */
}

static bool is_sound(const struct socket_record *b)
{
	return record_has_key(b) && !b->unread.bytes && b->relatives == -1;
}

static bool label_is_sound(const struct socket_record *b)
{
	return b->phase == PHASE_UNCONNECTED;
}

const struct socket_kind listener_kind = {
	STREAM_ENTRIES,
	.name = "listener",
	.accepts = true,
	.members_receive = true,
	.send = send_nothing,
	.recv = recv_nothing,
	.shutdown = listener_shutdown,
	.ioctl = control,
	.events = events,
	.moves = move_is_of_state,
	.leaves = kind_does_nothing,
	.promises = move_promises,
	.takes_pending = move_takes_pending,
	.ask_first = listener_ask_first,
	.listen_again = listener_listen_again,
	.is_server = yes,
	.is_joined = yes,
	.may_be_shared = sharing_possible,
	.interest = listener_interest,
	.withdraw = listener_withdraw,
	.unshared = listener_drop_offers,
	.share_before_fork = before_fork,
	.share_tick = listener_share_tick,
	.give_back_offers = listener_give_back_offers,
	.is_away = listener_is_away,
	.unread = unread,
	.status = status,
	.lose = lose,
	.bind_chosen = bind_chosen,
	.is_fresh = is_fresh,
	.record_is_sound = is_sound,
	.label_is_sound = label_is_sound,
};
