/*
 * Sums of what lies in memory that outlives this process: whoever reads it then finds out whether something else has
 * written there (channel/ledger.h). The fault of which a process dies may have. Who has broken into it can make any sum.
 */
#ifndef XTS_MEMORY_SUM_H
#define XTS_MEMORY_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FNV-1a, of words and of the bytes behind them. Any one word that is another makes another sum. */
static inline uint64_t memory_long_sum(const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint64_t sum = UINT64_C(0xcbf29ce484222325), word;

	for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
		memcpy(&word, at, sizeof word);
		sum = (sum ^ word) * UINT64_C(0x100000001b3);
	}
	for (; bytes; bytes--)
		sum = (sum ^ *at++) * UINT64_C(0x100000001b3);
	return sum;
}

static inline uint32_t memory_sum(const void *data, size_t bytes)
{
	return (uint32_t)(memory_long_sum(data, bytes) >> 32);
}

/* A count with its sum, in one word, which is whole at each moment. */
static inline uint64_t memory_summed(uint32_t count)
{
	const uint64_t word = count;

	return (uint64_t)memory_sum(&word, sizeof word) << 32 | count;
}

#endif
