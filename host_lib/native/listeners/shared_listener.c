/*
 * Shared listeners: keys, and interest in connections. inherit.h has the theory of operation.
 *
 * A socket that is bound and does not listen yet is shared in the same way (share_by_key()): it gets its key at the
 * first fork or exec, and each process that has the socket calls listen for itself.
 *
 * Until other processes can have it, a listener works as an unshared one, with one exception: connections that come
 * before the application has called accept() are not answered. So a process that listens, and leaves accepting to its
 * children, can give them back (listener_offers.c). Waiting for a connection is not enough to answer it: a superserver
 * (inetd(8), systemd's socket activation) waits, and then starts the program that accepts. After a fork or a join,
 * credits are posted only when the application shows interest, and few at a time.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "link/credit.h"
#include "listeners/listener.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "core/wait.h"
#include "xts_private.h"

#define ASK_NS (100 * NS_PER_MS)

/* --- naming, joining ---------------------------------------------------------------------------------------------- */

/* Only listener_interest() counts what it has granted. */
static void start_account(struct xts_sock *s)
{
	xts_credit_grant_init(&s->grant, s->cold->backlog + 1 < 2 ? 2 : s->cold->backlog + 1);
	s->grant.outstanding = 0;
}

static void promise(struct xts_sock *s, uint32_t connections)
{
	xts_credit_free(&s->grant, connections);
	outbox_add(s, TODO_ADVERT);
}

int share_name(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHARE, .keep_ms = s->own.shared ? share_keep_ms(s) : 0, .makes = true };
	int r;

	if (!s->cold->sharing.key)
		s->cold->sharing.key = key_make();
	call.key = key_to_say(s);
	r = call_proxy(s, &call);
	if (r == -EBADF)
		return r;
	s->cold->sharing.key_is_told |= !r;
	if (r || s->state != TCP_STATE_LISTEN)
		return r ? r : -EINVAL;
	start_account(s);
	if (!s->own.shared)
		share_add(s);
	if (!s->cold->sharing.others_may_have)
		promise(s, s->cold->backlog + 1);
	return 0;
}

static int ask_to_share(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHARE, .keep_ms = share_keep_ms(s), .makes = true };
	int r;

	key_look_up(s);
	call.key = s->cold->sharing.key;
	r = call_proxy(s, &call);
	if (r == -EBADF)
		return r;
	s->cold->sharing.key_is_told = !r;
	return r;
}

/* A process that joins a socket of which no member listens yet has to listen for itself; else this only repeats the
 * backlog. No credits: listener_interest() posts them. */
static int listen_as_member(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_LISTEN, .backlog = s->cold->backlog, .makes = true };
	bool has_to = s->state == TCP_STATE_LISTEN && s->cold->sharing.listens_told != TOLD_LISTENS;
	int r = has_to ? call_proxy(s, &call) : 0;

	if (r)
		return r;
	if (s->state == TCP_STATE_LISTEN)
		start_account(s);
	share_add(s);
	return 0;
}

/* Makes the socket again if the proxy does not know its key any more. 0, or -errno; -EADDRINUSE, -EEXIST: another
 * process has made it. It gets its key before it listens: with SO_REUSEPORT several processes could bind and listen,
 * and the connections of all listeners but one would be lost. */
static int renew(struct xts_sock *s)
{
	bool at_once = sharing_bound_possible(s->stack);
	int r = asked_play(s);

	if (!r && at_once)
		r = ask_to_share(s);
	if (!r)
		r = listen_as_member(s);
	if (!r && !at_once)
		r = s->state == TCP_STATE_LISTEN ? ask_to_share(s) : 0;
	return r ? r : asked_play_listening(s);
}

int share_join(struct xts_sock *s)
{
	struct stack *st = s->stack;
	uint16_t nobody = 0;
	int r = -ENOENT, last = -EADDRINUSE;

	s->cold->sharing.others_may_have = st->joint = true;
	listener_look_whether_shut(s);
	for (int i = 0; i < JOIN_ATTEMPTS; i++) {
		s->cold->sharing.listens_told = TOLD_NOTHING;
		r = ask_to_share(s);
		if (!r)
			r = listener_wait_until_told(s);
		if (!r)
			r = listen_as_member(s);
		else if (r == -ENOENT && key_may_be_heard(s, i))
			r = -EEXIST;
		else if (r == -ENOENT && !s->cold->sharing.received)
			r = renew(s);
		if (!r || r == -ENETDOWN)
			return r;
		if (r != -EADDRINUSE && r != -EEXIST && r != -EACCES)
			return r;
		/* Another process is making it, or has to: one that has given up its rights may not bind to its port. */
		last = r;
		r = again_undo(s);
		if (r)
			return r;
		if (socket_wait(s, &nobody, now_ns() + JOIN_PAUSE_NS, false) == -EBADF)
			return -EBADF;
	}
	return last;
}

int share_ask(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHARE,
			     .key = key_to_say(s),
			     .keep_ms = share_keep_ms(s),
			     .deadline_ns = now_ns() + ASK_NS };
	int r = s->own.shared && s->stack->channel ? call_proxy(s, &call) : 0;

	return r == -EBADF ? r : 0;
}

/* --- interest ----------------------------------------------------------------------------------------------------- */

uint32_t listener_promised(const struct xts_sock *s)
{
	return s->grant.outstanding + s->grant.unadvertised;
}

/* Answers connections that came before there was interest, since no other process can have them. */
static void take_held(struct xts_sock *listener)
{
	for (struct xts_sock *s = listener->cold->accept_first; s; s = s->accept_next) {
		if (!s->own.offered)
			continue;
		s->own.offered = false;
		outbox_add(s, TODO_ACCEPTED);
	}
}

void listener_interest(struct xts_sock *s, bool accepts)
{
	struct stack *st = s->stack;
	uint32_t wanted = s->cold->sharing.others_may_have ? OFFERS_AT_ONCE : s->cold->backlog + 1,
		 have = listener_promised(s) + s->cold->accept_count;

	if (!s->own.shared || s->closing || s->lost || !st->channel)
		return;
	s->cold->sharing.accepting_ns = now_ns();
	if (accepts && !s->cold->sharing.accepting) {
		s->cold->sharing.accepting = true;
		if (!s->cold->sharing.others_may_have)
			take_held(s);
	}
	/* Giving connections back voids the posted credits: new ones have to follow it. */
	if (have > wanted / 2 || st->channel->refused_count)
		return;
	promise(s, wanted - have);
	if (s->cold->sharing.others_may_have && !have)
		channel_shows_interest(st);
}

void listener_withdraw(struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	if (s->closing || s->lost || !c || !(c->link.features & XTS_FEATURE_WITHDRAW) || !listener_promised(s))
		return;
	s->grant.outstanding = s->grant.unadvertised = 0;
	outbox_add(s, TODO_SHARE); /* leaves before new credits */
	if (share_is_awaited(s))
		listener_interest(s, false);
}

int xts_share_listener(int number)
{
	struct stack *st;
	struct xts_sock *s;
	int r = 0;

	st = stack_enter_of(number);
	s = table_open(st, number);
	if (!s)
		r = -EBADF;
	else if (s->state == TCP_STATE_LISTEN && s->own.shared)
		r = 0; /* another process has called listen(), and this one is about to */
	else if (s->state != TCP_STATE_CLOSE || s->phase != PHASE_UNCONNECTED)
		r = -EINVAL;
	else
		s->cold->sharing.share_at_listen = true;
	stack_leave(st);
	return finish(r);
}
