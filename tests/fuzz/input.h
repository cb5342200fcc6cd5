/* What libFuzzer has made, taken byte by byte; zeros when it is used up. */
#ifndef XTS_FUZZ_INPUT_H
#define XTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

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

#endif
