/* The mapping and its blocks; see lasting.h. */
#include "lasting.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ulp/block_lists.h"

#define BLOCK_MAX (UINT64_C(1) << 20) /* what is longer is ordinary */
#define WORTH_BYTES (16u << 10)       /* to give back */
#define TRIMMED_MAX 1024u             /* blocks of a size: others miss them meanwhile */

_Static_assert(LASTING_UNIT == BLOCK_UNIT, "where a block can begin");

static struct block_lists blocks;
static uint8_t *memory; /* NULL: there is none */
static uintptr_t page;

int lasting_make(void)
{
	void *made = mmap(NULL, LASTING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int error;

	if (made == MAP_FAILED)
		return -errno;
	page = (uintptr_t)sysconf(_SC_PAGESIZE);
	(void)madvise(made, LASTING_BYTES, MADV_DONTDUMP); /* it has what hosts and peers say */
	error = block_lists_make(&blocks, made, LASTING_BYTES);
	if (!error)
		memory = made;
	return error;
}

static bool has(const void *at)
{
	return memory && (uintptr_t)at - (uintptr_t)memory < LASTING_BYTES;
}

void *lasting_take(size_t bytes)
{
	uint32_t class = 0;
	void *block;

	if (!memory || bytes > BLOCK_MAX)
		return malloc(bytes);
	while ((size_t)BLOCK_UNIT << class < bytes)
		class++;
	block = block_lists_take(&blocks, class, 1u << class);
	return block ? block : malloc(bytes);
}

void lasting_give(void *block)
{
	if (block && has(block))
		block_lists_give(&blocks, block);
	else
		free(block);
}

uint8_t *lasting_of_thread(uint8_t **mine, uint8_t *otherwise, size_t bytes)
{
	void *block;

	if (*mine)
		return *mine;
	block = memory ? lasting_take(bytes) : NULL;
	if (block && !has(block)) {
		free(block);
		block = NULL;
	}
	return *mine = block ? block : otherwise;
}

void lasting_empty(void)
{
	if (memory)
		(void)madvise(memory, LASTING_BYTES, MADV_REMOVE);
}

/* Whole pages only: blocks begin anywhere. */
static void give_pages_back(uint8_t *block, size_t bytes)
{
	uintptr_t first = ((uintptr_t)block + page - 1) / page * page, end = ((uintptr_t)block + bytes) / page * page;

	if (first < end)
		(void)madvise((void *)first, end - first, MADV_REMOVE);
}

static void trim_class(uint32_t class)
{
	struct {
		void *next;
	} *taken = NULL, *block;

	for (unsigned i = 0; i < TRIMMED_MAX && (block = block_lists_take_used(&blocks, class)); i++) {
		give_pages_back((uint8_t *)block, (size_t)BLOCK_UNIT << class);
		block->next = taken;
		taken = block;
	}
	while ((block = taken)) {
		taken = block->next;
		block_lists_give(&blocks, block);
	}
}

void lasting_trim(void)
{
	for (uint32_t class = 0; memory && (uint64_t)BLOCK_UNIT << class <= BLOCK_MAX; class++)
		if ((uint64_t)BLOCK_UNIT << class >= WORTH_BYTES)
			trim_class(class);
}

uint64_t lasting_offset(const void *at)
{
	return has(at) ? (uint64_t)((uintptr_t)at - (uintptr_t)memory) : 0;
}

const uint8_t *lasting_at(uint64_t offset, uint64_t bytes)
{
	return memory && offset && offset < LASTING_BYTES && bytes <= LASTING_BYTES - offset ? memory + offset : NULL;
}
