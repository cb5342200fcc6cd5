/* The error queue of a datagram socket (IP_RECVERR): see datagrams.h. */
#include <stdlib.h>

#include "core/channel.h"
#include "datagrams/datagrams.h"
#include "core/socket.h"
#include "core/stack.h"
#include "common/own_memory.h"
#include "queues/queue.h"
#include "waiting/mirror.h"

static void drop_error(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;
	struct queued_error *e = q->first_error;

	q->first_error = e->next;
	if (!q->first_error)
		q->last_error = NULL;
	xts_release(e);
}

void datagram_drop_errors(struct xts_sock *s)
{
	s->datagrams->coming = NULL;
	while (s->datagrams->first_error)
		drop_error(s);
}

struct queued_error *datagram_first_error(const struct xts_sock *s)
{
	const struct datagrams *q = s->datagrams;

	return q->first_error == q->coming ? NULL : q->first_error;
}

void datagram_drop_error(struct xts_sock *s)
{
	uint32_t credits = s->datagrams->first_error->credits;

	drop_error(s);
	datagram_give_back(s, credits);
	if (s->mirror)
		mirror_dirty(s);
}

bool datagram_begin_error(struct xts_sock *s, const struct xts_datagram *d)
{
	struct datagrams *q = s->datagrams;
	struct queued_error *e = malloc(sizeof *e + d->record.data_bytes);

	if (!e) {
		channel_fail(s->stack, ENOMEM);
		return false;
	}
	e->next = NULL;
	e->about = *d;
	e->credits = xts_datagram_credits(&d->record);
	if (q->last_error)
		q->last_error->next = e;
	else
		q->first_error = e;
	q->last_error = e;
	q->missing = d->record.data_bytes;
	q->coming = q->missing ? e : NULL;
	return true;
}

void datagram_append_to_error(struct datagrams *q, struct xts_datagram_cursor *cursor, uint32_t bytes)
{
	uint8_t *to = q->coming->data + q->coming->about.record.data_bytes - q->missing;
	struct iovec iov[XTS_SEGMENTS_MAX];
	uint32_t count = XTS_SEGMENTS_MAX;

	(void)xts_datagram_data(cursor, bytes, iov, &count);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	q->missing -= bytes;
	if (!q->missing)
		q->coming = NULL;
}
