/*
 * Sending datagrams: udp_sendmsg() of the kernel. Errors that this host can detect are returned at once: addresses,
 * lengths, the socket's state. Errors that the device detects become the pending error of a later call.
 *
 * A datagram is sent whole or not at all. It needs post credits for all its bytes, and for its beginning a frame, or
 * room in the message that is being built (datagram_outbox.c). The other messages of a long datagram follow at
 * once. If no frame is left for them, they are copied, and leave before anything else of the socket. So no thread ever
 * waits in the middle of a datagram.
 */
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>

#include "datagrams/datagram_calls.h"
#include "core/address.h"
#include "core/arguments.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "datagrams/datagrams.h"
#include "core/operation.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/transfer.h"
#include "processes/again.h"
#include "queues/queue.h"
#include "waiting/mirror.h"
#include "xts.h"

#define UDP_BYTES_MAX_V4 65507u      /* 65,535 with the headers of IPv4 and UDP */
#define UDP_BYTES_MAX_V6 65527u      /* 65,535 with the header of UDP */
#define SEGMENTS_OF_A_TRAIN_MAX 128u /* UDP_MAX_SEGMENTS */

/* --- the datagram to send ----------------------------------------------------------------------------------------- */

/* Determines the destination: 0 or -errno. */
static int read_destination(const struct xts_sock *s, struct xts_endpoint *to, const struct msghdr *message)
{
	socklen_t length = message ? message->msg_namelen : 0;
	const struct sockaddr *address = length ? message->msg_name : NULL;
	struct sockaddr_in v4;
	int r;

	if (length > sizeof(struct sockaddr_storage))
		length = sizeof(struct sockaddr_storage);
	if (!address || (s->family == 6 && length >= sizeof address->sa_family && address->sa_family == AF_UNSPEC))
		return s->datagrams->connected ? 0 : -EDESTADDRREQ;
	if (s->family == 4 && argument_forgets_family(&v4, address, length)) {
		address = (const struct sockaddr *)&v4;
		length = sizeof v4;
	}
	r = address_read_peer(to, s, address, length);
	if (r == -EAFNOSUPPORT && s->family == 6)
		r = -EINVAL; /* the errno of udpv6_sendmsg() */
	if (r)
		return r;
	if (!to->port)
		return -EINVAL;
	return address_is_broadcast(to) && !s->datagrams->broadcast ? -EACCES : 0;
}

static uint32_t longest(const struct xts_sock *s, const struct xts_endpoint *to)
{
	return address_is_v4(to->ip_version ? to : &s->peer) ? UDP_BYTES_MAX_V4 : UDP_BYTES_MAX_V6;
}

/* Sets the number of data bytes of the record. 0 or -errno. */
static int set_length(const struct xts_sock *s, struct xts_datagram *d, size_t bytes)
{
	uint32_t segment = d->record.segment_bytes;

	if (bytes > longest(s, &d->record.endpoint))
		return -EMSGSIZE;
	if (segment && bytes > (size_t)segment * SEGMENTS_OF_A_TRAIN_MAX)
		return -EINVAL;
	d->record.data_bytes = (uint16_t)bytes;
	return 0;
}

