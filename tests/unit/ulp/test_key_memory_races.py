"""The memory for keys under the thread sanitizer: it has no lock, and threads take and give blocks of a few sizes at
once, some of them each other's (dpu_proxy/native/ulp/tls_keys/key_memory.c)."""

from __future__ import annotations

from pathlib import Path

import pytest
from beds.native_program import said_under

#: A block that two have at once is seen: each writes its name into all of it, in plain memory.
PROGRAM = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ulp/tls_keys/key_memory.h"

#define THREADS 4
#define HELD 8
#define SHARED 4
#define ROUNDS 60000

static const size_t sizes[] = { 40, 64, 184, 500, 960, 4096 };
static void *_Atomic shared[SHARED];
static atomic_uint wrong, full;

static void fill(unsigned char *block, unsigned char name)
{
	size_t bytes = key_memory_bytes(block);

	for (size_t i = 0; i < bytes; i++) {
		if (block[i])
			atomic_fetch_add(&wrong, 1); /* it was not wiped, or is somebody else's */
	}
	memset(block, name, bytes);
}

static void give(unsigned char *block)
{
	size_t bytes = key_memory_bytes(block);

	for (size_t i = 1; i < bytes; i++) {
		if (block[i] != block[0])
			atomic_fetch_add(&wrong, 1);
	}
	key_memory_give(block);
}

static void *work(void *argument)
{
	unsigned seed = (unsigned)(size_t)argument;
	unsigned char *held[HELD] = { NULL };

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned n = (seed = seed * 1103515245 + 12345) >> 16, at = n % HELD;
		size_t bytes = sizes[n / HELD % (sizeof sizes / sizeof *sizes)];

		if (held[at]) {
			/* another thread may give it back */
			unsigned char *other = held[at];

			if (!(n & 1024))
				other = atomic_exchange(&shared[n % SHARED], (void *)held[at]);
			held[at] = NULL;
			if (other)
				give(other);
			continue;
		}
		held[at] = key_memory_take(bytes);
		if (held[at])
			fill(held[at], (unsigned char)(size_t)argument);
		else
			atomic_fetch_add(&full, 1);
	}
	for (unsigned i = 0; i < HELD; i++) {
		if (held[i])
			give(held[i]);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	char why[160];

	if (xts_tls_key_memory_open(64 << 10, why, sizeof why))
		return 1;
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < SHARED; i++) {
		if (shared[i])
			give(shared[i]);
	}
	printf("wrong %u used %llu", wrong, (unsigned long long)key_memory_counts().used);
	printf(" full %d refused %d\n", full > 0, key_memory_counts().refused == full);
	return 0;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_no_block_is_anybody_elses(tmp_path: Path, sanitizer: str) -> None:
    """What is given back is wiped, the account comes out even, and a full memory refuses."""
    status, output, errors = said_under(sanitizer, tmp_path, PROGRAM, "ulp/tls_keys/key_memory.c", "ulp/block_lists.c")
    assert (status, output) == (0, "wrong 0 used 0 full 1 refused 1\n"), output + errors
