/*
 * The frames that come to a queue that repeats lost ones (arq.h): which belong to its session or begin one, which are
 * for the link, and what becomes of the others. arq.c has the theory of operation.
 */
#include "decorators/arq_queue.h"
#include "common/crc32c.h"

static bool is_past(const struct arq_queue *q, uint64_t epoch)
{
	for (uint32_t i = 0; i < ARQ_PAST_EPOCHS; i++)
		if (q->past[i] == epoch)
			return true;
	return false;
}

void arq_take_off(struct xts_rx_frame *frame)
{
	struct iovec *first = &frame->segment[0];
	uint8_t *data = first->iov_base;

	memcpy(data + XTS_ARQ_ADDS, data, XTS_ETH_BYTES);
	first->iov_base = data + XTS_ARQ_ADDS;
	first->iov_len -= XTS_ARQ_ADDS;
	frame->bytes -= XTS_ARQ_ADDS;
}

/* Is the frame what its sender has sent? */
static bool intact(const struct xts_rx_frame *frame, uint32_t checksum)
{
	static const uint8_t zeros[sizeof(uint32_t)];
	const uint8_t *data = frame->segment[0].iov_base;
	const uint32_t behind = ARQ_CHECKSUM_AT + sizeof zeros;
	uint32_t crc = crc32c(0, data + XTS_ETH_BYTES, ARQ_CHECKSUM_AT - XTS_ETH_BYTES);

	crc = crc32c(crc, zeros, sizeof zeros);
	crc = crc32c(crc, data + behind, frame->segment[0].iov_len - behind);
	for (uint32_t i = 1; i < frame->segments; i++)
		crc = crc32c(crc, frame->segment[i].iov_base, frame->segment[i].iov_len);
	return crc == checksum;
}

/* The head of a frame that has one; false: it is not whole. */
static bool read_head(const struct xts_rx_frame *frame, struct xts_arq *head)
{
	if (xts_arq_decode(head, frame->segment[0].iov_base, frame->segment[0].iov_len) || !head->epoch)
		return false;
	if (head->parts & XTS_ARQ_NUMBERED && frame->segment[0].iov_len < XTS_ARQ_ADDS + XTS_HEAD_BYTES)
		return false;
	return intact(frame, head->checksum);
}

/* Sends a short frame without a head; what cannot be sent is lost, as on the wire. */
static void send_plain(struct arq_queue *q, const uint8_t *frame, uint32_t bytes)
{
	struct xts_tx_slot slot;

	if (xts_queue_acquire(q->base.inner, &slot))
		return;
	memcpy(slot.data, frame, bytes);
	xts_queue_submit(q->base.inner, &slot, bytes);
	(void)xts_queue_kick(q->base.inner);
}

/* A host is of the other opinion: it is told, in the form in which it can read it. */
static void refuse(struct arq_queue *q, uint64_t epoch)
{
	uint8_t frame[XTS_HELLO_ACK_BYTES] = { 0 };
	struct xts_hello_ack ack = {
		.version = XTS_WIRE_VERSION,
		.frame_window = q->base.frame_window,
		.largest_message = q->base.largest_message,
		.epoch = epoch,
	};

	q->refused++;
	arq_write_ethernet(q, frame, q->ethertype);
	xts_head_encode(frame, XTS_LINK_HELLO_ACK, XTS_REFUSED_RELIABLE, EOPNOTSUPP, 0);
	xts_hello_ack_encode(frame, &ack);
	send_plain(q, frame, sizeof frame);
}

/* Ends the session: the link above is told, and the peer. */
static void violation(struct arq_queue *q)
{
	struct xts_goodbye goodbye = { .epoch = q->epoch };
	uint8_t frame[XTS_ETH_MIN_BYTES] = { 0 };

	q->violations++;
	arq_write_ethernet(q, frame, q->ethertype);
	xts_head_encode(frame, XTS_LINK_GOODBYE, 0, EPROTO, 0);
	xts_goodbye_encode(frame, &goodbye);
	arq_session_end(q);
	send_plain(q, frame, sizeof frame);
	memcpy(q->goodbye, frame, sizeof frame);
	memcpy(q->goodbye, q->base.local_mac, 6);
	memcpy(q->goodbye + 6, q->base.peer_mac, 6);
	q->goodbye_due = true;
	arq_sync_stats(q);
}

/* The process of a session has died, says its agent. If frames of it are missing they were with it: what has come does
 * not end where the process has ended it, so its connections are reset. */
static void end_of_process(struct arq_queue *q, const struct xts_rx_frame *frame)
{
	uint8_t *error = (uint8_t *)frame->segment[0].iov_base + offsetof(struct xts_wire_head, error);

	if (q->config.role == XTS_ARQ_PROXY && q->open && q->rx.held_count && !xts_get16(error))
		xts_put16(error, ECONNRESET);
}

