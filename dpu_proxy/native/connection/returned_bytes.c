/*
 * Bytes of a connection that a host had received and not read, and that it gives back when it parks the connection.
 * They are sent again, before anything that TCP has, to the process that takes the connection over. Until then they are
 * charged to the tenant as kept, together with the memory allocated for them: a message may hold one byte, or an empty
 * PDU.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "connection/unowned.h"
#include "processes/share.h"

#define DROPPED_AT_ONCE 64u /* pieces freed between two reads of the clock */

struct returned_piece {
	struct returned_piece *next;
	struct ulp_mark mark;
	uint32_t at, bytes; /* offset of the next byte of data, and their number */
	uint8_t data[];
};

static uint64_t charge(uint32_t bytes)
{
	return sizeof(struct returned_piece) + bytes;
}

static void append(struct returned *r, struct returned_piece *piece)
{
	piece->next = r->last ? r->last->next : piece;
	if (r->last)
		r->last->next = piece;
	r->last = piece;
}

int returned_add(struct returned *r, struct xts_tenant *t, const struct ulp_mark *mark, const struct iovec *iov,
		 int pieces, uint32_t bytes)
{
	struct returned_piece *made;

	if (!tenant_take(t, XTS_USE_KEPT_BYTES, charge(bytes)))
		return ENOBUFS;
	made = malloc(sizeof *made + bytes);
	if (!made) {
		tenant_give(t, XTS_USE_KEPT_BYTES, charge(bytes));
		return ENOBUFS;
	}
	made->mark = *mark;
	made->at = 0;
	made->bytes = 0;
	for (int i = 0; i < pieces; i++) {
		memcpy(made->data + made->bytes, iov[i].iov_base, iov[i].iov_len);
		made->bytes += (uint32_t)iov[i].iov_len;
	}
	append(r, made);
	return 0;
}

/* --- as records --------------------------------------------------------------------------------------------------- */

_Static_assert(offsetof(struct returned_piece, data) == sizeof(void *) + sizeof(struct ulp_mark) + 2 * sizeof(uint32_t),
	       "all of it is in struct returned_part");

const struct returned_piece *returned_piece_after(const struct returned *r, const struct returned_piece *piece)
{
	return !r->last || piece == r->last ? NULL : piece ? piece->next : r->last->next;
}

void returned_describe(const struct returned_piece *piece, struct returned_part *out)
{
	*out = (struct returned_part){
		.mark = piece->mark,
		.at = piece->at,
		.data = { .data = piece->data, .bytes = piece->bytes },
	};
}

int returned_add_part(struct returned *r, const struct returned_part *part)
{
	struct returned_piece *made = malloc(sizeof *made + part->data.bytes);

	if (!made)
		return -ENOMEM;
	made->mark = part->mark;
	made->at = part->at;
	made->bytes = part->data.bytes;
	if (part->data.bytes)
		memcpy(made->data, part->data.data, part->data.bytes);
	append(r, made);
	return 0;
}

/* --- dropped and read --------------------------------------------------------------------------------------------- */

static void drop_first(struct returned *r, struct xts_tenant *t)
{
	struct returned_piece *first = r->last->next;

	r->last->next = first->next;
	if (first == r->last)
		r->last = NULL;
	if (t)
		tenant_give(t, XTS_USE_KEPT_BYTES, charge(first->bytes));
	free(first);
}

void returned_free(struct returned *r, struct xts_tenant *t)
{
	while (r->last)
		drop_first(r, t);
}

uint64_t returned_charge(const struct returned *r)
{
	uint64_t bytes = 0;

	for (const struct returned_piece *p = returned_piece_after(r, NULL); p; p = returned_piece_after(r, p))
		bytes += charge(p->bytes);
	return bytes;
}

uint64_t returned_bytes(const struct returned *r)
{
	uint64_t bytes = 0;

	for (const struct returned_piece *p = returned_piece_after(r, NULL); p; p = returned_piece_after(r, p))
		bytes += p->bytes - p->at;
	return bytes;
}

void returned_drop(struct returned *r, struct worker_state *w, struct xts_tenant *t)
{
	struct unowned *u = r->last ? unowned_hold(w, t) : NULL;

	if (!u) {
		returned_free(r, t);
		return;
	}
	if (u->dropped.last)
		unowned_release(u);
	returned_join(&u->dropped, r);
}

void returned_drop_some(struct unowned *u, struct worker_state *w)
{
	do {
		for (uint32_t i = 0; i < DROPPED_AT_ONCE && u->dropped.last; i++)
			drop_first(&u->dropped, u->tenant);
	} while (u->dropped.last && !worker_turn_is_over(w));
	if (!u->dropped.last)
		unowned_release(u);
}

void returned_join(struct returned *r, struct returned *behind)
{
	if (r->last && behind->last) {
		struct returned_piece *first = r->last->next;

		r->last->next = behind->last->next;
		behind->last->next = first;
	}
	if (behind->last)
		r->last = behind->last;
	*behind = (struct returned){ 0 };
}

ssize_t returned_read(struct returned *r, struct xts_tenant *t, void *out, uint32_t room, struct ulp_mark *mark)
{
	struct returned_piece *p = r->last->next;
	uint32_t n = p->bytes - p->at < room ? p->bytes - p->at : room;

	*mark = p->mark;
	memcpy(out, p->data + p->at, n);
	p->at += n;
	if (p->at < p->bytes)
		mark->more = mark->pdu;
	else
		drop_first(r, t);
	return (ssize_t)n;
}
