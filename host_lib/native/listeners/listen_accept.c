/*
 * listen(2), accept4(2). The proxy accepts connections and announces each with NEWCONN. It gets a socket and
 * an answer before the application accepts it, so that data can arrive. A listener's credit account counts connections.
 */
#include <sys/epoll.h>

#include "core/operation.h"
#include "core/hint.h"
#include "core/address.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "listeners/listener.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"
#include "xts.h"
#include "xts_private.h"

#define BACKLOG_MAX 4096u

/* The kernel lets one connection more wait than the backlog says. */
int listener_listen(struct xts_sock *s, int backlog)
{
	uint32_t length = backlog < 0 || (uint32_t)backlog > BACKLOG_MAX ? BACKLOG_MAX : (uint32_t)backlog;
	struct call call = { .type = XTS_CMD_LISTEN, .backlog = length };
	bool was_listening = s->state == TCP_STATE_LISTEN;
	uint32_t window = length + 1 < 2 ? 2 : length + 1;
	bool named = s->own.shared; /* its key was registered while it was bound */
	bool sharing = named || (s->cold->sharing.share_at_listen && sharing_possible(s->stack));
	int r;

	if (s->phase != PHASE_UNCONNECTED || (s->state != TCP_STATE_CLOSE && !was_listening) ||
	    s->cold->ulps.with_connect)
		return -EINVAL;
	if (s->renewed)
		return -EOPNOTSUPP;
	if (!was_listening) {
		call.post_credits = sharing ? 0 : window;
		/* Listening from now on, since a NEWCONN may come before this thread wakes up. */
		xts_credit_grant_init(&s->grant, window);
		socket_enter(s, TCP_STATE_LISTEN, PHASE_UNCONNECTED);
	} else if (window > s->grant.window && !s->own.shared) {
		call.post_credits = window - s->grant.window;
		s->grant.window += call.post_credits;
		s->grant.outstanding += call.post_credits;
		s->grant.limit = s->grant.window / 4;
	}
	listener_not_shut(s);
	r = call_proxy(s, &call);
	if (r == -EBADF)
		return r;
	if (r && !was_listening && s->state == TCP_STATE_LISTEN) {
		socket_enter(s, TCP_STATE_CLOSE, PHASE_UNCONNECTED);
		s->grant.window = 0;
	}
	if (!r) {
		s->cold->backlog = length;
		s->local = call.local;
		s->shutdown = 0;
	}
	if (!r && sharing && !was_listening && share_name(s) && !named && s->open && s->state == TCP_STATE_LISTEN) {
		xts_credit_grant_init(&s->grant, window); /* a listener that only this process has */
		s->grant.outstanding = 0;
		s->grant.unadvertised = window;
		s->cold->sharing.key = 0;
		outbox_add(s, TODO_ADVERT);
	}
	status_state(s);
	socket_changed(s, EPOLLHUP);
	return r;
}

int xts_listen(int number, int backlog)
{
	struct stack *st;
	struct xts_sock *s;
	int r;

	st = stack_enter_of(number);
	s = table_use(st, number);
	r = !s ? -EBADF : s->away ? again_now(s) : 0;
	if (!r)
		r = kind_of(s)->listen(s, backlog);
	stack_leave(st);
	return finish_of(number, r);
}

/* A listener must be able to have its port again: connections that it accepted before may be in TIME_WAIT on the
 * device, where the kernel's own listener would have stayed. */
int listener_ask_first(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SETSOCKOPT, .level = SOL_SOCKET, .option = SO_REUSEADDR, .makes = true };
	int on = 1;

	if (asked_option(s, SOL_SOCKET, SO_REUSEADDR))
		return 0;
	memcpy(call.value, &on, sizeof on);
	call.length = sizeof on;
	return call_proxy(s, &call);
}

/* A listener of this process alone begins with credits for as many connections as its backlog has room for. */
int listener_listen_again(struct xts_sock *s)
{
	uint32_t window = s->cold->backlog + 1 < 2 ? 2 : s->cold->backlog + 1, taken;
	bool named = s->cold->sharing.key && sharing_possible(s->stack);
	struct call call = { .type = XTS_CMD_LISTEN, .backlog = s->cold->backlog, .makes = true };
	int r;

	xts_credit_grant_init(&s->grant, window);
	s->grant.outstanding = named || s->cold->accept_count >= window ? 0 : window - s->cold->accept_count;
	call.post_credits = s->grant.outstanding;
	r = call_proxy(s, &call);
	if (r)
		return r;
	s->local = call.local;
	if (named)
		return share_name(s);
	s->cold->sharing.key = 0;
	taken = s->grant.outstanding + s->cold->accept_count;
	s->grant.unadvertised = taken < window ? window - taken : 0;
	if (s->grant.unadvertised)
		outbox_add(s, TODO_ADVERT);
	return 0;
}

