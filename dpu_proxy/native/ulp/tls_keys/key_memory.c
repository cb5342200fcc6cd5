/* The mapping and its blocks; see key_memory.h. */
#include "key_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ulp/block_lists.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define FORBID(block, bytes) ASAN_POISON_MEMORY_REGION((block), (bytes))
#define ALLOW(block, bytes) ASAN_UNPOISON_MEMORY_REGION((block), (bytes))
#else
#define FORBID(block, bytes) ((void)0)
#define ALLOW(block, bytes) ((void)0)
#endif

#ifndef __NR_memfd_secret
#define __NR_memfd_secret 447 /* the same number everywhere */
#endif

#define UNIT BLOCK_UNIT
#define UNITS_MAX 64u /* of a block, whose class this number is */
_Static_assert(UNITS_MAX < BLOCK_CLASSES, "a class for each size");
#define DEFAULT_BYTES (UINT64_C(64) << 20)

static struct {
	uint8_t *memory;
	uint64_t bytes;
	enum xts_tls_key_memory kind;
	struct block_lists blocks;
	_Atomic uint64_t used, most, refused; /* bytes, bytes, blocks */
	int fd;                               /* of the mapping; -1: it has none (any more) */
} keys = { .fd = -1 };

static pthread_once_t opened = PTHREAD_ONCE_INIT;

/* --- the mapping -------------------------------------------------------------------------------------------------- */

/* Maps a file that has no name, which nobody else has. MAP_FAILED: it is closed. */
static void *map_file(int fd, uint64_t bytes)
{
	void *map;
	int error;

	if (fd < 0)
		return MAP_FAILED;
	map = ftruncate(fd, (off_t)bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = errno;
	if (map == MAP_FAILED) {
		close(fd);
		errno = error;
		return map;
	}
	(void)madvise(map, bytes, MADV_DONTFORK);
	keys.fd = fd;
	return map;
}

/* Memory that only who has the descriptor sees; MAP_FAILED. It counts as locked. */
static void *map_secret(uint64_t bytes)
{
	return map_file((int)syscall(__NR_memfd_secret, 02000000 /* O_CLOEXEC */), bytes);
}

static void *map_ordinary(uint64_t bytes)
{
	void *map = map_file(memfd_create("xts-keys", MFD_CLOEXEC), bytes);

	if (map == MAP_FAILED)
		map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return map;
	(void)madvise(map, bytes, MADV_DONTDUMP);
	if (keys.fd < 0)
		(void)madvise(map, bytes, MADV_WIPEONFORK);
	return map;
}

static const char *say_limit(char *out, size_t room)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		snprintf(out, room, "no limit of locked memory");
	else
		snprintf(out, room, "RLIMIT_MEMLOCK is %llu KiB", (unsigned long long)limit.rlim_cur >> 10);
	return out;
}

/* Why the kernel gave no better memory; errors of memfd_secret and mlock. */
static void explain(int secret, int locked, uint64_t bytes, char *why, uint32_t room)
{
	char limit[48];

	if (keys.kind == XTS_TLS_KEY_MEMORY_LOCKED)
		snprintf(why, room, "keys are in locked memory, which root can read: memfd_secret: %s",
			 secret == ENOSYS ?
				 "the kernel has none (CONFIG_SECRETMEM; before Linux 6.5 secretmem.enable=1)" :
				 strerror(secret));
	else if (keys.kind == XTS_TLS_KEY_MEMORY_PLAIN)
		snprintf(why, room,
			 "keys are in memory that may be swapped: %llu KiB cannot be locked: %s; %s (LimitMEMLOCK=, or "
			 "a smaller proxy.key_memory_mib)",
			 (unsigned long long)bytes >> 10, strerror(locked), say_limit(limit, sizeof limit));
}

static int open_memory(uint64_t bytes, char *why, uint32_t room)
{
	int secret = 0, locked = 0, error;
	void *map = map_secret(bytes);

	if (map == MAP_FAILED) {
		secret = errno;
		map = map_ordinary(bytes);
		if (map == MAP_FAILED)
			return -errno;
		/* pages as they are needed; kernels before 4.4, and some sandboxes, have no mlock2() */
		locked = mlock2(map, bytes, MLOCK_ONFAULT) ? errno : 0;
	}
	error = block_lists_make(&keys.blocks, map, bytes);
	if (error)
		return error;
#ifdef WITH_ASAN
	__lsan_register_root_region(map, bytes);
#endif
	keys.kind = !secret ? XTS_TLS_KEY_MEMORY_SECRET : locked ? XTS_TLS_KEY_MEMORY_PLAIN : XTS_TLS_KEY_MEMORY_LOCKED;
	explain(secret, locked, bytes, why, room);
	keys.memory = map;
	keys.bytes = bytes;
	FORBID(map, bytes);
	ALLOW(map, UNIT); /* key_memory_show() */
	return 0;
}

