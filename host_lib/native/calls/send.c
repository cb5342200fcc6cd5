/*
 * Sending. Data is copied once, from the caller into transmit slots, in parts as large as post credits and the largest
 * message allow. The peer's doorbell is rung once at the end, or every few frames of a long call. A blocking sender
 * with more to send waits for a quarter of the window rather than send many small frames. While no frame can leave (the
 * link has no frame credits), small data is gathered in the socket's pending buffer. It leaves as one message with the
 * first credit, whatever the application does meanwhile.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/operation.h"
#include "core/arguments.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/reason.h"
#include "core/send_probes.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/transfer.h"
#include "link/credit.h"
#include "common/probe.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"
#include "xts.h"
#include "xts_private.h"

/*
 * Gathers small data while no frame can leave. Returns the bytes taken, or 0. What is small goes as a whole: several
 * threads may write their lines to one socket, and the kernel seldom parts one.
 */
static uint32_t gather(struct xts_sock *s, struct source *src)
{
	struct channel *c = s->stack->channel;
	uint32_t most = c->link.largest_message - XTS_SEND_BYTES, room;
	uint32_t n = src->left < s->credits ? (uint32_t)src->left : s->credits;
	bool whole = src->left <= PENDING_SMALL && src->left <= most;

	if (!s->pending) {
		if (src->left > PENDING_SMALL || c->pending_bytes + PENDING_MAX > PENDING_CHANNEL_MAX)
			return 0;
		s->pending = malloc(PENDING_MAX);
		if (!s->pending)
			return 0;
		s->pending_capacity = PENDING_MAX;
		s->pending_bytes = 0;
		c->pending_bytes += PENDING_MAX;
	}
	room = s->pending_capacity - s->pending_bytes;
	if (room > most - s->pending_bytes)
		room = most - s->pending_bytes;
	if (n > room)
		n = whole ? 0 : room;
	if (!n)
		return 0;
	source_take(src, s->pending + s->pending_bytes, n);
	s->pending_bytes += n;
	send_account(s, n, n);
	send_taken(s);
	outbox_add(s, TODO_DATA);
	return n;
}

/* Sends one message. Returns the bytes taken, or -EAGAIN: wait for post credits, frame credits or a slot. */
static long send_some(struct xts_sock *s, struct source *src, bool blocking, int flags)
{
	struct stack *st = s->stack;
	struct channel *c = st->channel;
	uint32_t largest = c->link.largest_message - XTS_SEND_BYTES;
	uint32_t n = src->left < largest ? (uint32_t)src->left : largest;
	struct xts_send m;
	struct xts_tx_slot slot;

	if (s->credits < n) {
		uint32_t enough = socket_credits_worth_waiting_for(s);

		if (!s->credits || (blocking && s->credits < (enough < n ? enough : n))) {
			s->no_space = true;
			s->refused_for = XTS_WAIT_POST_CREDITS;
			return -EAGAIN;
		}
		n = s->credits;
	}
	if (!outbox_flush_socket(s) || channel_slot(st, &slot)) {
		n = st->channel == c ? gather(s, src) : 0;
		if (n)
			return n;
		socket_wait_for_link(s);
		s->refused_for = XTS_WAIT_FRAME_CREDITS;
		return -EAGAIN;
	}
	m.post_credits = xts_credit_advertise(&s->grant);
	m.length = n;
	xts_head_encode(slot.data, XTS_CMD_SEND, flags & MSG_MORE ? XTS_FLAG_MORE : 0, 0, s->proxy_id);
	xts_send_encode(slot.data, &m);
	source_take(src, slot.data + XTS_SEND_BYTES, n);
	send_account(s, n, n);
	send_taken(s);
	send_queued(s);
	channel_submit(st, &slot, XTS_SEND_BYTES + n);
	if (c->unkicked >= KICK_FRAMES && src->left)
		channel_flush(st, true);
	return n;
}

/* sk_stream_wait_connect(): 0, or the error for which nothing is sent. */
static int connected_step(struct operation *op)
{
	struct xts_sock *s = op->s;
	int r = take_error(s);

	if (r)
		return r;
	if (s->state == TCP_STATE_ESTABLISHED)
		return STEP_DONE;
	if (s->state != TCP_STATE_SYN_SENT)
		return s->own.why_gone == XTS_REASON_ELSEWHERE ? -ENOTCONN : -EPIPE;
	return STEP_WAITS;
}

int send_wait_connected(struct xts_sock *s, bool blocking, uint64_t deadline_ns)
{
	struct operation op = operation_to_send(s, connected_step, blocking);

	op.deadline_ns = deadline_ns;
	op.spins = op.pumped = true;
	return operation_run(&op);
}

/* One call. */
struct sending {
	struct operation op;
	struct source *src;
	int flags;
	size_t sent;
};

