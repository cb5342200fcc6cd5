/* Datagrams that were taken from the kernel and wait for room in a message, or for credits (datagram_receive.c). */
#include <stdlib.h>
#include <string.h>

#include "datagrams/datagram_making.h"

void datagram_free_unsent(struct connection *c)
{
	struct datagrams_unsent *u = &c->datagrams->unsent;

	if (!u->bytes)
		return;
	tenant_give(c->tenant, XTS_USE_SOCKET_BYTES, u->room);
	trim_count(&c->worker->trim, &c->worker->timers, c->worker->now_ns, u->room);
	free(u->bytes);
	*u = (struct datagrams_unsent){ 0 };
}

/* Appends room for this many bytes. The buffer doubles when it grows, because growing means copying (mremap(2) is not
 * allowed). NULL: there is no memory. */
static uint8_t *add(struct connection *c, uint32_t count)
{
	struct datagrams_unsent *u = &c->datagrams->unsent;

	if (u->room - u->end < count) {
		uint32_t room = u->end + count > 2 * u->room ? u->end + count : 2 * u->room;
		uint8_t *larger = realloc(u->bytes, room);

		if (!larger)
			return NULL;
		/* this is within the host's credits, and sent soon */
		tenant_take_anyway(c->tenant, XTS_USE_SOCKET_BYTES, room - u->room);
		u->bytes = larger;
		u->room = room;
	}
	u->end += count;
	return u->bytes + u->end - count;
}

bool datagram_keep(struct connection *c, struct xts_datagram *d, const uint8_t *data)
{
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX], *room;
	uint32_t head_bytes = xts_datagram_write(head, sizeof head, d);

	room = add(c, head_bytes + d->record.data_bytes);
	if (!room)
		return false;
	memcpy(room, head, head_bytes);
	memcpy(room + head_bytes, data, d->record.data_bytes);
	return true;
}

bool datagram_keep_rest(struct connection *c, const uint8_t *data, uint32_t bytes)
{
	uint8_t *room = add(c, bytes);

	if (!room)
		return false;
	memcpy(room, data, bytes);
	c->datagrams->unsent.data_left = bytes;
	return true;
}

bool datagram_pay(struct connection *c, const struct xts_datagram *d)
{
	uint32_t credits = xts_datagram_credits(&d->record);

	if (credits > c->held)
		return false;
	c->held -= credits;
	c->datagrams->delivered += credits;
	return true;
}

static void copy(struct making *m, uint32_t bytes)
{
	struct datagrams_unsent *u = &m->c->datagrams->unsent;

	memcpy(m->slot->data + m->at, u->bytes + u->at, bytes);
	m->at += bytes;
	u->at += bytes;
}

bool datagram_make_of_unsent(struct making *m)
{
	struct datagrams_unsent *u = &m->c->datagrams->unsent;

	while (u->at < u->end && !m->more) {
		struct xts_datagram d;
		uint32_t part;

		if (!u->data_left) {
			int head = xts_datagram_read(&d, u->bytes + u->at, u->end - u->at);

			if (head < 0)
				abort(); /* we have written the record ourselves */
			if ((uint32_t)head > m->end - m->at || !datagram_pay(m->c, &d))
				return false;
			copy(m, (uint32_t)head);
			u->data_left = d.record.data_bytes;
			m->datagrams++;
		}
		part = u->data_left < m->end - m->at ? u->data_left : m->end - m->at;
		copy(m, part);
		u->data_left -= part;
		m->more = u->data_left;
	}
	if (u->at < u->end)
		return false;
	datagram_free_unsent(m->c);
	return true;
}
