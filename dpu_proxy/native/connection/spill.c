/* A chain of blocks, filled at the tail and emptied at the head; see spill.h. */
#include "connection/spill.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ulp/lasting.h"
#include "worker/memory_sum.h"

/* A block with its head. The first one is small: a message of one byte must not take a page. Each further block is as
 * large as all before it together, so a stalled bulk connection needs few blocks, and at most half of their memory is
 * unused. Powers of two: lasting memory has no others. */
#define BLOCK_MIN 128u
#define BLOCK_MAX 65536u
#define ROOM_MAX (BLOCK_MAX - (uint32_t)sizeof(struct spill_block))

/* How many full-sized blocks a thread keeps for the next spill. malloc would return freed blocks to the kernel, and a
 * bulk connection that spills now and then would pay for page faults in addition to the copy. */
#define KEPT_MAX 32u

struct spill_block {
	struct spill_block *next;
	uint32_t used, room;
	uint32_t number; /* of its first byte */
	uint32_t sum;    /* of all that is above */
	uint8_t data[];
};

static _Thread_local struct spill_block *kept;
static _Thread_local uint32_t kept_count;

static void block_free(struct spill_block *b)
{
	if (b->room < ROOM_MAX || kept_count == KEPT_MAX) {
		lasting_give(b);
		return;
	}
	b->next = kept;
	kept = b;
	kept_count++;
}

/* Makes a block for `wanted` bytes in a buffer that holds `held` bytes. */
static struct spill_block *block_new(uint32_t wanted, uint32_t held)
{
	uint32_t least = wanted > held ? wanted : held, bytes = BLOCK_MIN;
	struct spill_block *b = kept;

	while (bytes < BLOCK_MAX && bytes - sizeof *b < least)
		bytes *= 2;
	if (bytes == BLOCK_MAX && b) {
		kept = b->next;
		kept_count--;
	} else {
		b = lasting_take(bytes);
	}
	if (b) {
		b->next = NULL;
		b->used = 0;
		b->room = bytes - (uint32_t)sizeof *b;
	}
	return b;
}

/* Makes a chain of new blocks, for `bytes` more bytes behind the tail; NULL with *error set on failure. */
static struct spill_block *blocks_for(uint32_t bytes, uint32_t held, int *error)
{
	struct spill_block *first = NULL, **link = &first;

	while (bytes) {
		struct spill_block *b = block_new(bytes, held);

		if (!b) {
			while (first) {
				b = first->next;
				block_free(first);
				first = b;
			}
			*error = -ENOMEM;
			return NULL;
		}
		*link = b;
		link = &b->next;
		bytes -= bytes < b->room ? bytes : b->room;
	}
	return first;
}

static uint32_t sum_of(const struct spill_block *b)
{
	return memory_sum(b, offsetof(struct spill_block, sum));
}

/* Puts bytes behind those of the last block, which has room. Who finds the block after this process has died sees no
 * more than has been copied. */
static uint32_t fill(struct spill_block *b, const uint8_t *from, size_t left, uint32_t number)
{
	uint32_t n = b->room - b->used < left ? b->room - b->used : (uint32_t)left;

	memcpy(b->data + b->used, from, n);
	if (!b->used)
		b->number = number;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(volatile uint32_t *)&b->used = b->used + n;
	*(volatile uint32_t *)&b->sum = sum_of(b);
	return n;
}

static void chain(struct spill_block *b, struct spill_block *next)
{
	b->next = next;
	*(volatile uint32_t *)&b->sum = sum_of(b);
}

