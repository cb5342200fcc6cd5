/*
 * Mutation by steps, for targets whose input is a program: operations, each a byte with its arguments.
 *
 * Theory of operation
 *
 * How many bytes an operation takes is known only while it runs: it depends on what it finds. A mutator that works
 * on bytes therefore mostly turns all that follows into other operations, and what takes ten right steps to reach
 * is not reached. So each run notes where its steps began, in a table by a hash of the input. libFuzzer calls the
 * mutator with inputs that have run, mostly; it removes, repeats and moves whole steps, takes over steps of other
 * programs, and changes bytes within one step. Every third mutation, and those of inputs that are not in the
 * table, are libFuzzer's own.
 *
 * A target calls step_begins() before each operation and steps_ran() at the end of a run.
 */
#ifndef XTS_FUZZ_STEPS_H
#define XTS_FUZZ_STEPS_H

#include <stdbool.h>
#include <string.h>

#include "input.h"

#define STEPS_NOTED 96u
#define STEPS_PROGRAMS 4096u
#define STEPS_PIECES 512u
#define STEPS_PIECE_BYTES 96u

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_bytes, const uint8_t *two, size_t two_bytes,
				 uint8_t *out, size_t max_bytes, unsigned seed);

struct steps {
	uint64_t hash;
	uint32_t count;
	uint16_t at[STEPS_NOTED + 1]; /* where each begins, and the end */
};

/* Some steps of a program that has run. */
struct piece_of_program {
	uint8_t bytes;
	uint8_t data[STEPS_PIECE_BYTES];
};

static struct steps steps_table[STEPS_PROGRAMS], steps_now;
static struct piece_of_program steps_pieces[STEPS_PIECES];
static uint32_t steps_piece_count;

static uint64_t steps_hash(const uint8_t *data, size_t bytes)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a */

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ data[i]) * 1099511628211u;
	return hash;
}

static uint32_t steps_random(uint32_t *state)
{
	*state ^= *state << 13; /* xorshift32 */
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* An operation begins at this place of the whole input. */
static inline void step_begins(const struct input *in, const uint8_t *data)
{
	if (steps_now.count < STEPS_NOTED)
		steps_now.at[steps_now.count++] = (uint16_t)(in->data - data);
}

/* Keeps one to four steps for other programs. */
static void steps_keep_piece(const struct steps *s, const uint8_t *data, uint32_t *random)
{
	uint32_t first = steps_random(random) % s->count, last = first + 1 + steps_random(random) % 4u;
	uint32_t bytes;
	struct piece_of_program *piece;

	if (last > s->count)
		last = s->count;
	bytes = (uint32_t)s->at[last] - s->at[first];
	if (!bytes || bytes > STEPS_PIECE_BYTES)
		return;
	piece = &steps_pieces[steps_piece_count < STEPS_PIECES ? steps_piece_count++ : steps_random(random) % STEPS_PIECES];
	piece->bytes = (uint8_t)bytes;
	memcpy(piece->data, data + s->at[first], bytes);
}

static inline void steps_ran(const uint8_t *data, size_t bytes)
{
	uint32_t random;

	if (steps_now.count && bytes <= UINT16_MAX) {
		steps_now.hash = steps_hash(data, bytes);
		steps_now.at[steps_now.count] = (uint16_t)(steps_now.count < STEPS_NOTED ?
								   bytes :
								   steps_now.at[STEPS_NOTED - 1]);
		steps_table[steps_now.hash % STEPS_PROGRAMS] = steps_now;
		random = (uint32_t)steps_now.hash | 1;
		steps_keep_piece(&steps_now, data, &random);
	}
	steps_now.count = 0;
}

static const struct steps *steps_find(const uint8_t *data, size_t bytes)
{
	uint64_t hash = steps_hash(data, bytes);
	const struct steps *s = &steps_table[hash % STEPS_PROGRAMS];

	return s->count && s->hash == hash && s->at[s->count] <= bytes ? s : NULL;
}

static size_t steps_insert(uint8_t *data, size_t bytes, size_t max_bytes, size_t at, const uint8_t *more,
			   size_t more_bytes)
{
	if (bytes + more_bytes > max_bytes)
		return bytes;
	memmove(data + at + more_bytes, data + at, bytes - at);
	memcpy(data + at, more, more_bytes);
	return bytes + more_bytes;
}

static size_t steps_remove(uint8_t *data, size_t bytes, size_t at, size_t count)
{
	memmove(data + at, data + at + count, bytes - at - count);
	return bytes - count;
}

/* Other bytes within one step, which may become some longer or shorter. */
static size_t steps_change(uint8_t *data, size_t bytes, size_t max_bytes, size_t at, size_t count)
{
	uint8_t step[STEPS_PIECE_BYTES + 8];
	size_t changed;

	if (!count || count > STEPS_PIECE_BYTES)
		return bytes;
	memcpy(step, data + at, count);
	changed = LLVMFuzzerMutate(step, count, count + 8);
	if (bytes - count + changed > max_bytes)
		return bytes;
	bytes = steps_remove(data, bytes, at, count);
	return steps_insert(data, bytes, max_bytes, at, step, changed);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned seed)
{
	const struct steps *s = steps_find(data, bytes);
	uint32_t random = seed | 1, first, last, to;
	uint8_t moved[STEPS_PIECE_BYTES];
	size_t at, count;

	if (!s || steps_random(&random) % 3u == 0)
		return LLVMFuzzerMutate(data, bytes, max_bytes);
	first = steps_random(&random) % s->count;
	last = first + 1 + steps_random(&random) % 4u;
	if (last > s->count)
		last = s->count;
	to = steps_random(&random) % (s->count + 1);
	at = s->at[first];
	count = (size_t)s->at[last] - at;
	switch (steps_random(&random) % 6u) {
	case 0:
		return steps_remove(data, bytes, at, count);
	case 1: /* once more, elsewhere */
		if (!count || count > sizeof moved)
			return bytes;
		memcpy(moved, data + at, count);
		return steps_insert(data, bytes, max_bytes, s->at[to], moved, count);
	case 2: /* elsewhere */
		if (!count || count > sizeof moved)
			return bytes;
		memcpy(moved, data + at, count);
		bytes = steps_remove(data, bytes, at, count);
		at = s->at[to] > at ? s->at[to] - (s->at[to] - at < count ? s->at[to] - at : count) : s->at[to];
		return steps_insert(data, bytes, max_bytes, at, moved, count);
	case 3:
	case 4: /* some of another program's */
		if (!steps_piece_count)
			return bytes;
		first = steps_random(&random) % steps_piece_count;
		return steps_insert(data, bytes, max_bytes, s->at[to], steps_pieces[first].data,
				    steps_pieces[first].bytes);
	default:
		return steps_change(data, bytes, max_bytes, at, (size_t)s->at[first + 1] - at);
	}
}

/* The beginning of one program and the end of another. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_bytes, const uint8_t *two, size_t two_bytes,
				 uint8_t *out, size_t max_bytes, unsigned seed)
{
	const struct steps *a = steps_find(one, one_bytes), *b = steps_find(two, two_bytes);
	uint32_t random = seed | 1;
	size_t head, tail;

	if (!a || !b)
		return 0;
	head = a->at[steps_random(&random) % (a->count + 1)];
	tail = b->at[steps_random(&random) % (b->count + 1)];
	if (head + two_bytes - tail > max_bytes)
		return 0;
	memcpy(out, one, head);
	memcpy(out + head, two + tail, two_bytes - tail);
	return head + two_bytes - tail;
}

#endif
