/*
 * The socket table. A number is an index (20 bits) and a generation (11 bits; the twelfth stays 0, so that it is a
 * positive int), and is both what the application holds and the identifier on the wire. Entries come in blocks that
 * are never freed: a pointer stays valid, and whether it is still the same socket is seen by its number.
 */
#include "core/library.h"

#include <stdlib.h>

#define BLOCK_SOCKETS 256u
#define BLOCKS (SOCKETS_MAX / BLOCK_SOCKETS)
#define GENERATIONS 2047u

static struct xts_sock *blocks[BLOCKS];
static uint32_t block_count;
static struct xts_sock *free_sockets;

static struct xts_sock *at(uint32_t index)
{
	return index < block_count * BLOCK_SOCKETS ? &blocks[index / BLOCK_SOCKETS][index % BLOCK_SOCKETS] : NULL;
}

static bool grow(void)
{
	struct xts_sock *block;

	if (block_count == BLOCKS)
		return false;
	block = calloc(BLOCK_SOCKETS, sizeof *block);
	if (!block)
		return false;
	for (uint32_t i = BLOCK_SOCKETS; i-- > 0;) {
		block[i].id = (1u << 20) | (block_count * BLOCK_SOCKETS + i);
		block[i].free_next = free_sockets;
		free_sockets = &block[i];
	}
	blocks[block_count++] = block;
	return true;
}

struct xts_sock *table_allocate(void)
{
	uint16_t readers, writers, callers;
	struct xts_sock *s;
	uint32_t id;

	if (!free_sockets && !grow())
		return NULL;
	s = free_sockets;
	free_sockets = s->free_next;
	/* Threads that waited for the last socket here may not have run since they were woken: they count themselves out. */
	id = s->id;
	readers = s->readers;
	writers = s->writers;
	callers = s->callers;
	memset(s, 0, sizeof *s);
	s->id = id;
	s->readers = readers;
	s->writers = writers;
	s->callers = callers;
	s->in_use = true;
	xts.sockets++;
	return s;
}

struct xts_sock *table_find(uint32_t id)
{
	struct xts_sock *s = at(SOCKET_INDEX(id));

	return s && s->in_use && s->id == id ? s : NULL;
}

struct xts_sock *table_open(int number)
{
	struct xts_sock *s = table_find((uint32_t)number);

	return s && s->open ? s : NULL;
}

struct xts_sock *table_use(int number)
{
	struct xts_sock *s = table_open(number);

	if (!s || (s->inherited == NOT_INHERITED && !s->gone_untold))
		return s;
	if (s->inherited != NOT_INHERITED)
		inherit_take(s);
	s = table_open(number);
	if (s && s->gone_untold)
		inherit_tell_gone(s);
	return s;
}

void table_release(struct xts_sock *s)
{
	uint32_t generation = (s->id >> 20) % GENERATIONS + 1;

	sharers_leave(s);
	s->in_use = false;
	s->open = false;
	status_state(s);
	s->id = generation << 20 | SOCKET_INDEX(s->id);
	wake(&s->readers); /* it is not what they wait for any more */
	wake(&s->writers);
	wake(&s->callers);
	s->free_next = free_sockets;
	free_sockets = s;
	xts.sockets--;
}

struct xts_sock *table_next(struct xts_sock *after)
{
	uint32_t index = after ? SOCKET_INDEX(after->id) + 1 : 0;
	struct xts_sock *s;

	while ((s = at(index++)))
		if (s->in_use)
			return s;
	return NULL;
}
