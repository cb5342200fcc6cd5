/*
 * xts_register_recv_callback(): the program is asked about each datagram before it is queued.
 *
 * A datagram is put together in memory of its own, with its address and control data, so that the program sees it in
 * one piece, and may keep it as it is. The memory is used again unless the program has kept it; it is not much larger
 * than what lies in it, so that what is held is bounded by the credits that it has taken.
 *
 * The program is asked with the stack's lock held: it is in the middle of taking a message. A call that would wait for
 * that lock would wait for ever, so it ends the program with a sentence (stack_lock()).
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls/datagram_calls.h"
#include "core/address.h"
#include "core/buffer.h"
#include "core/channel.h"
#include "core/datagram_socket.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/transfer.h"
#include "credit.h"
#include "queue.h"

#define CONTROL_ROOM 320u
#define LEAST_BYTES 256u /* of data that there is room for */

struct offered {
	struct xts_packet packet; /* first: the program gives this back */
	struct sockaddr_storage address;
	uint32_t credits; /* that it has taken */
	uint32_t room;    /* for data */
	_Alignas(struct cmsghdr) uint8_t control[CONTROL_ROOM];
	uint8_t data[];
};

static _Thread_local const struct stack *asking;

bool datagram_is_asking(const struct stack *st)
{
	return asking == st;
}

/* Memory for so many bytes of data: that of the one before if it fits. */
static struct offered *make(struct offer *o, uint32_t bytes)
{
	uint32_t room = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;

	if (o->offered && o->offered->room >= bytes && o->offered->room <= 2 * room)
		return o->offered;
	free(o->offered);
	o->offered = malloc(sizeof *o->offered + room);
	if (o->offered)
		o->offered->room = room;
	return o->offered;
}

static enum xts_packet_verdict ask(struct xts_sock *s)
{
	struct offer *o = &s->datagrams->offer;
	struct offered *p = o->offered;
	struct about about = { .control = p->control, .room = sizeof p->control };
	const struct xts_datagram *d = &o->about;
	enum xts_packet_verdict verdict;

	if (!o->callback)
		return XTS_PACKET_RECV; /* it was taken away meanwhile */
	datagram_controls_of(s, d, s->datagrams->dropped, &about);
	p->packet = (struct xts_packet){
		.data = p->data,
		.bytes = d->record.data_bytes,
		.segment_bytes = d->record.segment_bytes,
		.address = (const struct sockaddr *)&p->address,
		.stamp_ns = datagram_stamp_of(s, d),
		.control = p->control,
		.control_bytes = about.used,
		.s = (int)s->id,
	};
	p->packet.address_bytes = address_bytes(s->family, &d->record.endpoint, &p->address, sizeof p->address);
	asking = s->stack;
	verdict = o->callback(&p->packet, o->context);
	asking = NULL;
	return verdict;
}

/* It has come whole. False: the channel has ended. */
static bool decide(struct xts_sock *s)
{
	struct offer *o = &s->datagrams->offer;
	struct iovec data = { o->offered->data, o->about.record.data_bytes };

	switch (ask(s)) {
	case XTS_PACKET_HOLD:
		o->offered = NULL;
		return true;
	case XTS_PACKET_RECV:
		if (!datagram_enqueue(s, &o->about, o->about.record.control_bytes))
			return false;
		if (!data.iov_len || buffer_append_copy(s, &data, 1))
			return true;
		channel_fail(s->stack, ENOMEM);
		return false;
	default:
		datagram_give_back(s, o->offered->credits);
		return true;
	}
}

bool datagram_offer_rest(struct xts_sock *s, struct xts_datagram_cursor *cursor)
{
	struct offer *o = &s->datagrams->offer;
	uint32_t bytes = o->missing < cursor->left ? o->missing : cursor->left, count = XTS_SEGMENTS_MAX;
	uint8_t *to = o->offered->data + o->about.record.data_bytes - o->missing;
	struct iovec iov[XTS_SEGMENTS_MAX];

	(void)xts_datagram_data(cursor, bytes, iov, &count);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	o->missing -= bytes;
	s->received_bytes += bytes;
	s->stack->received_bytes += bytes;
	return o->missing || decide(s);
}

bool datagram_offer(struct xts_sock *s, const struct xts_datagram *d, struct xts_datagram_cursor *cursor)
{
	struct offer *o = &s->datagrams->offer;

	if (!make(o, d->record.data_bytes)) {
		channel_fail(s->stack, ENOMEM);
		return false;
	}
	o->about = *d;
	o->missing = d->record.data_bytes;
	o->offered->credits = xts_datagram_credits(&d->record);
	return datagram_offer_rest(s, cursor);
}

void datagram_offer_end(struct xts_sock *s)
{
	free(s->datagrams->offer.offered);
	s->datagrams->offer.offered = NULL;
}

/* --- the program's calls ------------------------------------------------------------------------------------------ */

int xts_register_recv_callback(int number, xts_recv_callback callback, void *context)
{
	struct stack *st = stack_enter_of(number);
	struct xts_sock *s = table_use(st, number);
	int r = !s ? -EBADF : !s->datagrams ? -EOPNOTSUPP : 0;

	if (!r) {
		s->datagrams->offer.callback = callback;
		s->datagrams->offer.context = context;
	}
	stack_leave(st);
	return finish_of(number, r);
}

static void give_back(struct stack *st, struct offered *p)
{
	struct xts_sock *s = table_open(st, p->packet.s);

	if (s && s->datagrams)
		datagram_give_back(s, p->credits);
	free(p);
}

void xts_packet_free(const struct xts_packet *packet)
{
	struct offered *p = (struct offered *)(uintptr_t)packet; /* its first member */
	struct stack *st;

	if (!p)
		return;
	st = table_stack(p->packet.s);
	if (asking && (!st || st == asking)) { /* in a callback, which has the lock */
		give_back((struct stack *)(uintptr_t)asking, p);
		return;
	}
	st = stack_enter_of(p->packet.s);
	give_back(st, p);
	stack_leave(st);
}
