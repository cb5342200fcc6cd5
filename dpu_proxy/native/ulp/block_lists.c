/* Free blocks of a mapping; see block_lists.h. */
#include "block_lists.h"

#include <errno.h>
#include <sys/mman.h>

#define NOTHING 0u /* a number of no unit: the first one is never used */

int block_lists_make(struct block_lists *l, void *memory, uint64_t bytes)
{
	size_t units = bytes / BLOCK_UNIT;
	/* its pages are taken as they are needed, too */
	uint8_t *lists = mmap(NULL, units * (sizeof *l->next_of + sizeof *l->class_of), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (lists == MAP_FAILED)
		return -errno;
	l->memory = memory;
	l->units = (uint32_t)units;
	l->next_of = (_Atomic uint32_t *)(void *)lists;
	l->class_of = lists + units * sizeof *l->next_of;
	atomic_store(&l->fresh, NOTHING + 1);
	return 0;
}

/* A free block of this class: its first unit, or NOTHING. */
static uint32_t pop(struct block_lists *l, uint32_t class)
{
	uint64_t head = atomic_load_explicit(&l->free[class], memory_order_acquire), next;
	uint32_t unit;

	do {
		unit = (uint32_t)head;
		if (unit == NOTHING)
			return NOTHING;
		next = ((head >> 32) + 1) << 32 | atomic_load_explicit(&l->next_of[unit], memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&l->free[class], &head, next, memory_order_acquire,
							memory_order_acquire));
	return unit;
}

/* A block of what has never been used: its first unit, or NOTHING. */
static uint32_t cut(struct block_lists *l, uint32_t class, uint32_t units)
{
	uint32_t fresh = atomic_load_explicit(&l->fresh, memory_order_relaxed);

	do {
		if (l->units - fresh < units)
			return NOTHING;
	} while (!atomic_compare_exchange_weak_explicit(&l->fresh, &fresh, fresh + units, memory_order_relaxed,
							memory_order_relaxed));
	l->class_of[fresh] = (uint8_t)class;
	return fresh;
}

void *block_lists_take(struct block_lists *l, uint32_t class, uint32_t units)
{
	uint32_t unit = pop(l, class);

	if (unit == NOTHING)
		unit = cut(l, class, units);
	return unit == NOTHING ? NULL : l->memory + (size_t)unit * BLOCK_UNIT;
}

void *block_lists_take_used(struct block_lists *l, uint32_t class)
{
	uint32_t unit = pop(l, class);

	return unit == NOTHING ? NULL : l->memory + (size_t)unit * BLOCK_UNIT;
}

void block_lists_give(struct block_lists *l, void *block)
{
	uint32_t unit = (uint32_t)((uintptr_t)((uint8_t *)block - l->memory) / BLOCK_UNIT),
		 class = block_class(l, block);
	uint64_t head = atomic_load_explicit(&l->free[class], memory_order_relaxed);

	do {
		atomic_store_explicit(&l->next_of[unit], (uint32_t)head, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&l->free[class], &head, ((head >> 32) + 1) << 32 | unit,
							memory_order_release, memory_order_relaxed));
}
