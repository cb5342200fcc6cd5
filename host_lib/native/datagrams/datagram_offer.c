/*
 * Datagrams that a callback decides about: see core/receive_callback.h.
 *
 * For a callback in C, a datagram is assembled in memory of its own, with its address and control data, so that the
 * program sees it in one piece and may keep it. The memory is used again unless the program has kept it. It is not much
 * larger than its content, so that the memory of packets that the program holds is bounded by their credits.
 */
#include <stdlib.h>

#include "datagrams/datagram_calls.h"
#include "core/received_data.h"
#include "core/channel.h"
#include "datagrams/datagrams.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/transfer.h"
#include "common/own_memory.h"
#include "queues/queue.h"

#define LEAST_BYTES 256u /* the least room for data */

/* Memory for this many bytes of data: that of the last datagram, if it fits. */
static struct offered *make(struct offer *o, uint32_t bytes)
{
	uint32_t room = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;

	if (o->offered && o->offered->room >= bytes && o->offered->room <= 2 * room)
		return o->offered;
	free(o->offered);
	o->offered = offered_make(room);
	return o->offered;
}

/* Fills everything except the data. */
static void describe(struct xts_sock *s, struct offered *p, const struct xts_datagram *d, uint32_t dropped)
{
	struct about about = { .control = p->control, .room = sizeof p->control };

	datagram_controls_of(s, d, dropped, &about);
	p->packet = (struct xts_packet){
		.data = p->data,
		.bytes = d->record.data_bytes,
		.segment_bytes = d->record.segment_bytes,
		.stamp_ns = datagram_stamp_of(s, d),
		.control = p->control,
		.control_bytes = about.used,
	};
	offered_address(s, p, &d->record.endpoint);
}

/* The datagram is complete: asks the callback. False: the channel has ended. */
static bool decide(struct xts_sock *s)
{
	struct offer *o = &s->datagrams->offer;
	struct iovec data = { o->offered->data, o->about.record.data_bytes };

	describe(s, o->offered, &o->about, s->datagrams->dropped);
	switch (callback_ask(s, o->offered)) {
	case XTS_PACKET_HOLD:
		callback_hold(s, o->offered);
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
	xts_release(s->datagrams->offer.offered);
	s->datagrams->offer.offered = NULL;
}

struct offered *datagram_offered(struct xts_sock *s)
{
	const struct received_datagram *first = s->datagrams->first;
	struct offered *p = offered_make(first->data_bytes);
	struct xts_datagram d;
	struct iovec data;

	if (!p)
		return NULL;
	datagram_read_controls(s, &d);
	describe(s, p, &d, first->dropped);
	data = (struct iovec){ p->data, first->data_bytes };
	if (data.iov_len)
		buffer_copy(s, first->control_bytes, &data, 0, data.iov_len);
	return p;
}