int spill_append(struct spill *s, const struct iovec *iov, int count, uint32_t number)
{
	uint64_t total = 0;
	uint32_t room = s->tail ? s->tail->room - s->tail->used : 0;
	struct spill_block *more;
	int error = 0;

	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	if (!total)
		return 0;
	more = blocks_for(total > room ? (uint32_t)(total - room) : 0, s->bytes, &error);
	if (error)
		return error;
	if (!s->tail)
		s->head = s->tail = more;
	else
		chain(s->tail, more);

	for (int i = 0; i < count; i++) {
		const uint8_t *from = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left) {
			uint32_t n;

			if (!s->tail)
				abort(); /* blocks_for() has made room for all of it */
			n = fill(s->tail, from, left, number);
			number += n;
			from += n;
			left -= n;
			if (left)
				s->tail = s->tail->next;
		}
	}
	s->bytes += (uint32_t)total;
	return 0;
}

int spill_append_all(struct spill *s, struct spill *from, uint32_t number)
{
	struct iovec piece[16];

	while (from->bytes) {
		int pieces = spill_peek(from, piece, 16), error = spill_append(s, piece, pieces, number);
		uint32_t bytes = 0;

		if (error)
			return error;
		for (int i = 0; i < pieces; i++)
			bytes += (uint32_t)piece[i].iov_len;
		spill_drop(from, bytes);
		number += bytes;
	}
	return 0;
}

int spill_peek(const struct spill *s, struct iovec *iov, int max)
{
	uint32_t offset = s->head_offset;
	int n = 0;

	for (struct spill_block *b = s->head; b && n < max; b = b->next, offset = 0) {
		if (b->used == offset)
			continue;
		iov[n].iov_base = b->data + offset;
		iov[n++].iov_len = b->used - offset;
	}
	return n;
}

void spill_read(const struct spill *s, uint8_t *out)
{
	uint32_t offset = s->head_offset;

	for (const struct spill_block *b = s->head; b; b = b->next, offset = 0) {
		memcpy(out, b->data + offset, b->used - offset);
		out += b->used - offset;
	}
}

void spill_drop(struct spill *s, uint32_t bytes)
{
	s->bytes -= bytes;
	while (s->head) {
		struct spill_block *b = s->head;
		uint32_t left = b->used - s->head_offset;

		if (bytes < left) {
			s->head_offset += bytes;
			return;
		}
		bytes -= left;
		s->head = b->next;
		s->head_offset = 0;
		block_free(b);
	}
	s->tail = NULL;
}

const struct spill_block *spill_first(const struct spill *s, uint32_t dropped)
{
	const struct spill_block *b = s->head;

	for (uint64_t end = (uint64_t)dropped + s->head_offset; b && end >= b->used; b = b->next)
		end -= b->used;
	return b;
}

/* A copy of a block's head that is in lasting memory with all its bytes, which are at most so many. */
static const uint8_t *block_found(uint64_t offset, uint64_t most, struct spill_block *out)
{
	const uint8_t *at = lasting_at(offset, sizeof *out);

	if (!at)
		return NULL;
	memcpy(out, at, sizeof *out);
	if (out->sum != sum_of(out) || !out->used || out->used > out->room || out->room > ROOM_MAX || out->used > most)
		return NULL;
	return lasting_at(offset + offsetof(struct spill_block, data), out->used);
}

uint8_t *spill_found(uint64_t offset, uint64_t most, uint32_t *number, uint32_t *bytes)
{
	struct spill_block b;
	const uint8_t *data;
	uint8_t *all = NULL;
	uint64_t next = offset;

	for (*bytes = 0; (data = block_found(next, most - *bytes, &b)); next = lasting_offset(b.next)) {
		uint8_t *longer;

		if (all && b.number != *number + *bytes)
			break; /* it is of another chain */
		longer = realloc(all, (size_t)*bytes + b.used);
		if (!longer)
			break;
		all = longer;
		if (!*bytes)
			*number = b.number;
		memcpy(all + *bytes, data, b.used);
		*bytes += b.used;
	}
	return all;
}

void spill_free(struct spill *s)
{
	spill_drop(s, s->bytes);
}

void spill_thread_end(void)
{
	while (kept) {
		struct spill_block *b = kept;

		kept = b->next;
		lasting_give(b);
	}
	kept_count = 0;
}
