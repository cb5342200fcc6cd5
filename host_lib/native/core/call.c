/*
 * Requests that have a reply, as listed at struct call. There is one at a time per socket. The proxy answers promptly
 * or is found dead, so these waits end, and a signal does not end them (the kernel does not sleep in these calls).
 *
 * When the proxy's process has died, nobody knows whether a request was carried out. Most are such that it does not
 * matter: its thread sends them to the next process (next_proxy.c), when that has the socket or it was made again.
 */
#include "core/call.h"
#include "core/asked.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/request_encode.h"
#include "core/socket.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "processes/again.h"
#include "processes/take_over.h"
#include "processes/wipe.h"
#include "queues/queue.h"
#include "core/wait.h"
#include "xts.h"

/* The reply to another thread's first request will bring the proxy's identifier; until then this side cannot name the
 * socket. */
int first_request_wait(struct xts_sock *s)
{
	struct stack *st = s->stack;

	while (socket_goes_on(s) && s->opening && !s->lost) {
		int r = wait_for(st, &s->callers, FOREVER, false);

		if (r == -ENOBUFS)
			return r;
	}
	if (!socket_goes_on(s))
		return -EBADF;
	return s->lost || !st->channel ? -ENETDOWN : 0;
}

/* The requests that move a connection between processes. */
static bool is_about_turns(uint8_t type)
{
	return type == XTS_CMD_PARK || type == XTS_CMD_CLAIM || type == XTS_CMD_TAKE;
}

/* What else the socket has to send leaves before a request, unless the proxy does not know it yet: then this is the
 * first of its requests, and the rest waits for the answer. */
static bool is_next(struct xts_sock *s)
{
	bool unknown = !s->proxy_id && s->own.moved == NOT_MOVED && !(s->todo & TODO_CLOSE);

	return unknown || outbox_flush_socket(s);
}

/* Waits for the socket's turn and for a slot: after that nothing may be assumed of what was true before. */
static int call_begin(struct xts_sock *s, uint8_t type, bool makes, struct xts_tx_slot *slot)
{
	struct stack *st = s->stack;
	int r;

	for (;;) {
		/* After a CONNECT the proxy knows the socket by our number (PROTOCOL.md, "Identifiers"): an option must
		 * not wait for the outcome of a connect, which may take minutes. After CANCEL it knows none by it. */
		r = s->opening && s->state == TCP_STATE_SYN_SENT && !s->closing ? 0 : first_request_wait(s);
		if (r || (s->away && !makes) || making_is_cut(s))
			return r ? r : -ENETDOWN;
		if (turn_is_elsewhere(s) && !is_about_turns(type)) {
			r = turn_use(s);
			if (r)
				return r;
			continue;
		}
		if (s->call) {
			r = wait_for(st, &s->callers, FOREVER, false);
			if (r == -ENOBUFS)
				return r;
			continue;
		}
		r = is_next(s) ? channel_slot(st, slot) : -EAGAIN;
		if (r != -EAGAIN)
			return r;
		channel_pump(st);
		if (s->in_use && st->channel && !channel_can_send(st)) {
			r = wait_for(st, &st->frame_waiters, FOREVER, false);
			if (r == -ENOBUFS)
				return r;
		}
		if (!s->in_use)
			return -EBADF;
	}
}

static uint32_t encode(const struct xts_sock *s, const struct call *call, uint8_t *frame)
{
	struct request_fields fields = {
		.xts_socket = s->id,
		.token = call->token,
		.domain = s->family,
		.local = call->local,
		.post_credits = call->post_credits,
		.backlog = call->backlog,
		.level = call->level,
		.option = call->option,
		.request = (uint32_t)call->option,
		.length = call->length,
		.key = call->key,
		.keep_ms = call->keep_ms,
		.unread = call->unread,
		.peer = call->peer,
		.receive_bytes = call->receive_bytes,
		.purpose = call->purpose,
	};
	uint32_t bytes;

	xts_head_encode(frame, call->type, 0, 0, s->proxy_id);
	bytes = request_encode(frame, call->type, &fields);
	wipe(&fields.key, sizeof fields.key);
	memcpy(frame + bytes, call->value, call->length);
	return bytes + call->length;
}

/* Sends a request whose reply is not needed. 0; -EAGAIN if it would have to wait first; -ENETDOWN. */
int call_proxy_unanswered(struct xts_sock *s, struct call *call)
{
	struct stack *st = s->stack;
	struct xts_tx_slot slot;
	int r;

	if (!s->proxy_id || s->opening || s->call || turn_is_elsewhere(s) || !outbox_flush_socket(s))
		return -EAGAIN;
	r = channel_slot(st, &slot);
	if (r)
		return r;
	call->token = 0;
	channel_submit(st, &slot, encode(s, call, slot.data));
	return 0;
}

bool call_may_be_repeated(const struct call *call)
{
	switch (call->type) {
	case XTS_CMD_BIND: /* a socket that is not connected is made again, so it was not carried out */
	case XTS_CMD_LISTEN:
	case XTS_CMD_SETSOCKOPT:
	case XTS_CMD_GETSOCKOPT:
	case XTS_CMD_CONNECT_DATAGRAM:
	case XTS_CMD_SHUT_LISTENER:
		return !call->makes; /* else all of it is asked again */
	case XTS_CMD_IOCTL:
		return !call->makes && !asked_is_push(call->option);
	default:
		return false;
	}
}

void call_goes_again(struct xts_sock *s)
{
	s->call->again = s->call->done = true;
	s->call = NULL;
	wake(s->stack, &s->callers);
}

static int call_once(struct xts_sock *s, struct call *call)
{
	struct stack *st = s->stack;
	struct xts_tx_slot slot;
	int r;

	call->unanswered = true;
	r = call_begin(s, call->type, call->makes, &slot);
	if (r)
		return r;
	call->token = ++st->token;
	call->done = call->again = false;
	call->error = 0;
	channel_submit(st, &slot, encode(s, call, slot.data));
	if (call->type != XTS_CMD_PARK)
		wipe(&call->key, sizeof call->key); /* a parked connection gets its key only if that succeeds */
	if (!s->proxy_id)
		s->opening = true;
	s->call = call;
	socket_asked(s, true);
	while (!call->done) {
		r = wait_for(st, &s->callers, call->deadline_ns ? call->deadline_ns : FOREVER, true);
		if (r == -ENOBUFS || r == -ETIMEDOUT)
			break;
		r = 0;
	}
	if (s->call == call)
		s->call = NULL;
	wake(st, &s->callers); /* the turn of the next caller */
	if (!r && call->makes && making_is_cut(s))
		r = -ENETDOWN; /* by whoever has answered, the socket is gone */
	return r ? r : -call->error;
}

/* What a request would add a second time it has added with the claim, or as the socket was made again. */
static int prepare_again(struct xts_sock *s, struct call *call)
{
	int r = s->claiming ? first_request_wait(s) : 0;

	call->post_credits = 0;
	return r ? r : again_now(s);
}

int call_proxy(struct xts_sock *s, struct call *call)
{
	int r;

	socket_check_held(s);
	r = call_once(s, call);
	while (!r && call->again) {
		r = s->open ? prepare_again(s, call) : -EBADF;
		if (!r)
			r = call_once(s, call);
	}
	return s->open || (s->in_use && is_about_turns(call->type)) ? r : -EBADF;
}
