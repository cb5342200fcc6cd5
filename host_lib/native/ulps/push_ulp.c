/*
 * Pushing protocols onto a socket, and peek mode (PROTOCOL.md, "Pushed protocols").
 *
 * A push is a request to the proxy. A receive push names the position up to which the application has read. The bytes
 * received beyond it go back to the proxy when the answer comes (push_answered, in whichever thread handles it). They
 * go before anything else is sent for this socket: giving them back is the first item of the socket's todo. During a
 * push no thread reads, since the position must not move, and no thread sends, since it would be undefined which
 * protocol the data is for.
 */
#include <sys/epoll.h>

#include "core/received_data.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/operation.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "processes/again.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "core/wait.h"
#include "xts.h"

#define PUSH_HEAD_BYTES 8u
#define PUSH_SEQPACKET 1u /* a flag */
#define AGAIN_NS (10 * NS_PER_MS)

static bool is_receive(uint32_t request)
{
	return request != SIOC_PUSH_ULP_TX;
}

static bool is_send(uint32_t request)
{
	return request != SIOC_PUSH_ULP_RX;
}

/* Has anything been written to its struct ulps? That is asked of its bytes, since writing zeros to memory that is zero
 * would make a page exist. */
static bool is_used(const struct xts_sock *s)
{
	static const uint8_t zeros[sizeof(struct ulps)];
	const void *bytes = &s->cold->ulps;

	return memcmp(bytes, zeros, sizeof zeros) != 0;
}

void push_forget(struct xts_sock *s)
{
	if (is_used(s))
		memset(&s->cold->ulps, 0, sizeof s->cold->ulps);
	fault_forget(s);
}

uint32_t push_window(const struct xts_sock *s, uint32_t window)
{
	bool pushed = s->cold->ulps.depth[ULPS_RECEIVE] || s->cold->ulps.depth[ULPS_SEND];

	return pushed && window < XTS_ULP_WINDOW_MIN ? XTS_ULP_WINDOW_MIN : window;
}

