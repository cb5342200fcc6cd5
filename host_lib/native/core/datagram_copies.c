/*
 * RECV_COPIES: datagrams sent to a group, for several sockets of this process, in one message.
 *
 * For each socket the message says which of its records that socket gets: those that the proxy's kernel delivered to
 * it. So each socket gets what it would have received in messages of its own, and its account of post credits is
 * charged for that.
 *
 * The records are read once. The data is copied for each socket, since the frame is recycled when the message has been
 * read.
 */
#include <sys/epoll.h>

#include "core/channel.h"
#include "core/datagram_socket.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/socket.h"
#include "core/stack.h"
#include "queue.h"

/* The records of a message: the header of each, and where its data begins. */
struct records {
	uint32_t count;
	struct xts_datagram about[XTS_COPIES_RECORDS_MAX];
	struct xts_datagram_cursor data[XTS_COPIES_RECORDS_MAX];
};

/* False: their number is wrong, they are incomplete, or they are not datagrams. */
static bool read_records(struct records *r, uint32_t count, struct xts_datagram_cursor *cursor)
{
	for (r->count = 0; r->count < count; r->count++) {
		struct xts_datagram *about = &r->about[r->count];
		uint32_t pieces = XTS_SEGMENTS_MAX;
		struct iovec iov[XTS_SEGMENTS_MAX];

		if (xts_datagram_next(cursor, about) != 1 || about->controls & 1u << XTS_DATAGRAM_ERROR)
			return false;
		r->data[r->count] = *cursor;
		if (xts_datagram_data(cursor, about->record.data_bytes, iov, &pieces) < about->record.data_bytes)
			return false;
	}
	return !cursor->left;
}

/* Reads the next entry of the list of sockets. */
static void read_socket(struct xts_datagram_copy *copy, struct xts_datagram_cursor *list)
{
	uint8_t bytes[XTS_DATAGRAM_COPY_BYTES], *to = bytes;
	uint32_t pieces = XTS_SEGMENTS_MAX;
	struct iovec iov[XTS_SEGMENTS_MAX];

	(void)xts_datagram_data(list, sizeof bytes, iov, &pieces);
	for (uint32_t i = 0; i < pieces; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	(void)xts_datagram_copy_decode(copy, bytes, sizeof bytes);
}

/* False: the channel has ended. */
static bool give(struct stack *st, const struct xts_datagram_copy *copy, const struct records *r)
{
	struct xts_sock *s = message_target(st, copy->xts_socket);

	if (!s || s->closing)
		return true; /* it crossed our CLOSE */
	if (!s->datagrams || s->datagrams->missing || s->datagrams->offer.missing) {
		channel_fail(st, EPROTO);
		return false;
	}
	s->datagrams->dropped = copy->dropped;
	socket_asked(s, false);
	for (uint32_t i = copy->first; i < (uint32_t)copy->first + copy->count; i++) {
		struct xts_datagram about = r->about[i];
		struct xts_datagram_cursor data = r->data[i];

		if (datagram_take_record(s, &about, &data, NULL, 0) < 0)
			return false;
	}
	datagram_changed(s, datagram_first(s) ? EPOLLIN : 0, 0);
	return true;
}

bool message_recv_copies(struct stack *st, const struct xts_head *head, const struct xts_recv_copies *m,
			 struct xts_rx_frame *frame)
{
	uint32_t list_bytes = m->sockets * XTS_DATAGRAM_COPY_BYTES;
	struct xts_datagram_cursor list, cursor;
	struct xts_datagram_copy copy;
	struct records records;

	(void)head;
	if (!(st->channel->link.features & XTS_FEATURE_COPIES) || list_bytes > m->length) {
		channel_fail(st, EPROTO);
		return true;
	}
	xts_datagram_begin(&list, frame, XTS_RECV_COPIES_BYTES, list_bytes);
	xts_datagram_begin(&cursor, frame, XTS_RECV_COPIES_BYTES + list_bytes, m->length - list_bytes);
	if (!read_records(&records, m->records, &cursor)) {
		channel_fail(st, EPROTO);
		return true;
	}
	for (uint32_t i = 0; i < m->sockets; i++) {
		read_socket(&copy, &list);
		if ((uint32_t)copy.first + copy.count > records.count) {
			channel_fail(st, EPROTO);
			return true;
		}
		if (!give(st, &copy, &records))
			return true;
	}
	return false;
}
