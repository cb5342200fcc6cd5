/*
 * What is allocated while the code under test runs, by AddressSanitizer's hooks: how much of it there is,
 * and that it gives no block back with a secret in it. What other code of the process does meanwhile (the
 * peer's OpenSSL) does not count.
 */
#ifndef XTS_FUZZ_SECRETS_H
#define XTS_FUZZ_SECRETS_H

#include <sanitizer/allocator_interface.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ensure.h"

#if __has_feature(address_sanitizer)
#define BLOCK_BYTES(block) __sanitizer_get_allocated_size(block)
#else /* where lines are counted (--coverage): nothing is looked for */
#define BLOCK_BYTES(block) (size_t)0
#endif

#define SECRETS_MAX 64u
#define BLOCKS_MAX (1u << 16)

static struct {
	bool inside;     /* the code under test runs */
	long held, most; /* bytes it has, and has had at most */
	struct {
		uintptr_t at; /* 0: none */
		size_t bytes;
	} block[BLOCKS_MAX]; /* a hash table: from its place on to the next empty one */
	struct {
		uint8_t bytes[64];
		size_t count;
	} secret[SECRETS_MAX];
	uint32_t secrets;
} watch;

static uint32_t block_place(uintptr_t at)
{
	return (uint32_t)((uint64_t)at * 0x9E3779B97F4A7C15u >> 48);
}

/* Where it is, or belongs. */
static uint32_t block_find(uintptr_t at)
{
	uint32_t i = block_place(at);

	while (watch.block[i].at && watch.block[i].at != at)
		i = (i + 1) % BLOCKS_MAX;
	return i;
}

/* What could not be found with a gap here moves into it. */
static void block_remove(uint32_t gap)
{
	for (uint32_t i = (gap + 1) % BLOCKS_MAX; watch.block[i].at; i = (i + 1) % BLOCKS_MAX) {
		uint32_t from = block_place(watch.block[i].at);

		if ((i - from) % BLOCKS_MAX < (i - gap) % BLOCKS_MAX)
			continue;
		watch.block[gap] = watch.block[i];
		gap = i;
	}
	watch.block[gap].at = 0;
}

static void on_allocate(const volatile void *block, size_t bytes)
{
	uint32_t i;

	if (!watch.inside || !block)
		return;
	i = block_find((uintptr_t)block);
	watch.block[i].at = (uintptr_t)block;
	watch.block[i].bytes = bytes;
	watch.held += (long)bytes;
	if (watch.held > watch.most)
		watch.most = watch.held;
}

static void on_free(const volatile void *block)
{
	uint32_t i = block ? block_find((uintptr_t)block) : 0;

	if (!block)
		return;
	if (watch.block[i].at) {
		watch.held -= (long)watch.block[i].bytes;
		block_remove(i);
	}
	for (uint32_t k = 0; watch.inside && k < watch.secrets; k++)
		ENSURE(!memmem((const void *)block, BLOCK_BYTES(block), watch.secret[k].bytes, watch.secret[k].count));
}

static void watch_install(void)
{
	ENSURE(__sanitizer_install_malloc_and_free_hooks(on_allocate, on_free));
}

/* What was allocated before is no concern of this run. */
static void watch_begin(void)
{
	watch.secrets = 0;
	if (watch.held)
		memset(watch.block, 0, sizeof watch.block);
	watch.held = watch.most = 0;
}

static void watch_secret(const void *bytes, size_t count)
{
	if (watch.secrets == SECRETS_MAX || count > sizeof watch.secret->bytes)
		return;
	memcpy(watch.secret[watch.secrets].bytes, bytes, count);
	watch.secret[watch.secrets++].count = count;
}

/* A call of the code under test, and what it returns. */
#define WATCHED(call) \
	({ \
		watch.inside = true; \
		__auto_type result_ = (call); \
		watch.inside = false; \
		result_; \
	})

#endif
