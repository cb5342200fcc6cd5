/*
 * Sending PDUs: a call sends one PDU, or a part of one with MSG_MORE, in as many messages as post credits and the
 * largest message require. Nothing is gathered: two PDUs never share a message.
 *
 * A PDU that has begun is continued: the next call sends first what the last one could not. A blocking call sends all
 * of its part. A non-blocking call sends the whole PDU, or nothing (EAGAIN, as kcm_sendmsg()) if there are not enough
 * credits for all of it. There may never be enough for a PDU of more than half of the peer's window: it is sent in
 * parts, and the call returns how much it has taken. If the PDU's length is known, the later calls end the PDU with its
 * last byte, however many bytes they are given.
 */
#include "core/operation.h"
#include "core/arguments.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/send_probes.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/transfer.h"
#include "link/credit.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "ulps/ktls.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"
#include "xts.h"

#define TLS_RECORD_BYTES 16384u /* limit of a control record; a longer one becomes several, as in the kernel */

/* As by the kernel's TCP: a program may say for any socket what is for datagrams. */
static bool is_passed_over(const struct cmsghdr *c)
{
	switch (c->cmsg_level) {
	case SOL_SOCKET:
		return argument_is_for_unix(c);
	case SOL_XTS:
	case SOL_TLS:
		return false;
	default:
		return true;
	}
}

int control_read(struct control *out, const struct msghdr *message)
{
	struct msghdr m = *message; /* the macros take no const pointer */

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);
		bool keys = c->cmsg_level == SOL_TLS && c->cmsg_type == TLS_SET_RECORD_TYPE && bytes == 1;

		if (c->cmsg_len < CMSG_LEN(0))
			return -EINVAL;
		if (is_passed_over(c))
			continue;
		if (out->type)
			return -EINVAL;
		if (!keys && (c->cmsg_level != SOL_XTS || c->cmsg_type <= 0 ||
			      c->cmsg_type >= (int)XTS_CONTROL_EVENTS || bytes > CONTROL_BYTES))
			return -EINVAL;
		out->type = keys ? XTS_ULP_TLS_KEYS : (uint16_t)c->cmsg_type;
		out->bytes = (uint16_t)bytes;
		memcpy(out->data, CMSG_DATA(c), bytes);
	}
	return 0;
}

/* --- one call ----------------------------------------------------------------------------------------------------- */

struct sending {
	struct operation op;
	struct source *src;
	const struct control *control; /* for the first message */
	size_t goal;                   /* bytes that this call still has to send */
	size_t sent;
	bool continues; /* MSG_MORE: the next call continues the PDU */
};

static uint32_t largest(struct stack *st)
{
	return st->channel->link.largest_message - XTS_SEND_PDU_BYTES;
}

