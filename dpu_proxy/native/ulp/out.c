/* Bytes that wait to be written, oldest first, in one piece of memory. */
#include <errno.h>
#include <string.h>

#include "ulp/lasting.h"
#include "ulp_stack_inside.h"
#include "wire/record.h"

#define KEPT_MAX 4096u /* an empty buffer up to this size is kept for the next time, and is not counted */

int ulp_out_resize(struct ulp_out *o, struct ulp_stack *s, uint32_t room)
{
	struct ulp_out made = { .bytes = o->bytes, .room = room, .counted = room > KEPT_MAX ? s : NULL };
	int r = made.counted ? ulp_stack_take_memory(s, room) : 0;

	if (r)
		return r;
	made.data = lasting_take(room);
	if (!made.data) {
		if (made.counted)
			ulp_stack_return_memory(s, room);
		return -ENOMEM;
	}
	if (o->bytes)
		memcpy(made.data, o->data + o->first, o->bytes);
	ulp_out_free(o);
	*o = made;
	return 0;
}

/* A power of two. */
static uint32_t room_for(uint32_t bytes)
{
	uint32_t room = 64;

	while (room < bytes)
		room *= 2;
	return room;
}

int ulp_out_reserve(struct ulp_out *o, struct ulp_layer *l, uint32_t bytes)
{
	if (bytes > INT32_MAX || o->bytes > INT32_MAX)
		return -ENOMEM;
	if (o->room - o->first - o->bytes >= bytes)
		return 0;
	return ulp_out_resize(o, l->stack, room_for(o->bytes + bytes));
}

void ulp_out_put(struct ulp_out *o, const void *data, uint32_t bytes)
{
	if (bytes)
		memcpy(o->data + o->first + o->bytes, data, bytes);
	o->bytes += bytes;
}

size_t ulp_out_take(struct ulp_out *o, void *out, size_t room)
{
	uint32_t n = o->bytes < room ? o->bytes : (uint32_t)room;

	memcpy(out, o->data + o->first, n);
	o->first += n;
	o->bytes -= n;
	if (!o->bytes)
		ulp_out_free(o);
	return n;
}

int ulp_out_flush(struct ulp_out *o, struct ulp_layer *l)
{
	while (o->bytes) {
		struct iovec piece = { .iov_base = o->data + o->first, .iov_len = o->bytes };
		ssize_t n = ulp_write_below(l, &piece, 1, NULL);

		if (n < 0)
			return (int)n;
		o->first += (uint32_t)n;
		o->bytes -= (uint32_t)n;
		if (!n)
			return -EAGAIN;
	}
	o->first = 0;
	if (o->room > KEPT_MAX)
		ulp_out_free(o);
	return 0;
}

void ulp_out_uncount(struct ulp_out *o)
{
	if (o->counted)
		ulp_stack_return_memory(o->counted, o->room);
	o->counted = NULL;
}

void ulp_out_free(struct ulp_out *o)
{
	if (o->data)
		explicit_bzero(o->data, o->room);
	ulp_out_uncount(o);
	lasting_give(o->data);
	*o = (struct ulp_out){ 0 };
}

/* --- as a member of a record -------------------------------------------------------------------------------------- */

static uint32_t out_bytes(const void *member)
{
	return ((const struct ulp_out *)member)->bytes;
}

static void out_copy(const void *member, uint8_t *to)
{
	const struct ulp_out *o = member;

	memcpy(to, o->data + o->first, o->bytes);
}

/* Not counted yet: a record does not know for whom. */
static int out_fill(void *member, const uint8_t *data, uint32_t bytes)
{
	struct ulp_out *o = member;

	*o = (struct ulp_out){ 0 };
	if (!bytes)
		return 0;
	if (bytes > INT32_MAX)
		return -ENOMEM;
	o->data = lasting_take(room_for(bytes));
	if (!o->data)
		return -ENOMEM;
	o->room = room_for(bytes);
	ulp_out_put(o, data, bytes);
	return 0;
}

static void out_drop(void *member)
{
	ulp_out_free(member);
}

const struct xts_record_stream ulp_out_stream = { out_bytes, out_copy, out_fill, out_drop };

int ulp_out_count(struct ulp_out *o, struct ulp_layer *l)
{
	int r = o->room > KEPT_MAX && !o->counted ? ulp_stack_take_memory(l->stack, o->room) : 0;

	if (!r && o->room > KEPT_MAX)
		o->counted = l->stack;
	return r;
}
