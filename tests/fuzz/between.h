/* Bytes on their way from one end of a connection to the other, where the input may hold them up, and change them. */
#ifndef XTS_FUZZ_BETWEEN_H
#define XTS_FUZZ_BETWEEN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "input.h"

#define BETWEEN_BYTES (128u << 10)
#define BETWEEN_REMEMBERED 2048u

struct between {
	uint8_t data[BETWEEN_BYTES];
	uint32_t bytes;
	uint8_t passed[BETWEEN_REMEMBERED]; /* the last that went on */
	uint32_t passed_bytes;
	bool touched;
};

/* Many small numbers, and some large ones. */
static uint32_t take_count(struct input *in)
{
	uint32_t n = take(in);

	return n < 128 ? n : (n - 127) * 160;
}

static uint32_t between_room(const struct between *b)
{
	return BETWEEN_BYTES - b->bytes;
}

static void between_put(struct between *b, const void *data, uint32_t bytes)
{
	memcpy(b->data + b->bytes, data, bytes);
	b->bytes += bytes;
}

static void between_drop(struct between *b, uint32_t at, uint32_t bytes)
{
	memmove(b->data + at, b->data + at + bytes, b->bytes - at - bytes);
	b->bytes -= bytes;
}

/* The first bytes have gone on. */
static void between_passed(struct between *b, uint32_t bytes)
{
	uint32_t kept = bytes < BETWEEN_REMEMBERED ? bytes : BETWEEN_REMEMBERED;

	if (!bytes)
		return;
	memcpy(b->passed, b->data + bytes - kept, kept);
	b->passed_bytes = kept;
	between_drop(b, 0, bytes);
}

static void between_insert(struct between *b, const void *data, uint32_t bytes)
{
	if (!bytes || bytes > between_room(b))
		return;
	memmove(b->data + bytes, b->data, b->bytes);
	memcpy(b->data, data, bytes);
	b->bytes += bytes;
	b->touched = true;
}

/* One thing that somebody on the way may do. */
static void between_meddle(struct between *b, struct input *in)
{
	uint8_t how = take(in), made[5 + 256] = { 0 };
	uint32_t at = b->bytes ? take_u16(in) % b->bytes : 0, n = take(in);

	switch (how % 5) {
	case 0: /* another byte */
		if (b->bytes) {
			b->data[at] ^= (uint8_t)(n ? n : 1);
			b->touched = true;
		}
		break;
	case 1: /* some are lost */
		n = n < b->bytes - at ? n : b->bytes - at;
		between_drop(b, at, n);
		b->touched |= n > 0;
		break;
	case 2: /* once more */
		n = n && n < b->passed_bytes ? n : b->passed_bytes;
		between_insert(b, b->passed + b->passed_bytes - n, n);
		break;
	case 3: /* any bytes */
		for (uint32_t i = 0; i < n; i++)
			made[i] = take(in);
		between_insert(b, made, n);
		break;
	default: /* what looks like a record, of a length that may be another */
		made[0] = (uint8_t)(20 + at % 6);
		made[1] = made[2] = 3;
		made[3] = how & 64 ? take(in) : 0;
		made[4] = how & 128 ? take(in) : (uint8_t)n;
		for (uint32_t i = 0; i < n; i++)
			made[5 + i] = take(in);
		between_insert(b, made, 5 + n);
	}
}

#endif