static uint32_t smaller(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

/* The number of credits without which the next message is not sent. */
static uint32_t credits_needed(const struct xts_sock *s, const struct sending *o)
{
	struct stack *st = s->stack;
	uint64_t messages = o->goal / largest(st) + (o->goal % largest(st) != 0), all;
	uint32_t enough = socket_credits_worth_waiting_for(s), least = XTS_PDU_CREDITS + (o->goal != 0);

	if (enough < least)
		enough = least;
	if (o->op.blocking)
		return smaller(enough, smaller(o->goal, largest(st)) + XTS_PDU_CREDITS);
	if (s->cold->ulps.begun)
		return least;
	all = o->goal + (messages ? messages : 1) * XTS_PDU_CREDITS;
	return all <= s->peer_window / 2 ? (uint32_t)all : enough;
}

static void encode(struct xts_sock *s, const struct sending *o, uint8_t *frame, uint32_t bytes, bool more)
{
	struct xts_send_pdu m = { .post_credits = xts_credit_advertise(&s->grant),
				  .length = bytes,
				  .record_bytes = s->cold->ulps.record_bytes };
	uint64_t words[2] = { 0 };

	if (o->control && !s->cold->ulps.begun) {
		m.control_type = o->control->type;
		m.control_bytes = o->control->bytes;
		memcpy(words, o->control->data, sizeof words);
		m.control_high = be64toh(words[0]);
		m.control_low = be64toh(words[1]);
	}
	xts_head_encode(frame, XTS_CMD_SEND_PDU, more ? XTS_FLAG_MORE : 0, 0, s->proxy_id);
	xts_send_pdu_encode(frame, &m);
}

/* Sends one message: 0, or -EAGAIN: wait for credits or for the link. */
static int send_message(struct xts_sock *s, struct sending *o)
{
	struct stack *st = s->stack;
	struct channel *c = st->channel;
	uint32_t needed = credits_needed(s, o), n = smaller(o->goal, largest(st));
	struct xts_tx_slot slot;
	bool more;

	s->cold->ulps.wanted = s->credits < needed ? needed : 0;
	if (s->cold->ulps.wanted) {
		s->no_space = true;
		s->refused_for = XTS_WAIT_POST_CREDITS;
		return -EAGAIN;
	}
	if (!outbox_flush_socket(s) || channel_slot(st, &slot)) {
		socket_wait_for_link(s);
		s->refused_for = XTS_WAIT_FRAME_CREDITS;
		return -EAGAIN;
	}
	n = smaller(n, s->credits - XTS_PDU_CREDITS);
	more = o->continues || n < o->goal;
	if (s->cold->ulps.record_bytes)
		more = s->cold->ulps.sent + n != s->cold->ulps.record_bytes;
	encode(s, o, slot.data, n, more);
	source_take(o->src, slot.data + XTS_SEND_PDU_BYTES, n);
	send_account(s, n + XTS_PDU_CREDITS, n);
	send_taken(s);
	send_queued(s);
	channel_submit(st, &slot, XTS_SEND_PDU_BYTES + n);
	s->cold->ulps.begun = more;
	s->cold->ulps.sent = more ? s->cold->ulps.sent + n : 0;
	o->goal -= n;
	o->sent += n;
	if (c->unkicked >= KICK_FRAMES && o->goal)
		channel_flush(st, true);
	return 0;
}

/* Determines what this call sends: the rest of a PDU that has begun, or a new one. 0 or -errno. */
static int begin(struct xts_sock *s, struct sending *o, int flags)
{
	struct ulps *u = &s->cold->ulps;

	o->goal = o->src->left;
	o->continues = flags & MSG_MORE;
	if (u->begun) {
		if (o->control)
			return -EINVAL; /* too late: control data goes with the first part */
		if (u->record_bytes && o->goal > u->record_bytes - u->sent)
			o->goal = u->record_bytes - u->sent;
		return o->goal > UINT32_MAX - u->sent ? -EMSGSIZE : 0;
	}
	u->sent = 0;
	if (!s->seqpacket) {
		o->goal = smaller(o->goal, TLS_RECORD_BYTES);
		o->continues = false;
	}
	u->record_bytes = o->continues ? 0 : (uint32_t)o->goal;
	return 0;
}

static int why_not(const struct xts_sock *s)
{
	return s->error || (s->shutdown & SEND_SHUTDOWN) ? -EPIPE : 0;
}

/* No other thread is in the middle of a PDU, or pushes a protocol. */
static int turn_step(struct operation *op)
{
	const struct xts_sock *s = op->s;
	int r = why_not(s);

	if (r)
		return r;
	return s->cold->ulps.sending || s->pushing ? STEP_WAITS : STEP_DONE;
}

static int wait_for_turn(struct xts_sock *s, bool blocking, uint64_t deadline_ns)
{
	struct operation op = operation_to_send(s, turn_step, blocking);

	op.deadline_ns = deadline_ns;
	op.purpose = PURPOSE_USE;
	op.pumped = true;
	return operation_run(&op);
}

static int message_step(struct operation *op)
{
	struct sending *o = (struct sending *)op;
	struct xts_sock *s = op->s;
	int r = why_not(s);

	if (!r)
		r = send_message(s, o);
	if (r && r != -EAGAIN)
		return r;
	if (!r && !o->goal)
		return STEP_DONE;
	/* a control record on a stream is sent to its end, since no data may come in between */
	if (!s->seqpacket && s->cold->ulps.begun)
		op->blocking = true;
	if (!r) {
		op->pumped = false;
		return STEP_AGAIN;
	}
	if (op->pumped)
		waits_to_send(s);
	return STEP_WAITS;
}

static bool is_pushed(const struct xts_sock *s, uint16_t ulp_id)
{
	for (unsigned i = 0; i < s->cold->ulps.depth[ULPS_SEND]; i++)
		if (s->cold->ulps.id[ULPS_SEND][i] == ulp_id)
			return true;
	return false;
}

static ssize_t send_pdu(struct xts_sock *s, struct source *src, int flags, const struct control *control, bool blocking,
			uint64_t deadline_ns)
{
	struct sending o = {
		.op = operation_to_send(s, message_step, blocking),
		.src = src,
		.control = control,
	};
	int r = begin(s, &o, flags);

	o.op.purpose = PURPOSE_USE;
	o.op.deadline_ns = s->seqpacket ? deadline_ns : FOREVER;
	if (r || (!o.goal && (o.continues || (s->cold->ulps.begun && s->cold->ulps.record_bytes))))
		return r;
	s->cold->ulps.sending = true;
	r = operation_run(&o.op);
	s->cold->ulps.sending = false;
	wake(s->stack, &s->writers); /* the next thread's turn */
	status_data(s);
	if (s->mirror)
		mirror_dirty(s); /* the send buffer may be full now */
	if (o.sent)
		return (ssize_t)o.sent;
	return r == -EPIPE && s->error ? take_error(s) : r;
}

ssize_t pdu_send(struct xts_sock *s, struct source *src, int flags, const struct control *control)
{
	uint64_t deadline_ns = deadline_after(s->send_timeout_ns);
	bool blocking = !s->nonblocking && !(flags & MSG_DONTWAIT);
	int r = 0;

	channel_pump(s->stack); /* a program that only sends has to see the end of the connection, too */
	if (s->state != TCP_STATE_ESTABLISHED && !turn_is_elsewhere(s))
		r = send_wait_connected(s, blocking, deadline_ns);
	if (!r)
		r = wait_for_turn(s, blocking, deadline_ns);
	if (r)
		return r == -EPIPE && s->error ? take_error(s) : r;
	if (control && !is_pushed(s, control->type))
		return -EINVAL;
	if (!s->seqpacket && (!control || control->type != XTS_ULP_TLS_KEYS))
		return -EINVAL;
	if (s->seqpacket ? !s->cold->ulps.depth[ULPS_SEND] : control->data[0] == TLS_DATA_RECORD)
		return send_all(s, src, flags); /* data of the byte stream */
	return src->faults ? -EFAULT : send_pdu(s, src, flags, control, blocking, deadline_ns);
}
