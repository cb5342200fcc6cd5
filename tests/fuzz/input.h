/* What libFuzzer has made, taken byte by byte; zeros when it is used up. */
#ifndef XTS_FUZZ_INPUT_H
#define XTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

struct input {
	const uint8_t *data;
	size_t bytes;
};

static inline uint8_t take(struct input *in)
{
	if (!in->bytes)
		return 0;
	in->bytes--;
	return *in->data++;
}

static inline uint32_t take_u16(struct input *in)
{
	uint32_t high = take(in);

	return high << 8 | take(in);
}

/* A number of the input's choosing: often small, sometimes at an edge. */
static inline uint32_t pick_number(struct input *in)
{
	static const uint32_t edge[] = { 0,         1, 2, 3, 4095, 16384, 65536, XTS_CREDITS_MAX - 1, XTS_CREDITS_MAX,
					 UINT32_MAX };
	uint8_t which = take(in);

	if (which < sizeof edge / sizeof edge[0])
		return edge[which];
	return which < 200 ? which : (uint32_t)which << 8 | take(in);
}

#endif