/* Fills *d. 0 or -errno. */
static int prepare(struct xts_sock *s, struct xts_datagram *d, size_t bytes, int flags, const struct msghdr *message)
{
	int r;

	if (bytes > UINT16_MAX)
		return -EMSGSIZE;
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	*d = (struct xts_datagram){ .record.segment_bytes = s->datagrams->segment_bytes };
	r = read_destination(s, &d->record.endpoint, message);
	if (!r && message && message->msg_controllen)
		r = xts_argument_controls_are_whole(message) ? datagram_controls_read(s, d, message) : -EINVAL;
	if (!r)
		r = set_length(s, d, bytes);
	xts_datagram_size_controls(d);
	return r;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Keeps the rest of a datagram until there are frames for it. Without memory a part of a datagram is lost, so the
 * channel ends. */
static void keep(struct xts_sock *s, struct source *src)
{
	struct channel *c = s->stack->channel;
	uint32_t bytes = (uint32_t)src->left;

	s->pending = malloc(bytes);
	if (!s->pending) {
		channel_fail(s->stack, ENOMEM);
		return;
	}
	s->pending_bytes = s->pending_capacity = bytes;
	c->pending_bytes += bytes;
	source_take(src, s->pending, bytes);
	s->datagrams->rest = true;
	outbox_add(s, TODO_DATA);
}

/* Sends the messages after the first. */
static void send_rest(struct xts_sock *s, struct source *src)
{
	struct stack *st = s->stack;
	struct channel *c = st->channel;
	uint32_t largest = c->link.largest_message - XTS_SEND_DATAGRAMS_BYTES;
	struct xts_tx_slot slot;

	while (src->left) {
		struct xts_send_datagrams m = { .length = src->left < largest ? (uint32_t)src->left : largest };

		if (channel_slot(st, &slot)) {
			keep(s, src);
			return;
		}
		xts_head_encode(slot.data, XTS_CMD_SEND_DATAGRAMS, m.length < src->left ? XTS_FLAG_MORE : 0, 0,
				s->proxy_id);
		xts_send_datagrams_encode(slot.data, &m);
		source_take(src, slot.data + XTS_SEND_DATAGRAMS_BYTES, m.length);
		channel_submit(st, &slot, XTS_SEND_DATAGRAMS_BYTES + m.length);
		if (c->unkicked >= KICK_FRAMES)
			channel_flush(st, true);
		if (st->channel != c)
			return;
	}
}

/* Sends a datagram that takes more than one message: the first one in the slot, then the others. */
static void send_long(struct xts_sock *s, struct xts_datagram *d, struct source *src, const struct xts_tx_slot *slot)
{
	struct stack *st = s->stack;
	uint32_t room = st->channel->link.largest_message - XTS_SEND_DATAGRAMS_BYTES, bytes;
	struct xts_send_datagrams m = { .post_credits = datagram_advertise(s), .length = room };

	bytes = xts_datagram_write(slot->data + XTS_SEND_DATAGRAMS_BYTES, room, d);
	source_take(src, slot->data + XTS_SEND_DATAGRAMS_BYTES + bytes, room - bytes);
	xts_head_encode(slot->data, XTS_CMD_SEND_DATAGRAMS, XTS_FLAG_MORE, 0, s->proxy_id);
	xts_send_datagrams_encode(slot->data, &m);
	channel_submit(st, slot, XTS_SEND_DATAGRAMS_BYTES + m.length);
	send_rest(s, src);
}

/* 0, or -EAGAIN: wait for credits or for the link. */
static int send_one(struct xts_sock *s, struct xts_datagram *d, struct source *src)
{
	struct stack *st = s->stack;
	struct channel *c = st->channel;
	uint32_t credits = xts_datagram_credits(&d->record), bytes = d->record.data_bytes;
	uint32_t head_bytes = XTS_DATAGRAM_RECORD_BYTES + d->record.control_bytes, record_bytes = head_bytes + bytes;
	struct xts_tx_slot slot;
	uint8_t *room;

	if (s->credits < credits) {
		s->datagrams->wanted = credits;
		s->no_space = true;
		s->refused_for = XTS_WAIT_POST_CREDITS;
		return -EAGAIN;
	}
	room = datagram_message_join(s, record_bytes);
	if (!room && (!outbox_flush_socket(s) || channel_slot(st, &slot))) {
		room = datagram_gather(s, record_bytes);
		if (!room) {
			socket_wait_for_link(s);
			s->refused_for = XTS_WAIT_FRAME_CREDITS;
			return -EAGAIN;
		}
	} else if (!room && record_bytes <= c->link.largest_message - XTS_SEND_DATAGRAMS_BYTES) {
		room = datagram_message_begin(s, &slot, record_bytes);
	}
	s->datagrams->wanted = 0;
	send_account(s, credits, bytes);
	if (!room) {
		send_long(s, d, src, &slot);
		return 0;
	}
	xts_datagram_write(room, head_bytes, d);
	source_take(src, room + head_bytes, bytes);
	if (datagram_message_is_full(c))
		channel_flush(st, true);
	return 0;
}

static bool may_wait(const struct xts_sock *s, int flags)
{
	return !s->nonblocking && !(flags & MSG_DONTWAIT);
}

/* A socket that is away is made again first, if there is a way to the proxy (again.c). Who may not wait tries again
 * when it is writable: the progress thread makes it. */
static int come_back(struct xts_sock *s, int flags)
{
	if (!s->away)
		return 0;
	if (may_wait(s, flags))
		return again_now(s);
	return s->stack->channel ? -EAGAIN : -ENETDOWN;
}

/* sock_alloc_send_pskb(): 0, or the error for which nothing is sent. */
static int why_not(struct xts_sock *s, int flags)
{
	int r = take_error(s);

	if (!r)
		r = come_back(s, flags);
	if (r)
		return r;
	if (s->lost)
		return -ENETDOWN;
	if (s->shutdown & SEND_SHUTDOWN)
		return -EPIPE;
	r = -s->datagrams->send_error;
	s->datagrams->send_error = 0;
	return r;
}

/* One datagram. */
struct sending {
	struct operation op;
	struct xts_datagram *d;
	struct source *src;
	int flags;
};

static int send_step(struct operation *op)
{
	struct sending *o = (struct sending *)op;
	int r = why_not(op->s, o->flags);

	if (!r)
		r = send_one(op->s, o->d, o->src);
	if (r != -EAGAIN)
		return r ? r : STEP_DONE;
	if (op->pumped)
		waits_to_send(op->s);
	return STEP_WAITS;
}

static int send_or_wait(struct xts_sock *s, struct xts_datagram *d, struct source *src, int flags)
{
	struct sending o = {
		.op = operation_to_send(s, send_step, may_wait(s, flags)),
		.d = d,
		.src = src,
		.flags = flags,
	};

	if (d->record.data_bytes <= d->record.segment_bytes)
		d->record.segment_bytes = 0; /* one datagram */
	return operation_run(&o.op);
}

/* Makes the proxy's socket, with a port: inet_autobind(). The address of a bind() without a port stays when connect()
 * to AF_UNSPEC releases the port. */
static int need_port(struct xts_sock *s)
{
	const struct xts_endpoint any = { .ip_version = s->family };
	struct call call = { .type = XTS_CMD_BIND, .local = s->local.ip_version ? s->local : any };
	int r;

	if (s->local.port || s->lost || s->away)
		return 0;
	r = datagram_open(s, &call.local, NULL);
	if (r != DATAGRAM_IS_OPEN || s->local.port)
		return r == DATAGRAM_IS_OPEN ? 0 : r;
	r = call_proxy(s, &call);
	if (r == -EBADF)
		return r;
	if (!r)
		s->local = call.local;
	return r == -EINVAL && s->local.port ? 0 : r; /* another thread has bound it first */
}

/* --- one datagram from several calls ------------------------------------------------------------------------------ */

static int cork_drop(struct xts_sock *s, int error)
{
	free(s->datagrams->cork.data);
	s->datagrams->cork.data = NULL;
	return error;
}

/* udp_push_pending_frames(): a datagram that cannot be sent is lost, as in the kernel. 0 or -errno. */
static int cork_push(struct xts_sock *s, int flags)
{
	struct cork *cork = &s->datagrams->cork;
	struct iovec iov = { .iov_base = cork->data, .iov_len = cork->bytes };
	struct source src = { .iov = &iov, .left = cork->bytes };
	struct xts_datagram d = cork->about;
	int r;

	cork->data = NULL; /* another thread may begin the next meanwhile */
	r = need_port(s);
	if (!r)
		r = send_or_wait(s, &d, &src, flags);
	free(iov.iov_base);
	if (r == -ERESTART)
		r = -EINTR; /* the data is gone, so the call cannot be made again */
	return r;
}

int datagram_uncork(struct xts_sock *s)
{
	return s->datagrams->cork.data ? cork_push(s, 0) : 0;
}

/* Appends to the pending datagram, or begins one. Bytes or -errno. */
static ssize_t cork_send(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message)
{
	struct cork *cork = &s->datagrams->cork;
	size_t bytes = src->left;
	int r;

	if (bytes > UINT16_MAX)
		return -EMSGSIZE; /* what is pending stays: udp_sendmsg() looks at the length first */
	if (!cork->data) {
		r = prepare(s, &cork->about, bytes, flags, message);
		if (!r)
			r = why_not(s, flags);
		if (r)
			return r;
		cork->data = malloc(CORK_BYTES);
		if (!cork->data)
			return -ENOBUFS;
		cork->bytes = 0;
	}
	r = set_length(s, &cork->about, cork->bytes + bytes);
	if (!r && src->faults)
		r = -EFAULT;
	if (r)
		return cork_drop(s, r);
	source_take(src, cork->data + cork->bytes, bytes);
	cork->bytes += (uint32_t)bytes;
	r = cork->on || flags & MSG_MORE ? 0 : cork_push(s, flags);
	return r ? r : (ssize_t)bytes;
}

/* Bytes or -errno. The socket may be closed when it returns. */
static ssize_t send_message(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message)
{
	size_t bytes = src->left;
	struct xts_datagram d;
	int r;

	if (__builtin_expect(s->datagrams->cork.on || s->datagrams->cork.data || flags & MSG_MORE, 0))
		return cork_send(s, src, flags, message);
	r = prepare(s, &d, bytes, flags, message);
	if (!r)
		r = need_port(s);
	if (!r && src->faults)
		r = -EFAULT;
	if (!r)
		r = send_or_wait(s, &d, src, flags);
	return r ? r : (ssize_t)bytes;
}

static void has_sent(struct xts_sock *s)
{
	status_data(s);
	if (s->mirror)
		mirror_dirty(s); /* the send buffer may be full now */
}

ssize_t datagram_send(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message)
{
	ssize_t r;

	channel_pump(s->stack); /* a program that only sends has to see errors, too */
	r = send_message(s, src, flags, message);
	has_sent(s);
	return r;
}

int datagram_send_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags)
{
	struct source src;
	unsigned sent = 0;
	ssize_t r = 0;

	channel_pump(s->stack);
	while (sent < count) {
		struct mmsghdr *m = &messages[sent];

		r = xts_argument_outgoing(&m->msg_hdr);
		if (!r)
			r = source_of(&src, m->msg_hdr.msg_iov, m->msg_hdr.msg_iovlen);
		if (!r)
			r = send_message(s, &src, flags, &m->msg_hdr);
		if (r < 0)
			break;
		m->msg_len = (unsigned)r;
		sent++;
	}
	has_sent(s);
	return sent ? (int)sent : (int)r;
}
