/* bind(2), connect(2), shutdown(2), getsockname(2), getpeername(2): __inet_stream_connect() and inet_shutdown() of the
 * kernel. */
#include <sys/epoll.h>

#include "core/operation.h"
#include "core/address.h"
#include "core/arguments.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/settings.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "processes/again.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

static bool is_any(const struct xts_endpoint *endpoint)
{
	static const uint8_t any[sizeof endpoint->address];

	return memcmp(endpoint->address, any, sizeof any) == 0;
}

int stream_bind(struct xts_sock *s, const struct sockaddr *address, socklen_t length)
{
	struct call call = { .type = XTS_CMD_BIND };
	int r = address_read(&call.local, s->family, address, length, true);

	if (r)
		return r;
	/* A fault of the address is reported before the fault that it is too late to bind; after a reset it is not too
	 * late. */
	if ((s->state != TCP_STATE_CLOSE || s->phase != PHASE_UNCONNECTED || s->bound) &&
	    (!s->proxy_id || s->closing || !s->stack->channel))
		return -EINVAL;
	r = asked_call(s, &call);
	if (!r) {
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
		r = kind_of(s)->bind(s, address, length);
	stack_leave(st);
	return finish_of(number, r);
}

/* Waits for a transmit slot, and for another thread's first request. The channel may end meanwhile, and the next one be
 * there: then the socket is made again first, as before a call that finds it away. 0, with the slot; or -errno. */
static int slot_for_connect(struct xts_sock *s, struct xts_tx_slot *slot)
{
	struct stack *st = s->stack;
	int r;

	do {
		r = again_now(s);
		if (!r)
			r = first_request_wait(s);
		if (!r && s->call)
			r = wait_for(st, &s->callers, FOREVER, false) == -ENOBUFS ? -ENOBUFS : -EAGAIN;
		else if (!r)
			r = channel_wait_slot(st, slot);
		if (!r && (!s->open || s->away)) {
			xts_queue_abandon(st->channel->queue, slot);
			r = s->open ? -EAGAIN : -EBADF;
		}
	} while (r == -EAGAIN);
	return r;
}

/* Sends CONNECT. */
static int start(struct xts_sock *s, const struct xts_endpoint *peer, const struct connect_pushes *encoded)
{
	struct stack *st = s->stack;
	uint32_t window = st->settings.window_bytes < s->window_max ? st->settings.window_bytes : s->window_max;
	struct xts_connect m = {
		.xts_socket = s->id, .domain = s->family, .peer = *peer, .length = encoded ? encoded->bytes : 0
	};
	struct xts_tx_slot slot;
	int r;

	if (s->renewed)
		/* The socket was bound, or had options set, before it was disconnected: those settings are lost, so the
		 * connect must fail. */
		return -EOPNOTSUPP;
	r = slot_for_connect(s, &slot);
	if (r)
		return r;
	if (s->phase != PHASE_UNCONNECTED || s->state != TCP_STATE_CLOSE || (s->opening && !s->proxy_id)) {
		xts_queue_abandon(st->channel->queue, &slot); /* another thread has sent CONNECT first */
		return -EALREADY;
	}
	if (s->own.shared) { /* processes shared it while it was bound: from here on it is a connection */
		share_forget(s);
		sharers_leave(s);
		s->cold->sharing.key = 0;
	}
	if (m.length)
		connect_pushes_sent(s, encoded);
	m.post_credits = push_window(s, window);
	xts_credit_grant_init(&s->grant, m.post_credits);
	s->consumed = 0;
	s->error = 0;
	s->done = false;
	s->peer = *peer;
	socket_enter(s, TCP_STATE_SYN_SENT, PHASE_CONNECTING);
	s->opening = !s->proxy_id;
	socket_asked(s, true);
	xts_head_encode(slot.data, XTS_CMD_CONNECT, 0, 0, s->proxy_id);
	xts_connect_encode(slot.data, &m);
	if (m.length)
		memcpy(slot.data + XTS_CONNECT_BYTES, encoded->payload, m.length);
	channel_submit(st, &slot, XTS_CONNECT_BYTES + m.length);
	status_state(s);
	mirror_connects(s);
	return 0;
}

/*
 * The attempt, or the connection that it made, failed before the result was fetched: returns the error, once. After
 * that the socket may try again; the next CONNECT resets the proxy's socket.
 */
static int failed(struct xts_sock *s)
{
	int r = take_error(s);

	if (!s->bound_address) /* inet_reset_saddr(): the port stays */
		s->local = (struct xts_endpoint){ .ip_version = s->family, .port = s->local.port };
	socket_unconnected(s);
	if (s->lost && again_keeps(s)) { /* it may try again when there is a proxy */
		s->lost = false;
		again_start(s->stack);
	}
	socket_changed(s, EPOLLERR); /* tcp_disconnect() ends in the same way */
	return r ? r : -ECONNABORTED;
}

static int connect_step(struct operation *op)
{
	return op->s->state == TCP_STATE_SYN_SENT ? STEP_WAITS : STEP_DONE;
}

int stream_connect(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		   const struct connect_pushes *encoded)
{
	struct operation op = operation_to_send(s, connect_step, !s->nonblocking);
	struct xts_endpoint peer;
	int r, again = -EALREADY;

	if (length < sizeof address->sa_family)
		return -EINVAL;
	if (address->sa_family == AF_UNSPEC && kind_of(s)->accepts)
		return kind_of(s)->shutdown(s, SHUT_RD); /* tcp_disconnect() for both */
	if (address->sa_family == AF_UNSPEC)
		return socket_disconnect(s);
	if (s->away) {
		r = again_now(s);
		if (r)
			return r;
	}
	if (s->phase == PHASE_CONNECTED)
		return -EISCONN;
	if (s->phase == PHASE_DISCONNECTING)
		return -EINVAL;
	if (s->phase == PHASE_UNCONNECTED) {
		if (s->state != TCP_STATE_CLOSE)
			return -EISCONN;
		if (s->cold->ulps.with_connect)
			return -EINVAL; /* an earlier attempt has failed: this one might run without the protocols */
		r = address_read(&peer, s->family, address, length, false);
		if (!r)
			r = address_connectable(s, &peer);
		if (!r)
			r = s->lost ? -ENETDOWN : start(s, &peer, encoded);
		if (r)
			return r;
		again = -EINPROGRESS;
	}
	op.deadline_ns = deadline_after(s->send_timeout_ns); /* from the time on when CONNECT has left */
	op.spins = op.pumped = true;
	r = operation_run(&op);
	if (r)
		return r == -EAGAIN ? again : r;
	if (s->state == TCP_STATE_CLOSE)
		return failed(s);
	socket_enter(s, s->state, PHASE_CONNECTED);
	return 0;
}

int connect_socket(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		   const struct connect_pushes *encoded)
{
	int r = xts_argument_address(address, length);

	return r ? r : kind_of(s)->connect(s, address, length, encoded);
}

int xts_connect(int number, const struct sockaddr *address, socklen_t length)
{
	struct stack *st;
	struct xts_sock *s;
	ssize_t r;

	xts_cancellation_point();
	do {
		st = stack_enter_of(number);
		channel_pump(st); /* takes the outcome of the attempt, if it has arrived */
		s = table_use(st, number);
		r = s ? connect_socket(s, address, length, NULL) : -EBADF;
	} while (stack_restarts(st, &r));
	return finish_of(number, (int)r);
}

int xts_is_unconnected(int number)
{
	struct stack *st;
	struct xts_sock *s;
	int r;

	st = stack_enter_of(number);
	channel_pump(st);
	s = table_open(st, number);
	r = s ? s->phase == PHASE_UNCONNECTED && s->state == TCP_STATE_CLOSE : -EBADF;
	stack_leave(st);
	return finish(r);
}

/* Both FINs have been sent: the kernel's socket becomes TCP_CLOSE when the peer acknowledges ours. */
static bool is_over(const struct xts_sock *s)
{
	return s->done && (s->shutdown & SEND_SHUTDOWN);
}

int stream_shutdown(struct xts_sock *s, int how)
{
	uint8_t bits = (uint8_t)(how + 1);
	uint8_t before = s->shutdown;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	/* the result of the connect has not been fetched */
	if (s->phase == PHASE_CONNECTING && s->state != TCP_STATE_SYN_SENT)
		socket_enter(s, s->state, s->state == TCP_STATE_ESTABLISHED ? PHASE_CONNECTED : PHASE_DISCONNECTING);
	if (s->state == TCP_STATE_SYN_SENT)
		return socket_disconnect(s);
	if (s->state == TCP_STATE_CLOSE) {
		s->shutdown |= bits;
		socket_changed(s, STATE_CHANGE);
		return -ENOTCONN;
	}
	if (turn_is_elsewhere(s)) /* table_use() could not take it over */
		return common_shuts_later(s, bits) ? 0 : -EAGAIN;
	if (is_over(s)) {
		socket_changed(s, STATE_CHANGE);
		return -ENOTCONN;
	}
	s->shutdown |= bits;
	common_tell_shutdown(s);
	if ((bits & SEND_SHUTDOWN) && !(before & SEND_SHUTDOWN))
		outbox_add(s, TODO_FIN);
	status_state(s);
	socket_changed(s, STATE_CHANGE); /* even if nothing has changed, as in the kernel */
	return 0;
}

int stream_peer(const struct xts_sock *s, struct sockaddr *address, socklen_t *length)
{
	if (s->state != TCP_STATE_ESTABLISHED || is_over(s))
		return -ENOTCONN;
	return xts_argument_result(address, length);
}

/* Enters the stack of the socket and handles frames that have arrived: the socket may be connected by now, or have
 * ended. */
static struct stack *enter_pumped(int number)
{
	struct stack *st = stack_enter_of(number);

	channel_pump(st);
	return st;
}

int xts_shutdown(int number, int how)
{
	struct stack *st = enter_pumped(number);
	struct xts_sock *s = table_use(st, number);
	int r = s ? kind_of(s)->shutdown(s, how) : -EBADF;

	stack_leave(st);
	return finish_of(number, r);
}

int xts_getsockname(int number, struct sockaddr *address, socklen_t *length)
{
	struct stack *st = enter_pumped(number);
	struct xts_sock *s = table_open(st, number);
	int r = s ? xts_argument_result(address, length) : -EBADF;

	if (!r)
		r = address_write(s->family, &s->local, address, length);

	stack_leave(st);
	return finish_of(number, r);
}

int xts_getpeername(int number, struct sockaddr *address, socklen_t *length)
{
	struct stack *st = enter_pumped(number);
	struct xts_sock *s = table_open(st, number);
	int r = s ? kind_of(s)->peer(s, address, length) : -EBADF;

	if (!r)
		r = address_write(s->family, &s->peer, address, length);
	stack_leave(st);
	return finish_of(number, r);
}