static struct xts_sock *take_connection(struct xts_sock *listener)
{
	struct xts_sock *s = listener->cold->accept_first;

	listener->cold->accept_first = s->accept_next;
	if (!listener->cold->accept_first)
		listener->cold->accept_last = NULL;
	listener->cold->accept_count--;
	s->accept_next = s->listener = NULL;
	if (s->own.offered) {
		s->own.offered = false;
		outbox_add(s, TODO_ACCEPTED);
	}
	if (!listener->lost && !listener->away && !listener->own.shared) {
		xts_credit_free(&listener->grant, 1);
		if (xts_credit_due(&listener->grant))
			outbox_add(listener, TODO_ADVERT);
	}
	if (!listener->cold->accept_first && listener->mirror)
		mirror_dirty(listener);
	status_data(listener);
	return s;
}

/* A listener that cannot be made again says so once. */
static int accept_error(struct xts_sock *s)
{
	int r = take_error(s);

	status_state(s);
	if (s->mirror)
		mirror_dirty(s);
	return r;
}

/* One call. */
struct accepting {
	struct operation op;
	bool asks; /* no connection could come before this call: one that waits at the proxy will arrive in a moment */
};

static int accept_step(struct operation *op)
{
	struct accepting *o = (struct accepting *)op;
	struct xts_sock *s = op->s;
	int r;

	if (s->cold->accept_first)
		return STEP_DONE;
	if (!op->pumped)
		return STEP_WAITS; /* a frame that has come may say that it listens now, or does not any more */
	if (s->error && s->state == TCP_STATE_LISTEN)
		return accept_error(s);
	if (s->lost && s->phase == PHASE_UNCONNECTED)
		return -ENETDOWN;
	if (s->state != TCP_STATE_LISTEN)
		return -EINVAL;
	if (op->blocking || !o->asks)
		return STEP_WAITS;
	o->asks = false;
	r = share_ask(s);
	if (r)
		return r;
	op->blocking = true; /* for its answer */
	op->deadline_ns = now_ns() + NS_PER_MS;
	return STEP_AGAIN;
}

int listener_accept(struct xts_sock *s, struct sockaddr *address, socklen_t *length, int flags)
{
	struct accepting o = { .op = operation_to_receive(s, accept_step, !s->nonblocking && !(flags & MSG_DONTWAIT)) };
	struct xts_sock *listener;
	int r;

	o.asks = s->cold->sharing.others_may_have && !s->cold->accept_first && !s->grant.outstanding && !s->away;
	kind_of(s)->interest(s, true);
	r = operation_run(&o.op);
	if (r)
		return r;
	listener = s;
	s = take_connection(listener);
	if (listener->cold->hints)
		hints_inherit(s, listener);
	s->open = true;
	s->nonblocking = flags & SOCK_NONBLOCK;
	s->close_on_exec = flags & SOCK_CLOEXEC;
	r = address ? address_write(s->family, &s->peer, address, length) : 0;
	if (r) {
		socket_close(s); /* as the kernel does */
		return r;
	}
	return (int)s->id;
}

/* waits: MSG_DONTWAIT or 0. */
static int accept_on(struct stack *st, int number, struct sockaddr *address, socklen_t *length, int flags, int waits)
{
	struct xts_sock *s = table_use(st, number);

	if (!s || flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return s ? -EINVAL : -EBADF;
	return kind_of(s)->accept(s, address, length, flags | waits);
}

int xts_accept4(int number, struct sockaddr *address, socklen_t *length, int flags)
{
	struct stack *st;
	ssize_t r;

	xts_cancellation_point();
	do {
		st = stack_enter_of(number);
		r = accept_on(st, number, address, length, flags, 0);
		if (r == -EAGAIN && channel_catch_up(st))
			r = accept_on(st, number, address, length, flags, MSG_DONTWAIT); /* its time may be over */
	} while (stack_restarts(st, &r));
	return finish_of(number, (int)r);
}

int xts_accept(int number, struct sockaddr *address, socklen_t *length)
{
	return xts_accept4(number, address, length, 0);
}
