/*
 * Bytes read ahead. Headers are short, and reading the socket for each would cost more than the PDU. So a layer reads
 * more from below than it needs and keeps the rest. Large payloads are read straight to their destination, together
 * with what follows, as far as there is room, so that a stream of large PDUs costs one read each. A layer that does not
 * know yet how much it needs (lines, parsers) looks at the bytes that are here before it takes any.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ulp.h"
#include "wire/record.h"

static uint32_t ahead_take(struct ulp_in *in, void *out, size_t bytes)
{
	uint32_t n = in->bytes < bytes ? in->bytes : (uint32_t)bytes;

	memcpy(out, in->data + in->first, n);
	in->first += n;
	in->bytes -= n;
	return n;
}

static int ahead_memory(struct ulp_in *in, struct ulp_layer *l)
{
	if (!in->data)
		in->data = malloc(ULP_IN_BYTES);
	return in->data ? 0 : ulp_fail(l, XTS_FAULT_MEMORY, "no memory to read ahead");
}

ssize_t ulp_in_read(struct ulp_in *in, struct ulp_layer *l, void *out, size_t bytes, size_t room)
{
	ssize_t n;
	int error = ahead_memory(in, l);

	if (error)
		return error;
	if (in->bytes)
		return ahead_take(in, out, bytes);
	if (room <= bytes && bytes < ULP_IN_BYTES) { /* out has no room to read ahead into */
		n = ulp_read_stream_below(l, in->data, ULP_IN_BYTES);
		if (n < 0)
			return n;
		in->first = 0;
		in->bytes = (uint32_t)n;
		return ahead_take(in, out, bytes);
	}
	if (room > bytes + ULP_IN_BYTES)
		room = bytes + ULP_IN_BYTES;
	else if (room < bytes)
		room = bytes;
	n = ulp_read_stream_below(l, out, room);
	if (n > (ssize_t)bytes) {
		in->first = 0;
		in->bytes = (uint32_t)n - (uint32_t)bytes;
		memcpy(in->data, (uint8_t *)out + bytes, in->bytes);
		n = (ssize_t)bytes;
	}
	return n;
}

ssize_t ulp_in_more(struct ulp_in *in, struct ulp_layer *l)
{
	ssize_t n;
	int error = ahead_memory(in, l);

	if (error)
		return error;
	memmove(in->data, in->data + in->first, in->bytes);
	in->first = 0;
	n = ulp_read_stream_below(l, in->data + in->bytes, ULP_IN_BYTES - in->bytes);
	if (n > 0)
		in->bytes += (uint32_t)n;
	return n;
}

int ulp_in_gather(struct ulp_in *in, struct ulp_layer *l, void *out, uint32_t *got, uint32_t want)
{
	while (*got < want) {
		ssize_t n = ulp_in_read(in, l, (uint8_t *)out + *got, want - *got, 0);

		if (n < 0)
			return (int)n;
		*got += (uint32_t)n;
	}
	return 0;
}

bool ulp_in_pending(const struct ulp_in *in, const struct ulp_layer *l)
{
	return in->bytes || ulp_pending_below(l);
}

void ulp_in_free(struct ulp_in *in)
{
	free(in->data);
	memset(in, 0, sizeof *in);
}

/* --- as a member of a record -------------------------------------------------------------------------------------- */

static uint32_t in_bytes(const void *member)
{
	return ((const struct ulp_in *)member)->bytes;
}

static void in_copy(const void *member, uint8_t *out)
{
	const struct ulp_in *in = member;

	memcpy(out, in->data + in->first, in->bytes);
}

/* A record has at most ULP_IN_BYTES of them (record_fields.py). */
static int in_fill(void *member, const uint8_t *data, uint32_t bytes)
{
	struct ulp_in *in = member;

	*in = (struct ulp_in){ 0 };
	if (!bytes)
		return 0;
	in->data = malloc(ULP_IN_BYTES);
	if (!in->data)
		return -ENOMEM;
	in->bytes = bytes;
	memcpy(in->data, data, bytes);
	return 0;
}

static void in_drop(void *member)
{
	ulp_in_free(member);
}

const struct xts_record_stream ulp_in_stream = { in_bytes, in_copy, in_fill, in_drop };
