/*
 * The socket table. A number is an index (20 bits) and a generation (11 bits; the twelfth stays 0, so that it is a
 * positive int). The application holds it, and it is the identifier on the wire. Entries come in blocks that are never
 * freed, and an entry is used again when nobody holds its last socket any more (socket.h).
 *
 * A block belongs to one stack for the life of the process. So a number determines the block, and the block its stack,
 * without a lock; the socket is then looked up under the stack's lock.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/asked.h"
#include "core/process.h"
#include "core/socket.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/inherit.h"
#include "core/wait.h"

#define BLOCK_SOCKETS 256u
#define BLOCKS (SOCKETS_MAX / BLOCK_SOCKETS)
#define GENERATIONS 2047u

struct block {
	struct stack *stack;
	struct block *next; /* of the same stack */
	uint32_t number;    /* its index among the blocks of its stack, from 0 on */
	struct cold *cold;  /* of its sockets, in the same order */
	struct xts_sock sockets[BLOCK_SOCKETS];
};

static struct block *_Atomic blocks[BLOCKS];
static uint32_t block_count; /* under the process's lock */

static struct block *block_at(uint32_t index)
{
	return atomic_load_explicit(&blocks[index / BLOCK_SOCKETS], memory_order_acquire);
}

struct stack *table_stack(int number)
{
	struct block *block = number < 0 ? NULL : block_at(SOCKET_INDEX((uint32_t)number));

	return block ? block->stack : NULL;
}

/* Puts the block into the table. False: the table is full. */
static bool publish(struct block *block)
{
	uint32_t place;

	process_lock();
	place = block_count;
	if (place < BLOCKS)
		block_count++;
	process_unlock();
	if (place == BLOCKS)
		return false;
	for (uint32_t i = 0; i < BLOCK_SOCKETS; i++)
		block->sockets[i].id = (1u << 20) | (place * BLOCK_SOCKETS + i);
	atomic_store_explicit(&blocks[place], block, memory_order_release);
	return true;
}

/* A program's leak sanitizer does not look through memory that we map: it would take what sockets have for lost.
 * NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
__attribute__((weak)) void __lsan_register_root_region(const void *begin, size_t bytes);
__attribute__((weak)) void __lsan_unregister_root_region(const void *begin, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* The sockets' cold parts, of which no page exists yet (socket.h). With huge pages, the first one to be written would
 * bring all of them. NULL: no memory. */
static struct cold *make_cold(void)
{
	size_t bytes = BLOCK_SOCKETS * sizeof(struct cold);
	void *cold = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (cold == MAP_FAILED)
		return NULL;
	(void)madvise(cold, bytes, MADV_NOHUGEPAGE);
	if (__lsan_register_root_region)
		__lsan_register_root_region(cold, bytes);
	return cold;
}

static void free_block(struct block *block)
{
	size_t bytes = BLOCK_SOCKETS * sizeof(struct cold);

	if (block->cold) {
		if (__lsan_unregister_root_region)
			__lsan_unregister_root_region(block->cold, bytes);
		munmap(block->cold, bytes);
	}
	free(block);
}

static bool grow(struct stack *st)
{
	struct block *block = calloc(1, sizeof *block);

	if (!block)
		return false;
	block->cold = make_cold();
	if (!block->cold) {
		free_block(block);
		return false;
	}
	block->stack = st;
	block->number = st->last_block ? st->last_block->number + 1 : 0;
	for (uint32_t i = 0; i < BLOCK_SOCKETS; i++) {
		block->sockets[i].stack = st;
		block->sockets[i].cold = &block->cold[i];
		block->sockets[i].free_next = i + 1 < BLOCK_SOCKETS ? &block->sockets[i + 1] : st->free_sockets;
	}
	if (!publish(block)) {
		free_block(block);
		return false;
	}
	st->free_sockets = block->sockets;
	if (st->last_block)
		st->last_block->next = block;
	else
		st->blocks = block;
	st->last_block = block;
	return true;
}

/* What the last socket of this entry has left; but most have used nothing of it. */
static void clear_cold(struct cold *cold)
{
	static const struct cold unused;
	const size_t bytes = offsetof(struct cold, parents_id);

	if (memcmp(cold, &unused, bytes) != 0)
		memset(cold, 0, bytes);
}