static struct {
	uint64_t bytes;
	char *why;
	uint32_t room;
	int result;
} asked = { .bytes = DEFAULT_BYTES };

static void open_once(void)
{
	char nobody[4];

	asked.result = open_memory(asked.bytes, asked.why ? asked.why : nobody,
				   asked.why ? asked.room : (uint32_t)sizeof nobody);
	asked.why = NULL;
}

int xts_tls_key_memory_open(uint64_t bytes, char *why, uint32_t why_room)
{
	why[0] = 0;
	asked.bytes = bytes;
	asked.why = why;
	asked.room = why_room;
	(void)pthread_once(&opened, open_once);
	if (asked.result)
		snprintf(why, why_room, "no memory for keys: %s", strerror(-asked.result));
	return asked.result;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static void count_use(uint64_t bytes)
{
	uint64_t now = atomic_fetch_add_explicit(&keys.used, bytes, memory_order_relaxed) + bytes,
		 most = atomic_load_explicit(&keys.most, memory_order_relaxed);

	while (most < now && !atomic_compare_exchange_weak_explicit(&keys.most, &most, now, memory_order_relaxed,
								    memory_order_relaxed))
		;
}

void *key_memory_take(size_t bytes)
{
	uint32_t units = (uint32_t)((bytes + UNIT - 1) / UNIT);
	void *block;

	(void)pthread_once(&opened, open_once);
	if (!keys.memory || !bytes || bytes > (size_t)UNITS_MAX * UNIT)
		return NULL;
	block = block_lists_take(&keys.blocks, units, units);
	if (!block) {
		atomic_fetch_add_explicit(&keys.refused, 1, memory_order_relaxed);
		return NULL;
	}
	count_use((uint64_t)units * UNIT);
	ALLOW(block, (size_t)units * UNIT);
	return block;
}

void key_memory_give(void *block)
{
	uint32_t units;

	if (!block)
		return;
	units = block_class(&keys.blocks, block);
	ALLOW(block, (size_t)units * UNIT);
	explicit_bzero(block, (size_t)units * UNIT);
	FORBID(block, (size_t)units * UNIT);
	atomic_fetch_sub_explicit(&keys.used, (uint64_t)units * UNIT, memory_order_relaxed);
	block_lists_give(&keys.blocks, block);
}

bool key_memory_has(const void *block)
{
	uintptr_t begin = (uintptr_t)keys.memory;

	return begin && (uintptr_t)block >= begin && (uintptr_t)block < begin + keys.bytes;
}

size_t key_memory_bytes(const void *block)
{
	return (size_t)block_class(&keys.blocks, block) * UNIT;
}

int key_memory_descriptor(void)
{
	return keys.fd;
}

void key_memory_close(void)
{
	if (keys.fd >= 0)
		close(keys.fd);
	keys.fd = -1;
}

uint32_t key_memory_place(const void *block)
{
	return (uint32_t)((uintptr_t)((const uint8_t *)block - keys.memory) / UNIT);
}

uint64_t key_memory_offset(uint32_t place)
{
	return (uint64_t)place * UNIT;
}

/* The first unit, which is no block. */
static _Atomic uint32_t *shown(void)
{
	return (_Atomic uint32_t *)(void *)keys.memory;
}

void key_memory_show(const void *block)
{
	atomic_store(shown(), key_memory_place(block));
}

void key_memory_hide(const void *block)
{
	uint32_t place = key_memory_place(block);

	atomic_compare_exchange_strong(shown(), &place, 0);
}

struct key_memory_counts key_memory_counts(void)
{
	return (struct key_memory_counts){
		.kind = keys.memory ? keys.kind : XTS_TLS_KEY_MEMORY_NONE,
		.limit = keys.bytes,
		.used = atomic_load_explicit(&keys.used, memory_order_relaxed),
		.most = atomic_load_explicit(&keys.most, memory_order_relaxed),
		.refused = atomic_load_explicit(&keys.refused, memory_order_relaxed),
	};
}

/* --- what OpenSSL allocates --------------------------------------------------------------------------------------- */

static _Thread_local bool meant;

void key_memory_begin(void)
{
	meant = true;
}

void key_memory_end(void)
{
	meant = false;
}

bool key_memory_is_meant(void)
{
	return meant;
}