void push_inherit(struct xts_sock *s, const struct xts_sock *listener)
{
	struct ulps *u = &s->cold->ulps;
	const struct ulps *from = &listener->cold->ulps;

	if (!is_used(listener))
		return;
	memcpy(u->id, from->id, sizeof u->id);
	memcpy(u->depth, from->depth, sizeof u->depth);
	u->peeking = from->peeking;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void note(struct xts_sock *s, unsigned direction, uint16_t ulp_id)
{
	struct ulps *u = &s->cold->ulps;

	/* Pushing TLS_KEYS again only changes the keys. */
	if ((ulp_id == XTS_ULP_TLS_KEYS && socket_ulp(s, direction) == ulp_id) || u->depth[direction] == ULP_DEPTH)
		return;
	u->id[direction][u->depth[direction]++] = (uint8_t)ulp_id;
}

/* The end of the stream comes after bytes that will be read again, so it has to be reported again. */
static void unend(struct xts_sock *s)
{
	if (!s->done)
		return;
	s->done = false;
	s->shutdown &= (uint8_t)~RCV_SHUTDOWN;
}

/* The unread bytes no longer belong to this protocol: begins to give them back. */
static void begin_giving_back(struct xts_sock *s)
{
	unend(s);
	if (s->cold->pdu_first) {
		xts_credit_free(&s->grant, pdu_credits(s));
		pdu_drop(s);
	}
	s->received_bytes -= s->unread;
	s->stack->received_bytes -= s->unread;
	if (s->unread)
		outbox_add(s, TODO_GIVE_BACK);
}

/* All bytes received in peek mode become void, read or not. */
static void void_peeked(struct xts_sock *s)
{
	unend(s);
	xts_credit_free(&s->grant, xts_credit_buffered(&s->grant));
	buffer_drop(s);
	s->received_bytes = s->read_bytes = 0;
	s->cold->ulps.peeking = false;
	if (xts_credit_due(&s->grant))
		outbox_add(s, TODO_ADVERT);
}

void push_note(struct xts_sock *s, uint32_t request, uint16_t ulp_id)
{
	s->optioned = true; /* if the socket is disconnected, it must not connect again without the protocol */
	s->renewed = false;
	if (is_receive(request))
		note(s, ULPS_RECEIVE, ulp_id);
	if (is_send(request))
		note(s, ULPS_SEND, ulp_id);
}

static void pushed(struct xts_sock *s, const struct call *call)
{
	bool established = s->state == TCP_STATE_ESTABLISHED;

	push_note(s, (uint32_t)call->option, call->ulp_id);
	if (established && call->length && call->value[0])
		s->cold->ulps.handshaking = true;
	if (established && is_receive((uint32_t)call->option) && !s->cold->ulps.peeking)
		begin_giving_back(s);
}

static void push_answered(struct xts_sock *s, const struct call *call)
{
	switch ((uint32_t)call->option) {
	case SIOC_PUSH_ULP_RX:
	case SIOC_PUSH_ULP_TX:
	case SIOC_PUSH_ULP:
		pushed(s, call);
		break;
	case SIOC_PEEK_MODE:
		s->cold->ulps.peeking = true;
		break;
	case SIOC_END_PEEK_MODE:
		if (s->state == TCP_STATE_ESTABLISHED)
			void_peeked(s);
		break;
	default: /* for another thread */
		break;
	}
}

int push_give_back(struct xts_sock *s)
{
	struct stack *st = s->stack;

	while (s->unread) {
		uint32_t largest = st->channel->link.largest_message - XTS_GIVE_BACK_BYTES;
		struct xts_give_back m = { .length = s->unread < largest ? s->unread : largest };
		struct xts_tx_slot slot;
		struct iovec out = { .iov_len = m.length };
		int r = channel_slot(st, &slot);

		if (r)
			return r;
		out.iov_base = slot.data + XTS_GIVE_BACK_BYTES;
		xts_head_encode(slot.data, XTS_CMD_GIVE_BACK, 0, 0, s->proxy_id);
		xts_give_back_encode(slot.data, &m);
		buffer_copy(s, 0, &out, 0, m.length);
		buffer_consume(s, m.length);
		xts_credit_free(&s->grant, m.length);
		channel_submit(st, &slot, XTS_GIVE_BACK_BYTES + m.length);
	}
	s->todo &= (uint8_t)~TODO_GIVE_BACK;
	if (xts_credit_due(&s->grant))
		s->todo |= TODO_ADVERT;
	wake(st, &s->callers);
	return 0;
}

/* --- the request -------------------------------------------------------------------------------------------------- */

/* Can the push be requested now? 0 or -errno. */
static int check(struct xts_sock *s)
{
	struct stack *st = s->stack;
	int r = turn_use(s);

	if (r)
		return r;
	r = again_now(s);
	if (r)
		return r;
	if (st->channel && !(st->channel->link.features & XTS_FEATURE_ULP))
		return -ENOPROTOOPT;
	if (s->state == TCP_STATE_SYN_SENT)
		/* allowed before or after connecting; during it, the bytes that it applies to would be undefined */
		return -EALREADY;
	if (s->state == TCP_STATE_CLOSE && (s->phase == PHASE_CONNECTED || s->shutdown || s->cold->ulps.with_connect))
		return -ENOTCONN;
	return s->cold->ulps.begun ? -EBUSY : 0;
}

/* Waits until only this thread may push. 0 or -errno. */
static int begin(struct xts_sock *s)
{
	struct stack *st = s->stack;
	int r;

	channel_pump(st);
	/* a push says how much was read, which is counted again from a claim on */
	while ((s->pushing || s->cold->ulps.sending || (st->channel && move_is_between(&st->channel->move))) && !s->lost) {
		r = socket_wait(s, &s->callers, now_ns() + AGAIN_NS, false);
		if (r == -EBADF || r == -ENOBUFS)
			return r;
	}
	r = check(s);
	if (!r)
		s->pushing = true;
	return r;
}

/* Waits until everything to be given back has left; then other threads may read and send again. */
static int end(struct xts_sock *s, int r)
{
	struct stack *st = s->stack;

	while ((s->todo & TODO_GIVE_BACK) && st->channel) {
		channel_flush(st, true);
		if (s->todo & TODO_GIVE_BACK && wait_for(st, &s->callers, FOREVER, false) == -ENOBUFS)
			channel_pump(st);
	}
	s->pushing = false;
	wake(st, &s->callers);
	status_data(s);
	status_ulps(s);
	socket_changed(s, socket_events(s));
	return r || s->open ? r : -EBADF;
}

/* Asks the proxy. The attributes of a push are already in call->value. 0 or -errno. */
static int ask(struct xts_sock *s, struct call *call)
{
	int r = begin(s);

	if (r)
		return r;
	if (call->ulp_id) {
		xts_put32(call->value, (uint32_t)(s->read_bytes % XTS_CREDITS_MAX));
		xts_put16(call->value + 4, s->seqpacket ? PUSH_SEQPACKET : 0);
		xts_put16(call->value + 6, call->ulp_id);
		if (s->state == TCP_STATE_ESTABLISHED && s->grant.window < XTS_ULP_WINDOW_MIN) {
			xts_credit_grow(&s->grant, XTS_ULP_WINDOW_MIN - s->grant.window);
			outbox_add(s, TODO_ADVERT);
		}
	}
	call->answered = push_answered;
	r = asked_call(s, call);
	return end(s, r);
}

/* The proxy has not yet sent all data that is to leave without the protocol. 0: the request may be repeated; -errno. */
static int wait_until_sent(struct xts_sock *s, uint64_t deadline)
{
	uint64_t soon = now_ns() + AGAIN_NS;
	int r;

	if (s->nonblocking || soon > deadline)
		return -EAGAIN;
	/* Returned credits would show it, but the last ones are returned only once they reach a quarter of the
	 * window. */
	r = wait_to_send(s, soon, false);
	return r == -EAGAIN ? 0 : r;
}

int socket_push(struct xts_sock *s, uint32_t request, uint16_t ulp_id, const uint8_t *attributes, uint32_t bytes)
{
	uint64_t deadline = deadline_after(s->send_timeout_ns);
	int r;

	if (!ulp_id || bytes > OPTION_BYTES_MAX - PUSH_HEAD_BYTES)
		return -EINVAL;
	fault_forget(s);
	do {
		struct call call = { .type = XTS_CMD_IOCTL,
				     .option = (int32_t)request,
				     .ulp_id = ulp_id,
				     .length = PUSH_HEAD_BYTES + bytes };

		if (bytes)
			memcpy(call.value + PUSH_HEAD_BYTES, attributes, bytes);
		r = ask(s, &call);
		explicit_bzero(&call, sizeof call); /* the attributes may contain keys */
		if (r != -EAGAIN)
			return r;
		r = wait_until_sent(s, deadline);
	} while (!r);
	return r;
}

/* --- ioctl -------------------------------------------------------------------------------------------------------- */

static int peek_mode(struct xts_sock *s, int on)
{
	struct call call = { .type = XTS_CMD_IOCTL, .option = SIOC_PEEK_MODE, .length = 1, .value = { 1 } };

	if (on != 1)
		return -EINVAL; /* only SIOC_END_PEEK_MODE ends it */
	return ask(s, &call);
}

static int end_peek_mode(struct xts_sock *s, uint32_t drop_bytes)
{
	struct call call = { .type = XTS_CMD_IOCTL, .option = SIOC_END_PEEK_MODE, .length = sizeof drop_bytes };

	if (!s->cold->ulps.peeking) {
		last_error_note(EINVAL, "the socket is not in peek mode: begin it before connecting or listening");
		return -EINVAL;
	}
	xts_put32(call.value, drop_bytes);
	return ask(s, &call);
}

int push_ioctl(struct xts_sock *s, unsigned long request, const void *argument)
{
	struct ulp_info info;
	uint32_t value;

	if (!argument)
		return -EFAULT;
	if (request == SIOC_PEEK_MODE || request == SIOC_END_PEEK_MODE) {
		memcpy(&value, argument, sizeof value);
		return request == SIOC_PEEK_MODE ? peek_mode(s, (int)value) : end_peek_mode(s, value);
	}
	memcpy(&info, argument, sizeof info);
	if (info.ulp_bytes > XTS_ULP_INFO_BYTES_MAX)
		return -EINVAL;
	return socket_push(s, (uint32_t)request, info.ulp_id, ((const struct ulp_info *)argument)->ulp_parameters,
			   info.ulp_bytes);
}

/* --- the handshake ------------------------------------------------------------------------------------------------ */

static int handshake_step(struct operation *op)
{
	const struct xts_sock *s = op->s;

	return s->state == TCP_STATE_SYN_SENT || s->cold->ulps.handshaking ? STEP_WAITS : STEP_DONE;
}

static int handshake(struct xts_sock *s)
{
	struct operation op = operation_to_send(s, handshake_step, !s->nonblocking);
	int r;

	op.spins = true;
	r = operation_run(&op);
	if (r)
		return r;
	if (s->error)
		return take_error(s);
	return s->state == TCP_STATE_ESTABLISHED && !turn_is_elsewhere(s) ? 0 : -ENOTCONN;
}

int xts_ulp_handshake(int number)
{
	struct stack *st;
	struct xts_sock *s;
	ssize_t r;

	do {
		st = stack_enter_of(number);
		s = table_use(st, number);
		r = s ? handshake(s) : -EBADF;
	} while (stack_restarts(st, &r));
	return finish_of(number, (int)r);
}