static int send_step(struct operation *op)
{
	struct sending *o = (struct sending *)op;
	struct xts_sock *s = op->s;
	long n;

	if (s->error || (s->shutdown & SEND_SHUTDOWN))
		return -EPIPE;
	if (o->src->faults)
		return -EFAULT;
	if (!o->src->left)
		return STEP_DONE;
	n = s->pushing || s->cold->ulps.sending ? 0 : send_some(s, o->src, op->blocking, o->flags);
	if (n > 0) {
		o->sent += (size_t)n;
		op->pumped = false;
		return STEP_AGAIN;
	}
	if (op->pumped)
		waits_to_send(s);
	return STEP_WAITS;
}

/* tcp_sendmsg(): sends all if it may block, else what fits. Bytes or -errno. */
ssize_t send_all(struct xts_sock *s, struct source *src, int flags)
{
	struct sending o = {
		.op = operation_to_send(s, send_step, !s->nonblocking && !(flags & MSG_DONTWAIT)),
		.src = src,
		.flags = flags,
	};
	int r = 0;

	o.op.purpose = PURPOSE_USE;
	channel_pump(s->stack); /* a program that only sends has to see the end of the connection, too */
	if (s->state != TCP_STATE_ESTABLISHED && !turn_is_elsewhere(s))
		r = send_wait_connected(s, o.op.blocking, o.op.deadline_ns);
	if (!r)
		r = operation_run(&o.op);
	status_data(s);
	if (s->mirror)
		mirror_dirty(s); /* the send buffer may be full now */
	if (o.sent)
		return (ssize_t)o.sent;
	return r == -EPIPE && s->error ? take_error(s) : r;
}

ssize_t stream_send(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message)
{
	struct control control = { 0 };

	/* of a socket without a connection the kernel looks at nothing else */
	if (s->state == TCP_STATE_CLOSE && !turn_is_elsewhere(s))
		return send_all(s, src, flags);
	if (message && message->msg_controllen &&
	    (!xts_argument_controls_are_whole(message) || control_read(&control, message)))
		return -EINVAL;
	if (flags & MSG_FASTOPEN)
		return s->state == TCP_STATE_ESTABLISHED ? -EISCONN : -EOPNOTSUPP;
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (s->seqpacket || control.type)
		return pdu_send(s, src, flags, control.type ? &control : NULL);
	return send_all(s, src, flags);
}

int source_of(struct source *out, const struct iovec *iov, size_t count)
{
	struct span span;
	int r = argument_pieces(&span, iov, count);

	*out = (struct source){ .iov = iov, .left = span.bytes, .faults = span.usable < span.bytes };
	return r;
}

static ssize_t send_call(int number, const struct iovec *iov, size_t count, int flags, const struct msghdr *message)
{
	bool raises = false;
	struct source src;
	struct stack *st;
	struct xts_sock *s;
	ssize_t r = source_of(&src, iov, count);

	if (r)
		return finish((int)r);
	xts_cancellation_point();
	XTS_PROBE2(send_call, number, src.left);
	do {
		st = stack_enter_of(number);
		s = table_use_for(st, number, PURPOSE_NOBODY);
		raises = s && kind_of(s)->raises_sigpipe;
		r = s ? kind_of(s)->send(s, &src, flags, message) : -EBADF;
		if (r == -EAGAIN && channel_catch_up(st)) {
			s = table_use_for(st, number, PURPOSE_NOBODY);
			/* its time may be over */
			r = s ? kind_of(s)->send(s, &src, flags | MSG_DONTWAIT, message) : -EBADF;
		}
	} while (stack_restarts(st, &r)); /* only if nothing has been sent */
	if (r >= 0)
		return r;
	if (r == -EPIPE && raises && !(flags & MSG_NOSIGNAL))
		pthread_kill(pthread_self(), SIGPIPE);
	return finish_of(number, (int)r);
}

ssize_t xts_send(int number, const void *data, size_t bytes, int flags)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = argument_bytes(bytes) };

	return send_call(number, &iov, 1, flags, NULL);
}

/* The address is ignored on a stream socket, as in the kernel. */
ssize_t xts_sendto(int number, const void *data, size_t bytes, int flags, const struct sockaddr *address,
		   socklen_t length)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = argument_bytes(bytes) };
	/* an address of no bytes is too short here, where for sendmsg() it is none */
	const struct msghdr message = { .msg_name = (void *)address, .msg_namelen = length ? length : 1 };

	if (address && length > sizeof(struct sockaddr_storage))
		return finish(-EINVAL);
	if (address && argument_is_bad(address, length))
		return finish(-EFAULT);
	return send_call(number, &iov, 1, flags, address ? &message : NULL);
}

ssize_t xts_sendmsg(int number, const struct msghdr *message, int flags)
{
	int r = flags & FLAGS_OF_KERNEL ? -EINVAL : xts_argument_outgoing(message);

	if (r)
		return finish(r);
	return send_call(number, message->msg_iov, message->msg_iovlen, flags, message);
}
