"""Memory that outlives a process (dpu_proxy/native/ulp/lasting.h): another one finds what was written, and nothing
outside; threads take and give blocks at once, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from beds.native_program import said_under

PROGRAM = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ulp/lasting.h"

#define THREADS 4
#define HELD 8
#define ROUNDS 40000

static atomic_uint wrong, ordinary;

static void check(int right, const char *what)
{
	if (!right) {
		printf("%s\n", what);
		atomic_fetch_add(&wrong, 1);
	}
}

/* A block that two have at once is seen: each writes its name into all of it. */
static void *work(void *argument)
{
	unsigned seed = (unsigned)(size_t)argument;
	unsigned char *held[HELD] = { NULL }, name = (unsigned char)(size_t)argument;
	size_t bytes[HELD];

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned n = (seed = seed * 1103515245 + 12345) >> 16, at = n % HELD;

		if (held[at]) {
			for (size_t j = 0; j < bytes[at]; j++)
				if (held[at][j] != name)
					atomic_fetch_add(&wrong, 1);
			lasting_give(held[at]);
			held[at] = NULL;
			continue;
		}
		bytes[at] = 1u + n * 7u % 9000u;
		held[at] = lasting_take(bytes[at]);
		memset(held[at], name, bytes[at]);
		atomic_fetch_add(&ordinary, !lasting_offset(held[at]));
	}
	for (unsigned i = 0; i < HELD; i++)
		lasting_give(held[i]);
	return NULL;
}

static void outlives(void)
{
	uint64_t offset = 0;
	int status, ends[2];

	if (pipe(ends))
		exit(1);
	if (fork() == 0) {
		uint8_t *block = lasting_take(100);

		memcpy(block, "what was written", 17);
		offset = lasting_offset(block + 5);
		if (write(ends[1], &offset, sizeof offset) != sizeof offset)
			abort();
		abort();
	}
	wait(&status);
	check(WIFSIGNALED(status), "it has not died");
	check(read(ends[0], &offset, sizeof offset) == sizeof offset, "no offset");
	check(lasting_at(offset, 12) && !memcmp(lasting_at(offset, 12), "was written", 12), "it is not there");
	lasting_empty();
	check(!*lasting_at(offset, 12), "it is still there");
}

/* Pages of what is free go back to the system, and of nothing else. */
static void trimmed(void)
{
	uint8_t *used = lasting_take(200000), *given = lasting_take(200000);

	memset(used, 1, 200000);
	memset(given, 2, 200000);
	lasting_give(given);
	lasting_trim();
	check(used[0] == 1 && used[199999] == 1 && used[100000] == 1, "what is used");
	check(given[100000] == 0, "it was not given back");
	check(lasting_take(200000) == given, "it is not free any more");
	lasting_give(given);
	lasting_give(used);
}

static void bounds(void)
{
	uint8_t *block = lasting_take(64), on_the_stack, *mine = NULL;
	uint64_t offset = lasting_offset(block), all = UINT64_C(1) << 30;

	check(offset != 0, "it is ordinary");
	check(lasting_at(offset, 64) == block, "another place");
	check(!lasting_at(0, 1) && !lasting_at(all, 1) && !lasting_at(all - 1, 2), "outside");
	check(!lasting_at(UINT64_MAX, 2) && !lasting_at(offset, UINT64_MAX), "far outside");
	check(lasting_at(all - 1, 1) != NULL, "the last byte");
	check(!lasting_offset(&on_the_stack) && !lasting_offset(NULL), "what is ordinary");
	lasting_give(block);
	check(lasting_take(40) == block, "it was not used again");
	block = lasting_take((size_t)2 << 20);
	check(block && !lasting_offset(block), "what is too long");
	lasting_give(block);
	block = lasting_of_thread(&mine, NULL, 5000);
	check(block && lasting_offset(block) && lasting_of_thread(&mine, NULL, 5000) == block, "of a thread");
}

int main(void)
{
	pthread_t threads[THREADS];
	uint8_t *before = lasting_take(50), *mine = NULL, otherwise[1];

	check(before && !lasting_offset(before), "there was none");
	check(lasting_of_thread(&mine, otherwise, 1) == otherwise, "a thread of none");
	check(!lasting_make(), "it cannot be made");
	lasting_give(before);
	outlives();
	bounds();
	trimmed();
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("wrong %u ordinary %u\n", wrong, ordinary);
	return 0;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_what_is_lasting(tmp_path: Path, sanitizer: str) -> None:
    status, output, errors = said_under(sanitizer, tmp_path, PROGRAM, "ulp/lasting.c", "ulp/block_lists.c")
    assert (status, output) == (0, "wrong 0 ordinary 0\n"), output + errors
