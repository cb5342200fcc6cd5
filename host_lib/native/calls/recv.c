/*
 * Receiving: tcp_recvmsg() of the kernel, over the pieces that received_data.c keeps. Bytes that have been read return
 * to the proxy as post credits, with the next message or, when they reach a quarter of the window, in a message of
 * their own. The window doubles when the application has read a whole window, has kept up (little was waiting), and the
 * proxy had used most of it. If the socket has PDUs, pdu_recv.c decides what is available.
 */
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "core/operation.h"
#include "core/arguments.h"
#include "core/received_data.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/transfer.h"
#include "processes/take_over.h"
#include "ulps/ktls.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "xts.h"
#include "xts_private.h"

/* Copies available data into the caller's buffers from byte done on. MSG_TRUNC: drops it without copying. Bytes or
 * -EFAULT. */
static int64_t take(struct xts_sock *s, const struct sink *to, size_t done, int flags)
{
	uint32_t skip = flags & MSG_PEEK ? (uint32_t)done : 0, n;
	size_t bytes = to->bytes - done;

	if (s->unread <= skip)
		return 0;
	n = s->unread - skip < bytes ? s->unread - skip : (uint32_t)bytes;
	if (!(flags & MSG_TRUNC) && n > to->usable - done)
		return -EFAULT;
	if (!(flags & MSG_TRUNC))
		n = (uint32_t)buffer_copy(s, skip, to->iov, done, n);
	if (!(flags & MSG_PEEK))
		recv_consume(s, n, 0);
	return n;
}

/* One call. */
struct receiving {
	struct operation op;
	const struct sink *to;
	struct about *about;
	int flags;
	size_t target, done; /* bytes to receive before the call ends, if it may wait; bytes received */
};

/* Nothing is available (any more). */
static int at_end(const struct receiving *o)
{
	struct xts_sock *s = o->op.s;

	if (s->pushing && !s->error && s->state == TCP_STATE_ESTABLISHED)
		return STEP_WAITS; /* another protocol will read later data */
	if (o->done)
		return s->error || s->state == TCP_STATE_CLOSE || (s->shutdown & RCV_SHUTDOWN) || !o->op.blocking ?
			       STEP_DONE :
			       STEP_WAITS;
	if (s->done)
		return s->cold->end_error ? -(int)s->cold->end_error : STEP_DONE;
	if (s->error)
		return take_error(s);
	if (s->cold->ulps.keys_expired)
		return -EKEYEXPIRED;
	if (s->shutdown & RCV_SHUTDOWN)
		return STEP_DONE;
	return s->state == TCP_STATE_CLOSE ? -ENOTCONN : STEP_WAITS;
}

/* Another process may have used the connection in the middle of the call. True: MSG_WAITALL still waits for the rest of
 * the stream. */
static bool follows(const struct xts_sock *s, int flags)
{
	return flags & MSG_WAITALL && !(flags & MSG_PEEK) && !s->cold->ulps.depth[ULPS_RECEIVE];
}

static int recv_step(struct operation *op)
{
	struct receiving *o = (struct receiving *)op;
	struct xts_sock *s = op->s;
	int64_t n;
	int r;

	if (s->cold->pdu_first || s->pushing) {
		r = pdu_recv(s, o->to, &o->done, o->flags, o->about);
		if (r)
			return r < 0 ? r : STEP_DONE;
	} else {
		if (!o->to->bytes && s->unread)
			return STEP_DONE;
		n = take(s, o->to, o->done, o->flags);
		if (n < 0)
			return (int)n;
		o->done += (size_t)n;
		if (o->to->bytes && o->done >= o->target)
			return STEP_DONE;
	}
	op->stays = o->done && !follows(s, o->flags);
	return op->pumped ? at_end(o) : STEP_WAITS;
}

/* tcp_inq_hint(): what is left, or 1 if only the end is. */
static void tell_inq(const struct xts_sock *s, struct about *about)
{
	const int left = s->unread ? (int)s->unread : s->done;

	about_put(about, IPPROTO_TCP, TCP_CM_INQ, &left, sizeof left);
}

/* A wait without room for a byte has ended with r. tcp_recvmsg() returns 0 then, whatever ended it: data, its time or a
 * signal. */
static ssize_t without_room(const struct receiving *o, int r)
{
	if (o->to->bytes || !o->op.blocking || (r != -EAGAIN && r != -EINTR && r != -ERESTART))
		return r;
	return o->op.s->cold->pdu_first || o->op.s->pushing ? r : 0;
}

static ssize_t recv_all(struct xts_sock *s, const struct sink *to, int flags, struct about *about)
{
	size_t target = flags & MSG_WAITALL ? to->bytes : s->receive_lowat;
	struct receiving o = {
		.op = operation_to_receive(s, recv_step, !s->nonblocking && !(flags & MSG_DONTWAIT)),
		.to = to,
		.about = about,
		.flags = flags,
		.target = target < to->bytes ? target : to->bytes,
	};
	int r;

	o.op.purpose = PURPOSE_RECEIVE;
	o.op.spins = true;
	if (flags & MSG_PEEK && s->unread < to->bytes)
		channel_pump(s->stack); /* a repeated peek expects to see more */
	r = operation_run(&o.op);
	if (r)
		return o.done ? (ssize_t)o.done : without_room(&o, r);
	status_data(s);
	if (__builtin_expect(s->cold->tells_inq, 0) && about)
		tell_inq(s, about);
	return (ssize_t)o.done;
}