struct xts_sock *table_allocate(struct stack *st)
{
	struct xts_sock *s;
	uint16_t holders;
	struct cold *cold;
	uint32_t id;

	if (!st->free_sockets && !grow(st))
		return NULL;
	s = st->free_sockets;
	st->free_sockets = s->free_next;
	id = s->id;
	cold = s->cold;
	holders = s->holders; /* calls with a number of no socket */
	memset(s, 0, sizeof *s);
	s->stack = st;
	s->cold = cold;
	s->id = id;
	s->holders = holders;
	s->in_use = true;
	clear_cold(cold);
	st->sockets++;
	return s;
}

struct xts_sock *table_find(struct stack *st, uint32_t id)
{
	struct block *block = block_at(SOCKET_INDEX(id));
	struct xts_sock *s;

	if (!block || block->stack != st)
		return NULL;
	s = &block->sockets[id % BLOCK_SOCKETS];
	if (!s->in_use || s->id != id)
		return NULL;
	socket_check(s);
	return s;
}

bool table_was_parents(int number)
{
	struct block *block = number < 0 ? NULL : block_at(SOCKET_INDEX((uint32_t)number));

	return block && block->cold[(uint32_t)number % BLOCK_SOCKETS].parents_id == (uint32_t)number;
}

/* Its numbers are not used again, so that none of its sockets is taken for one of this process. */
void table_orphaned(void)
{
	for (uint32_t place = 0; place < BLOCKS; place++) {
		struct block *block = block_at(place * BLOCK_SOCKETS);

		for (uint32_t i = 0; block && i < BLOCK_SOCKETS; i++) {
			struct xts_sock *s = &block->sockets[i];

			if (s->in_use && s->open)
				s->cold->parents_id = s->id;
			if (s->in_use)
				explicit_bzero(&s->cold->sharing.key, sizeof s->cold->sharing.key);
			s->in_use = s->open = false;
		}
		if (block)
			block->stack = NULL;
	}
}

struct xts_sock *table_open(struct stack *st, int number)
{
	struct xts_sock *s = table_find(st, (uint32_t)number);

	return s && s->open ? s : NULL;
}

struct xts_sock *table_hold(int number)
{
	struct block *block = number < 0 ? NULL : block_at(SOCKET_INDEX((uint32_t)number));
	struct xts_sock *s = block && block->stack ? &block->sockets[(uint32_t)number % BLOCK_SOCKETS] : NULL;

	if (s)
		socket_hold(s);
	return s;
}

void table_release(struct xts_sock *s)
{
	struct stack *st = s->stack;

	inherit_release(s);
	s->in_use = s->open = s->own.ending = false;
	s->released = true;
	status_state(s);
	wake(st, &s->readers); /* it is over, what they wait for */
	wake(st, &s->writers);
	wake(st, &s->callers);
	st->sockets--;
}

void table_reuse(struct xts_sock *s)
{
	uint32_t generation = (s->id >> 20) % GENERATIONS + 1;

	s->released = false;
	s->id = generation << 20 | SOCKET_INDEX(s->id);
	s->free_next = s->stack->free_sockets;
	s->stack->free_sockets = s;
}

struct xts_sock *table_next(struct stack *st, struct xts_sock *after)
{
	struct block *block = after ? block_at(SOCKET_INDEX(after->id)) : st->blocks;
	uint32_t i = after ? after->id % BLOCK_SOCKETS + 1 : 0;

	for (; block; block = block->next, i = 0)
		for (; i < BLOCK_SOCKETS; i++)
			if (block->sockets[i].in_use)
				return &block->sockets[i];
	return NULL;
}

void table_forget_holders(struct stack *st)
{
	for (struct block *block = st->blocks; block; block = block->next)
		for (uint32_t i = 0; i < BLOCK_SOCKETS; i++) {
			struct xts_sock *s = &block->sockets[i];

			if (!s->holders) /* parent and child share the page until one of them writes to it */
				continue;
			s->holders = 1;
			socket_put(s);
		}
}

struct xts_sock *table_walk(struct stack *st, struct xts_sock *after)
{
	struct xts_sock *s = table_next(st, after);

	if (s)
		socket_hold(s);
	if (after)
		socket_put(after);
	return s;
}

uint32_t table_place(const struct xts_sock *s)
{
	return block_at(SOCKET_INDEX(s->id))->number * BLOCK_SOCKETS + s->id % BLOCK_SOCKETS;
}
