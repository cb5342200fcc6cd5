/*
 * Sockets that came through fork or exec: their state in the new process, and taking over those for which a key is
 * enough: listeners, bound sockets and, over exec, connections that no other process has. inherit.h has the theory of
 * operation.
 */
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/process.h"
#include "core/reason.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/next_proxy.h"
#include "processes/passed_copies.h"
#include "processes/take_over.h"
#include "processes/wipe.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/epoll.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"
#include "xts_private.h"

#define ATTACH_PAUSE_NS (20 * NS_PER_MS)
#define CLAIM_PAUSE_NS (5 * NS_PER_MS)

static void (*tell_gone)(int number, unsigned reason);

static void set_inherited(struct xts_sock *s, uint8_t how)
{
	if (s->own.inherited != how)
		s->stack->untaken += how == NOT_INHERITED ? UINT_MAX : 1;
	s->own.inherited = how;
}

static void leave_to_join(struct xts_sock *s)
{
	struct xts_sock **at = &s->stack->to_join;

	while (*at && *at != s)
		at = &(*at)->cold->sharing.shared_next;
	if (*at)
		*at = s->cold->sharing.shared_next;
}

void inherit_is_here(struct xts_sock *s)
{
	leave_to_join(s);
	set_inherited(s, NOT_INHERITED);
}

void inherit_is_elsewhere(struct xts_sock *s)
{
	set_inherited(s, INHERITED);
}

/* --- after a fork ------------------------------------------------------------------------------------------------- */

/* This process's channel knows nothing of the socket. */
static void forget_channel(struct xts_sock *s)
{
	s->proxy_id = 0;
	s->opening = s->claiming = s->cancelled = s->in_deficit = s->in_outbox = s->in_blocked = s->no_space =
		s->asked = s->own.taking = false;
	s->todo = 0;
	s->pending = NULL;
	s->pending_bytes = s->pending_capacity = 0;
	s->credits = s->peer_window = 0;
	s->readers = s->writers = s->callers = s->polled = 0;
	s->call = NULL;
	asked_connected(s);
	s->cold->accept_first = s->cold->accept_last = NULL;
	s->cold->accept_count = 0;
	s->outbox_next = s->outbox_prev = s->blocked_next = s->cold->sharing.shared_next = NULL;
	kind_of(s)->forget(s);
	s->own.moved = NOT_MOVED;
	s->cold->sharing.stays = s->cold->sharing.leaves = false;
	s->own.ending = s->cold->sharing.counted = false;
	s->cold->sharing.asked_for = 0;
	s->cold->sharing.key_is_told = s->cold->sharing.key_settles = false;
	s->own.shared = s->pushing = s->cold->ulps.sending = s->cold->ulps.handshaking = false;
}

void xts_on_gone(void (*tell)(int number, unsigned reason))
{
	tell_gone = tell;
}

void socket_not_here(struct xts_sock *s, uint8_t reason)
{
	s->own.why_gone = reason;
	s->own.gone_unreported = true;
	status_state(s);
}

void socket_report_gone(struct xts_sock *s)
{
	s->own.gone_unreported = false;
	if (tell_gone)
		tell_gone((int)s->id, s->own.why_gone);
}

static void make_unavailable(struct xts_sock *s, uint8_t reason)
{
	s->lost = true;
	socket_enter(s, TCP_STATE_CLOSE, PHASE_UNCONNECTED);
	s->stack->not_inherited++;
	socket_not_here(s, reason);
}

/* In the child. Buffers, pending data and mirrors are gone by now. */
void inherit_after_fork(struct xts_sock *s)
{
	bool fresh = s->state == TCP_STATE_CLOSE && s->phase == PHASE_UNCONNECTED && !s->proxy_id && !s->opening &&
		     !s->lost;
	bool by_key = share_by_key(s) && (s->own.shared || s->own.inherited || s->away),
	     was_connected = s->state == TCP_STATE_ESTABLISHED;

	forget_channel(s);
	s->tried = false;
	s->own.inherited = NOT_INHERITED;
	if ((fresh && !by_key && !s->away) || s->lost) {
		passed_after_fork(s, false);
		shared_status_is(s, NULL);
		s->own.common = NULL;
		return;
	}
	s->away = s->making = false;
	if (by_key) {
		passed_after_fork(s, true);
		inherit_adopt(s);
	} else if (common_inherited(s)) {
		socket_enter(s, TCP_STATE_ESTABLISHED, PHASE_CONNECTED);
		s->error = 0; /* the proxy tells it again, as the connection's end */
		inherit_adopt(s);
	} else {
		make_unavailable(s, was_connected ? XTS_REASON_ELSEWHERE : XTS_REASON_LOST);
	}
}