/* Reports application data of TLS on a stream socket, where net/tls of the kernel returns the record type too. */
static void tell_data(struct about *about)
{
	const uint8_t type = TLS_DATA_RECORD;

	if (!about->used)
		about_put(about, SOL_TLS, TLS_GET_RECORD_TYPE, &type, sizeof type);
}

ssize_t stream_recv(struct xts_sock *s, const struct sink *to, int flags, struct about *about, bool *keys)
{
	if (flags & MSG_ERRQUEUE)
		return -EAGAIN; /* the error queue of a stream socket is always empty */
	if (flags & MSG_OOB)
		return -EINVAL; /* there is no urgent data */
	*keys = about && !s->seqpacket && socket_ulp(s, ULPS_RECEIVE) == XTS_ULP_TLS_KEYS;
	if (about)
		about_no_name(about); /* a stream socket returns no address */
	return recv_all(s, to, flags, about);
}

static ssize_t recv_on(struct stack *st, int number, const struct sink *to, int flags, struct about *about, bool *keys)
{
	struct xts_sock *s = table_use_for(st, number, PURPOSE_NOBODY);

	return s ? kind_of(s)->recv(s, to, flags, about, keys) : -EBADF;
}

void about_no_name(struct about *about)
{
	about->name_length = 0;
	about->name_is_bad = false;
}

static void about_name(struct about *about, void *name, socklen_t length)
{
	about->name_is_bad = argument_is_bad(name, length);
	about->name = about->name_is_bad ? NULL : name;
	about->name_length = about->name ? length : 0;
}

int sink_of(struct sink *out, const struct iovec *iov, size_t count)
{
	struct span span;
	int r = argument_pieces(&span, iov, count);

	*out = (struct sink){ .iov = iov, .bytes = span.bytes, .usable = span.usable };
	return r;
}

static ssize_t recv_call(int number, const struct iovec *iov, size_t count, int flags, struct about *about)
{
	struct stack *st;
	bool keys = false;
	struct sink to;
	ssize_t r = sink_of(&to, iov, count);

	if (r)
		return finish((int)r);
	xts_cancellation_point();
	do {
		st = stack_enter_of(number);
		r = recv_on(st, number, &to, flags, about, &keys);
		if (r == -EAGAIN && channel_catch_up(st))
			r = recv_on(st, number, &to, flags | MSG_DONTWAIT, about, &keys); /* its time may be over */
	} while (stack_restarts(st, &r));
	if (keys && r > 0)
		tell_data(about);
	if (r >= 0)
		return r;
	return finish_of(number, (int)r);
}

ssize_t xts_recv(int number, void *data, size_t bytes, int flags)
{
	struct iovec iov = { .iov_base = data, .iov_len = argument_bytes(bytes) };

	return recv_call(number, &iov, 1, flags, NULL);
}

ssize_t xts_recvfrom(int number, void *data, size_t bytes, int flags, struct sockaddr *address, socklen_t *length)
{
	struct iovec iov = { .iov_base = data, .iov_len = argument_bytes(bytes) };
	struct about about = { 0 };
	int fault = address ? argument_room(length) : 0;
	ssize_t r;

	if (address && !fault)
		about_name(&about, address, *length);
	r = recv_call(number, &iov, 1, flags, &about);
	if (r < 0 || !address)
		return r;
	if (!fault && about.name_is_bad)
		fault = -EFAULT;
	if (fault)
		return finish_of(number, fault); /* what was received is lost, as in the kernel */
	*length = about.name_length;
	return r;
}

int about_message(struct about *out, const struct msghdr *message)
{
	int r = argument_message(message);

	*out = (struct about){ 0 };
	if (r)
		return r;
	if (message->msg_name)
		about_name(out, message->msg_name, message->msg_namelen);
	out->control = message->msg_control;
	if (!argument_is_bad(message->msg_control, message->msg_controllen))
		out->room = message->msg_control ? message->msg_controllen : 0;
	return 0;
}

ssize_t about_return(const struct about *about, struct msghdr *message, ssize_t received)
{
	if (about->name_is_bad)
		return -EFAULT; /* what was received is lost, as in the kernel */
	if (message->msg_name)
		message->msg_namelen = about->name_length;
	message->msg_controllen = about->used;
	message->msg_flags = about->flags;
	return received;
}

ssize_t xts_recvmsg(int number, struct msghdr *message, int flags)
{
	struct about about;
	ssize_t r = flags & FLAGS_OF_KERNEL ? -EINVAL : about_message(&about, message);

	if (r)
		return finish((int)r);
	r = recv_call(number, message->msg_iov, message->msg_iovlen, flags, &about);
	if (r < 0)
		return r;
	r = about_return(&about, message, r);
	return r < 0 ? finish_of(number, (int)r) : r;
}
