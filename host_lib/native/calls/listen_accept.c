/*
 * bind(2), listen(2), accept4(2). The proxy accepts connections and announces each with NEWCONN. It gets a socket and
 * an answer before the application accepts it, so that data can arrive. A listener's credit account counts connections.
 */
#include <sys/epoll.h>

#include "calls/datagram_calls.h"
#include "calls/hint.h"
#include "core/address.h"
#include "core/arguments.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "credit.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"
#include "waiting/wait.h"
#include "xts.h"
#include "xts_private.h"

#define BACKLOG_MAX 4096u

static bool is_any(const struct xts_endpoint *endpoint)
{
	static const uint8_t any[sizeof endpoint->address];

	return memcmp(endpoint->address, any, sizeof any) == 0;
}

static int bind_socket(struct xts_sock *s, const struct sockaddr *address, socklen_t length)
{
	struct call call = { .type = XTS_CMD_BIND };
	uint32_t id = s->id;
	int r = address_read(&call.local, s->family, address, length, true);

	if (r)
		return r;
	/* A fault of the address is reported before the fault that it is too late to bind; after a reset it is not too
	 * late. */
	if ((s->state != TCP_STATE_CLOSE || s->phase != PHASE_UNCONNECTED || s->bound) &&
	    (!s->proxy_id || s->closing || !s->stack->channel))
		return -EINVAL;
	r = asked_call(s, &call);
	if (!r && socket_is(s, id)) {
		s->local = call.local;
		s->bound = true;
		s->bound_address = s->bound_address || !is_any(&call.local);
		s->renewed = false;
		status_state(s);
	}
	return r;
}

int xts_bind(int number, const struct sockaddr *address, socklen_t length)
{
	struct stack *st;
	struct xts_sock *s;
	int r;

	st = stack_enter_of(number);
	s = table_open(st, number);
	r = s ? xts_argument_address(address, length) : -EBADF;
	if (!r)
		r = s->datagrams ? datagram_bind(s, address, length) : bind_socket(s, address, length);
	stack_leave(st);
	return finish_of(number, r);
}

/* The kernel lets one connection more wait than the backlog says. */
static int listen_socket(struct xts_sock *s, int backlog)
{
	uint32_t id = s->id, length = backlog < 0 || (uint32_t)backlog > BACKLOG_MAX ? BACKLOG_MAX : (uint32_t)backlog;
	struct call call = { .type = XTS_CMD_LISTEN, .backlog = length };
	bool was_listening = s->state == TCP_STATE_LISTEN;
	uint32_t window = length + 1 < 2 ? 2 : length + 1;
	bool named = s->own.shared; /* its key was registered while it was bound */
	bool sharing = named || (s->cold->sharing.share_at_listen && sharing_possible(s->stack));
	int r;

	if (s->datagrams)
		return -EOPNOTSUPP;
	if (s->phase != PHASE_UNCONNECTED || (s->state != TCP_STATE_CLOSE && !was_listening) ||
	    s->cold->ulps.with_connect)
		return -EINVAL;
	if (s->renewed)
		return -EOPNOTSUPP;
	if (!was_listening) {
		call.post_credits = sharing ? 0 : window;
		/* Listening from now on, since a NEWCONN may come before this thread wakes up. */
		xts_credit_grant_init(&s->grant, window);
		s->state = TCP_STATE_LISTEN;
	} else if (window > s->grant.window && !s->own.shared) {
		call.post_credits = window - s->grant.window;
		s->grant.window += call.post_credits;
		s->grant.outstanding += call.post_credits;
		s->grant.limit = s->grant.window / 4;
	}
	r = call_proxy(s, &call);
	if (!socket_is(s, id))
		return r;
	if (r && !was_listening && s->state == TCP_STATE_LISTEN) {
		s->state = TCP_STATE_CLOSE;
		s->grant.window = 0;
	}
	if (!r) {
		s->cold->backlog = length;
		s->local = call.local;
		s->shutdown = 0;
	}
	if (!r && sharing && !was_listening && share_name(s) && !named && socket_is(s, id) &&
	    s->state == TCP_STATE_LISTEN) {
		xts_credit_grant_init(&s->grant, window); /* a listener that only this process has */
		s->grant.outstanding = 0;
		s->grant.unadvertised = window;
		s->cold->sharing.key = 0;
		outbox_add(s, TODO_ADVERT);
	}
	if (!socket_is(s, id))
		return -EBADF;
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
		r = listen_socket(s, backlog);
	stack_leave(st);
	return finish_of(number, r);
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

static int accept_socket(struct xts_sock *s, struct sockaddr *address, socklen_t *length, int flags)
{
	struct xts_sock *listener;
	struct stack *st = s->stack;
	uint64_t deadline = deadline_after(s->receive_timeout_ns);
	bool first = s->cold->sharing.others_may_have && !s->cold->accept_first && !s->grant.outstanding && !s->away;
	int r;

	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return -EINVAL;
	if (s->datagrams)
		return -EOPNOTSUPP;
	listener_interest(s, true);
	if (!s->cold->accept_first && st->channel)
		channel_pump(st);
	while (!s->cold->accept_first) {
		if (s->error && s->state == TCP_STATE_LISTEN)
			return accept_error(s);
		if (s->lost && s->phase == PHASE_UNCONNECTED)
			return -ENETDOWN;
		if (s->state != TCP_STATE_LISTEN)
			return -EINVAL;
		if (s->nonblocking && !first)
			return -EAGAIN;
		/* No connection could come before this call: one that waits at the proxy will arrive in a moment. */
		r = s->nonblocking ? share_ask(s) : 0;
		if (s->nonblocking)
			deadline = now_ns() + NS_PER_MS;
		first = false;
		if (!r && !s->cold->accept_first)
			r = wait_to_receive(s, deadline, false);
		if (r)
			return r;
	}
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

int xts_accept4(int number, struct sockaddr *address, socklen_t *length, int flags)
{
	struct stack *st;
	struct xts_sock *s;
	ssize_t r;

	xts_cancellation_point();
	do {
		st = stack_enter_of(number);
		s = table_use(st, number);
		r = s ? accept_socket(s, address, length, flags) : -EBADF;
		if (r == -EAGAIN && channel_catch_up(st)) {
			s = table_use(st, number);
			r = s ? accept_socket(s, address, length, flags) : -EBADF;
		}
	} while (stack_restarts(st, &r));
	return finish_of(number, (int)r);
}

int xts_accept(int number, struct sockaddr *address, socklen_t *length)
{
	return xts_accept4(number, address, length, 0);
}