void inherit_after_fork_parent(struct stack *st)
{
	if (process_inherits()) {
		for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next) {
			s->cold->sharing.others_may_have = st->joint = true;
			kind_of(s)->withdraw(s);
		}
		sharers_after_fork_parent(st);
		if (st->shared)
			progress_need(st); /* what the proxy promised to this process alone may have to go to another */
	}
	common_after_fork_parent(st);
}

/* --- taking over -------------------------------------------------------------------------------------------------- */

static int claim(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_CLAIM, .key = s->cold->sharing.key, .unread = s->unread };
	uint32_t window = s->grant.window < WINDOW_BYTES_MIN ? WINDOW_BYTES_MIN : s->grant.window;

	xts_credit_grant_init(&s->grant, window);
	s->grant.outstanding = window - s->unread - pdu_credits(s);
	call.post_credits = s->grant.outstanding;
	move_base(s);
	s->consumed = 0;
	s->credits = s->peer_window = 0;
	if (s->done) {
		/* The proxy announces the end again, after the bytes that were unread. */
		s->done = false;
		s->shutdown &= (uint8_t)~RCV_SHUTDOWN;
	}
	return call_proxy(s, &call);
}

/* It may be on its way from the proxy's process before to the one that goes on. */
static int claim_soon(struct xts_sock *s)
{
	uint64_t until_ns = now_ns() + INHERITED_AWAY_NS;
	int r;

	while ((r = claim(s)) == -EBUSY && now_ns() < until_ns)
		if (wait_a_while(s->stack, CLAIM_PAUSE_NS))
			break;
	return r;
}

/* A connection is lost with this attempt: an agent that is being started again is waited for. What has a key is made
 * again whenever there is a queue (again.c). */
static int attach_for(struct xts_sock *s, bool by_key)
{
	struct stack *st = s->stack;
	uint64_t until_ns = now_ns() + INHERITED_AWAY_NS;
	int r;

	while (!st->channel && (r = channel_attach(st))) {
		if (r != -ENETDOWN || by_key || now_ns() > until_ns || !s->in_use)
			return r;
		if (wait_a_while(st, ATTACH_PAUSE_NS))
			return r;
	}
	return 0;
}

static int take(struct xts_sock *s)
{
	bool by_key = share_by_key(s);
	int r;

	if (!s->cold->sharing.key)
		return 0; /* the connection had ended: only the unread bytes are left */
	r = attach_for(s, by_key);
	if (!s->in_use)
		return -EBADF;
	if (!r && !sharing_possible(s->stack))
		r = -EOPNOTSUPP;
	if (!r)
		r = by_key ? kind_of(s)->join(s) : claim_soon(s);
	return r;
}

static void take_failed(struct xts_sock *s)
{
	bool by_key = share_by_key(s);

	s->stack->not_inherited++;
	s->lost = true;
	s->proxy_id = 0;
	s->opening = false;
	socket_fail(s, by_key ? ENETDOWN : ECONNRESET);
	socket_not_here(s, XTS_REASON_LOST);
}

void inherit_adopt(struct xts_sock *s)
{
	struct stack *st = s->stack;

	set_inherited(s, INHERITED);
	if (!share_by_key(s))
		return;
	s->cold->sharing.others_may_have = true;
	if (!kind_of(s)->members_receive)
		return; /* nobody waits for connections before it listens */
	s->cold->sharing.shared_next = st->to_join;
	st->to_join = s;
}

