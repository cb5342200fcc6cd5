/* The members of a TCP side that are streams and lists, and what has to be true of one that was read (record.h). Memory
 * made here is not charged to a tenant: whoever reads a record charges for what it holds. */
#include "connection/tcp_record.h"
#include "connection/socket_is.h"

#include "connection/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* --- the spill buffer --------------------------------------------------------------------------------------------- */

static uint32_t spill_bytes(const void *member)
{
	return ((const struct spill *)member)->bytes;
}

static void spill_copy(const void *member, uint8_t *out)
{
	spill_read(member, out);
}

static int spill_fill(void *member, const uint8_t *data, uint32_t bytes)
{
	struct iovec all = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };

	*(struct spill *)member = (struct spill){ 0 };
	return bytes ? spill_append(member, &all, 1, 0) : 0;
}

static void spill_drop_all(void *member)
{
	spill_free(member);
}

const struct xts_record_stream spill_stream = { spill_bytes, spill_copy, spill_fill, spill_drop_all };

/* --- runs --------------------------------------------------------------------------------------------------------- */

static bool runs_next(const void *member, uintptr_t *at, void *element)
{
	const struct runs *runs = *(struct runs *const *)member;

	if (!runs || *at >= runs->count)
		return false;
	memcpy(element, runs_at(runs, (uint32_t)(*at)++), sizeof(struct run));
	return true;
}

static void runs_begin(void *member)
{
	*(struct runs **)member = NULL;
}

static int runs_add(void *member, const void *element)
{
	struct runs **runs = member;

	if (runs_make_room(runs, 1))
		return -ENOMEM;
	runs_append(*runs, element);
	return 0;
}

static void runs_drop(void *member)
{
	free(*(struct runs **)member);
	runs_begin(member);
}

const struct xts_record_list runs_list = { runs_next, runs_begin, runs_add, runs_drop };

/* --- what was given back ------------------------------------------------------------------------------------------ */

static bool returned_next(const void *member, uintptr_t *at, void *element)
{
	const struct returned_piece *piece = returned_piece_after(member, (const struct returned_piece *)*at);

	if (!piece)
		return false;
	*at = (uintptr_t)piece;
	returned_describe(piece, element);
	return true;
}

static void returned_begin(void *member)
{
	*(struct returned *)member = (struct returned){ 0 };
}

static int returned_append(void *member, const void *element)
{
	return returned_add_part(member, element);
}

static void returned_drop_all(void *member)
{
	returned_free(member, NULL);
}

const struct xts_record_list returned_list = { returned_next, returned_begin, returned_append, returned_drop_all };

/* --- what has to be true ------------------------------------------------------------------------------------------ */

int returned_part_check(const void *made)
{
	const struct returned_part *part = made;

	return part->at > part->data.bytes || (part->at && part->at == part->data.bytes) ? -EBADMSG : 0;
}

int outgoing_check(const void *made)
{
	const struct outgoing *o = made;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < outgoing_runs(o); i++)
		bytes += runs_at(o->runs, i)->bytes;
	return outgoing_runs(o) && bytes != o->spill.bytes ? -EBADMSG : 0;
}

int tcp_side_check(const void *made)
{
	const struct tcp_side *s = made;

	if (s->fin_done && !s->fin_wanted)
		return -EBADMSG;
	return s->fd < 0 || socket_is(s->fd, s->ip_version, SOCK_STREAM, IPPROTO_TCP) ? 0 : -EBADMSG;
}
