/* A chain of blocks, filled at the tail and emptied at the head; see spill.h. */
#include "connection/spill.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first block is small: a message of one byte must not take a page. Each further block is as large as all before it
 * together, so a stalled bulk connection needs few blocks, and at most half of their memory is unused. */
#define BLOCK_MIN 192u
#define BLOCK_MAX 65536u

/* How many full-sized blocks a thread keeps for the next spill. malloc would return freed blocks to the kernel, and a
 * bulk connection that spills now and then would pay for page faults in addition to the copy. */
#define KEPT_MAX 32u

struct spill_block {
	struct spill_block *next;
	uint32_t used, room;
	uint8_t data[];
};

static _Thread_local struct spill_block *kept;
static _Thread_local uint32_t kept_count;

static void block_free(struct spill_block *b)
{
	if (b->room < BLOCK_MAX || kept_count == KEPT_MAX) {
		free(b);
		return;
	}
	b->next = kept;
	kept = b;
	kept_count++;
}

/* Makes a block for `wanted` bytes in a buffer that holds `held` bytes. */
static struct spill_block *block_new(uint32_t wanted, uint32_t held)
{
	uint32_t least = held < BLOCK_MIN ? BLOCK_MIN : held;
	uint32_t room = wanted > least ? wanted : least;
	struct spill_block *b = kept;

	if (room > BLOCK_MAX / 2)
		room = BLOCK_MAX;
	if (room == BLOCK_MAX && b) {
		kept = b->next;
		kept_count--;
	} else {
		b = malloc(sizeof *b + room);
	}
	if (b) {
		b->next = NULL;
		b->used = 0;
		b->room = room;
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

int spill_append(struct spill *s, const struct iovec *iov, int count, uint32_t skip)
{
	uint64_t total = 0;
	uint32_t room = s->tail ? s->tail->room - s->tail->used : 0;
	struct spill_block *more;
	int error = 0;

	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	if (total <= skip)
		return 0;
	total -= skip;
	more = blocks_for(total > room ? (uint32_t)(total - room) : 0, s->bytes, &error);
	if (error)
		return error;
	if (!s->tail)
		s->head = s->tail = more;
	else
		s->tail->next = more;

	for (int i = 0; i < count; i++) {
		const uint8_t *from = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		if (skip >= left) {
			skip -= (uint32_t)left;
			continue;
		}
		from += skip;
		left -= skip;
		skip = 0;
		while (left) {
			struct spill_block *b = s->tail;
			size_t n;

			if (!b)
				abort(); /* blocks_for() has made room for all of it */
			n = b->room - b->used < left ? b->room - b->used : left;
			memcpy(b->data + b->used, from, n);
			b->used += (uint32_t)n;
			from += n;
			left -= n;
			if (left)
				s->tail = b->next;
		}
	}
	s->bytes += (uint32_t)total;
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

void spill_free(struct spill *s)
{
	spill_drop(s, s->bytes);
}

void spill_thread_end(void)
{
	while (kept) {
		struct spill_block *b = kept;

		kept = b->next;
		free(b);
	}
	kept_count = 0;
}
