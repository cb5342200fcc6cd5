/*
 * Blocks of one mapping, taken and given back without a lock: threads of handshakes run when nobody else wants the
 * core, and a worker must not wait for one that holds it.
 *
 * A block has a number of units, and a *class*: who uses the lists says which sizes there are. A free block waits for
 * the next of its class. What is known of blocks is outside the mapping, in ordinary memory of this process.
 */
#ifndef XTS_BLOCK_LISTS_H
#define XTS_BLOCK_LISTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_CLASSES 65u
#define BLOCK_UNIT 64u /* bytes */

struct block_lists {
	uint8_t *memory;
	uint32_t units;
	uint8_t *class_of;         /* by unit: of the block that begins there; settled when it is cut off */
	_Atomic uint32_t *next_of; /* by unit: the free block behind this one */
	_Atomic uint32_t fresh;    /* the first unit that has never been used */
	/* by class: its free blocks. Above the unit is a count, so that a block that was taken and given back meanwhile
	 * is not mistaken for one that has stayed (ABA). */
	_Atomic uint64_t free[BLOCK_CLASSES];
};

/* Of this mapping, whose pages nobody has touched. 0 or -errno. */
int block_lists_make(struct block_lists *l, void *memory, uint64_t bytes);
/* A block of so many units, which the class says; NULL: there is none left. */
void *block_lists_take(struct block_lists *l, uint32_t class, uint32_t units);
/* Only one that has been used before. */
void *block_lists_take_used(struct block_lists *l, uint32_t class);
void block_lists_give(struct block_lists *l, void *block);

static inline uint32_t block_class(const struct block_lists *l, const void *block)
{
	return l->class_of[(uintptr_t)((const uint8_t *)block - l->memory) / BLOCK_UNIT];
}

#endif