void inherit_take(struct xts_sock *s)
{
	struct stack *st = s->stack;
	bool by_key;
	int r;

	while (s->in_use && s->own.taking)
		if (wait_for(st, &s->callers, FOREVER, false) == -ENOBUFS)
			return;
	if (!s->in_use || s->own.inherited == NOT_INHERITED)
		return;
	s->own.taking = true;
	leave_to_join(s);
	r = take(s);
	if (!s->in_use)
		return;
	s->own.taking = false;
	wake(st, &s->callers);
	set_inherited(s, NOT_INHERITED);
	by_key = share_by_key(s);
	if (!by_key)
		s->cold->sharing.key = 0;
	if (r && s->away)
		again_start(st); /* its channel has ended meanwhile */
	else if (r && !s->closing && !(by_key && again_keeps_inherited(s)))
		take_failed(s);
	status_state(s);
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
}

/* --- parking for exec --------------------------------------------------------------------------------------------- */

int connection_park(struct xts_sock *s, uint64_t deadline_ns)
{
	struct stack *st = s->stack;
	struct call call = {
		.type = XTS_CMD_PARK, .key = key_make(), .keep_ms = CONNECTION_KEEP_MS, .deadline_ns = deadline_ns
	};
	int r;

	if (s->pushing || s->cold->ulps.handshaking || s->cold->ulps.sending)
		return -EBUSY; /* the proxy could not tell to which process they belong */
	s->own.moved = PARKING;
	s->cold->sharing.park_token = 0;
	st->moving++;
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLHUP); /* a thread that waits for it finds it gone */
	r = call_proxy(s, &call);
	st->moving--;
	if (!s->in_use)
		return -ECONNRESET;
	if (r) {
		s->own.moved = NOT_MOVED;
		if (!s->open && !s->closing)
			socket_end(s); /* the application has closed it meanwhile */
		return r;
	}
	s->proxy_id = 0;
	s->cold->sharing.key = call.key;
	wipe(&call.key, sizeof call.key);
	return 0;
}

void connection_take_back(struct xts_sock *s)
{
	s->own.moved = NOT_MOVED;
	set_inherited(s, INHERITED);
	inherit_take(s);
	if (s->in_use && !s->open && !s->closing)
		socket_end(s);
}

void inherit_take_watched(struct stack *st, const struct epoll_ctx *ctx)
{
	struct xts_sock *s = st->to_join;

	while (s) {
		if (!epoll_watches(ctx, s)) {
			s = s->cold->sharing.shared_next;
			continue;
		}
		socket_hold(s);
		inherit_take(s);
		socket_put(s);
		s = st->to_join; /* s may have changed: the lock was released */
	}
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

struct xts_sock *table_use(struct stack *st, int number)
{
	return table_use_for(st, number, PURPOSE_USE);
}

struct xts_sock *table_use_for(struct stack *st, int number, uint32_t purpose)
{
	struct xts_sock *s = table_open(st, number);

	if (!s || (s->own.inherited == NOT_INHERITED && !s->own.gone_unreported && !s->own.common && !s->own.shared))
		return s;
	socket_hold(s);
	shared_status_follow(s);
	if (s->own.common)
		s->cold->sharing.used_ns = now_ns();
	if (s->own.common)
		turn_begin(s, purpose);
	if (!s->own.common && s->own.inherited != NOT_INHERITED)
		inherit_take(s);
	socket_put(s);
	s = table_open(st, number);
	if (s && purpose == PURPOSE_POLL && s->own.common && turn_is_elsewhere(s))
		common_look_soon(st);
	if (s && s->own.gone_unreported)
		socket_report_gone(s);
	return s;
}

void inherit_release(struct xts_sock *s)
{
	sharers_leave(s);
	again_over(s);
	key_wipe(s);
}

/* --- before the endpoint's path is gone --------------------------------------------------------------------------- */

/* The first use of a socket that was inherited attaches this process, for which it has to find the endpoint. */
void xts_before_chroot(void)
{
	xts_look_who_calls();
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		stack_enter(st);
		if (st->untaken && !st->channel)
			(void)channel_attach(st); /* if it fails, so does the first use */
		stack_leave(st);
	}
}