/* A frame without a head: is it for the link? */
static bool admit_plain(struct arq_queue *q, const struct xts_rx_frame *frame, const struct xts_head *head)
{
	struct xts_hello hello;

	if (head->type == XTS_LINK_GOODBYE)
		end_of_process(q, frame);
	if (q->config.role == XTS_ARQ_PROXY_OFF || head->type == XTS_LINK_GOODBYE ||
	    (q->config.role == XTS_ARQ_PROXY && head->type == XTS_LINK_OVER))
		return true; /* the agent's word */
	if (q->config.role == XTS_ARQ_HOST && head->type == XTS_LINK_HELLO_ACK && head->error && !q->rx.heard_any)
		return true;
	if (q->config.role == XTS_ARQ_PROXY && head->type == XTS_LINK_HELLO &&
	    !xts_hello_decode(&hello, frame->segment[0].iov_base, frame->segment[0].iov_len))
		refuse(q, hello.epoch);
	else
		q->stale++;
	return false;
}

/* Has the frame a session at a proxy? It begins one, if it may. */
static bool in_session(struct arq_queue *q, const struct xts_arq *head)
{
	if (q->open && head->epoch == q->epoch)
		return true;
	if (q->config.role != XTS_ARQ_PROXY || !(head->parts & XTS_ARQ_OPEN) || is_past(q, head->epoch))
		return false;
	arq_session_begin(q, head->epoch);
	return true;
}

static void release_arrived(struct arq_queue *q)
{
	for (; q->tx.released != q->tx.oldest; q->tx.released++)
		xts_queue_release(q->base.inner, &arq_sender_frame(&q->tx, q->tx.released)->slot);
}

bool arq_arrives(struct arq_queue *q, struct xts_rx_frame *frame, const struct xts_arq *head)
{
	enum arq_arrival arrival = arq_receiver_take(&q->rx, head, frame);

	q->early += arrival == ARQ_EARLY;
	q->duplicates += arrival == ARQ_DUPLICATE;
	q->stale += arrival == ARQ_BEYOND;
	if (arrival == ARQ_DUPLICATE || arrival == ARQ_BEYOND)
		xts_queue_recycle(q->base.inner, frame);
	return arrival == ARQ_IN_ORDER;
}

/* A frame of the session. True: its turn has come, and it has lost its head. Else it is not the caller's any more. */
static bool take(struct arq_queue *q, struct xts_rx_frame *frame, const struct xts_arq *head)
{
	arq_receiver_first(&q->rx, head->first);
	if (head->parts & XTS_ARQ_ARRIVED && arq_sender_acknowledged(&q->tx, head)) {
		xts_queue_recycle(q->base.inner, frame);
		violation(q);
		return false;
	}
	release_arrived(q);
	if (q->settling) {
		xts_queue_recycle(q->base.inner, frame);
		return false;
	}
	arq_receiver_heard(&q->rx, head->transmission);
	if (!(head->parts & XTS_ARQ_NUMBERED)) {
		xts_queue_recycle(q->base.inner, frame);
		return false;
	}
	arq_take_off(frame);
	return arq_arrives(q, frame, head);
}

/* A proxy without a session, and a frame of one: it has been restarted. Its link says so, if it sees the frame. */
static bool of_another_proxy(const struct arq_queue *q, struct xts_rx_frame *frame, const struct xts_arq *head)
{
	struct xts_head inner;

	if (q->config.role != XTS_ARQ_PROXY || q->open || q->past_count || !(head->parts & XTS_ARQ_NUMBERED))
		return false;
	arq_take_off(frame);
	if (xts_head_decode(&inner, frame->segment[0].iov_base, frame->segment[0].iov_len))
		return false;
	return inner.type != XTS_LINK_HELLO && inner.type != XTS_LINK_TOKEN;
}

bool arq_admit(struct arq_queue *q, struct xts_rx_frame *frame)
{
	struct xts_head any;
	struct xts_arq head;

	if (xts_head_decode(&any, frame->segment[0].iov_base, frame->segment[0].iov_len))
		return true; /* the link counts it */
	q->ethertype = xts_get16((const uint8_t *)frame->segment[0].iov_base + 12);
	if (any.type != XTS_LINK_ARQ) {
		if (admit_plain(q, frame, &any))
			return true;
	} else if (!read_head(frame, &head)) {
		q->corrupt++;
	} else if (q->config.role == XTS_ARQ_PROXY_OFF) {
		if (head.parts & XTS_ARQ_OPEN)
			refuse(q, head.epoch);
	} else if (in_session(q, &head)) {
		return take(q, frame, &head);
	} else if (of_another_proxy(q, frame, &head)) {
		return true;
	} else {
		q->stale++;
	}
	xts_queue_recycle(q->base.inner, frame);
	return false;
}
