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

#define UNIT 64u
#define UNITS_MAX 64u /* of a block */
#define NOTHING 0u    /* a number of no unit: the first one is never used */
#define DEFAULT_BYTES (UINT64_C(64) << 20)

static struct {
	uint8_t *memory;
	uint64_t bytes;
	uint32_t units;
	enum xts_tls_key_memory kind;
	uint8_t *size_of;          /* by unit: units of the block that begins there; settled when it is cut off */
	_Atomic uint32_t *next_of; /* by unit: the free block behind this one */
	_Atomic uint32_t fresh;    /* the first unit that has never been used */
	/* by units: the free blocks of this size. Above the unit is a count, so that a block that was taken and given
	 * back meanwhile is not mistaken for one that has stayed (ABA). */
	_Atomic uint64_t free[UNITS_MAX + 1];
	_Atomic uint64_t used, most, refused; /* bytes, bytes, blocks */
} keys;

static pthread_once_t opened = PTHREAD_ONCE_INIT;

/* --- the mapping -------------------------------------------------------------------------------------------------- */

/* Memory that only this process sees; MAP_FAILED. It counts as locked. */
static void *map_secret(uint64_t bytes)
{
	int fd = (int)syscall(__NR_memfd_secret, 02000000 /* O_CLOEXEC */), error;
	void *map;

	if (fd < 0)
		return MAP_FAILED;
	map = ftruncate(fd, (off_t)bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = errno;
	if (map != MAP_FAILED)
		(void)madvise(map, bytes, MADV_DONTFORK);
	close(fd);
	errno = error;
	return map;
}

static void *map_ordinary(uint64_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return map;
	(void)madvise(map, bytes, MADV_DONTDUMP);
	(void)madvise(map, bytes, MADV_WIPEONFORK);
	return map;
}

/* Lists for blocks, whose pages are taken as they are needed, too. 0 or -errno. */
static int make_lists(uint64_t bytes)
{
	size_t units = bytes / UNIT;
	uint8_t *lists = mmap(NULL, units * (sizeof *keys.next_of + sizeof *keys.size_of), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (lists == MAP_FAILED)
		return -errno;
	keys.units = (uint32_t)units;
	keys.next_of = (_Atomic uint32_t *)(void *)lists;
	keys.size_of = lists + units * sizeof *keys.next_of;
	atomic_store(&keys.fresh, NOTHING + 1);
	return 0;
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
	error = make_lists(bytes);
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

static uint32_t unit_of(const void *block)
{
	return (uint32_t)((uintptr_t)((const uint8_t *)block - keys.memory) / UNIT);
}

/* A free block of this size: its first unit, or NOTHING. */
static uint32_t pop(uint32_t units)
{
	uint64_t head = atomic_load_explicit(&keys.free[units], memory_order_acquire), next;
	uint32_t unit;

	do {
		unit = (uint32_t)head;
		if (unit == NOTHING)
			return NOTHING;
		next = ((head >> 32) + 1) << 32 | atomic_load_explicit(&keys.next_of[unit], memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&keys.free[units], &head, next, memory_order_acquire,
							memory_order_acquire));
	return unit;
}

static void push(uint32_t units, uint32_t unit)
{
	uint64_t head = atomic_load_explicit(&keys.free[units], memory_order_relaxed);

	do {
		atomic_store_explicit(&keys.next_of[unit], (uint32_t)head, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&keys.free[units], &head, ((head >> 32) + 1) << 32 | unit,
							memory_order_release, memory_order_relaxed));
}

/* A block of what has never been used: its first unit, or NOTHING. */
static uint32_t cut(uint32_t units)
{
	uint32_t fresh = atomic_load_explicit(&keys.fresh, memory_order_relaxed);

	do {
		if (keys.units - fresh < units)
			return NOTHING;
	} while (!atomic_compare_exchange_weak_explicit(&keys.fresh, &fresh, fresh + units, memory_order_relaxed,
							memory_order_relaxed));
	keys.size_of[fresh] = (uint8_t)units;
	return fresh;
}

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
	uint32_t units = (uint32_t)((bytes + UNIT - 1) / UNIT), unit;

	(void)pthread_once(&opened, open_once);
	if (!keys.memory || !bytes || bytes > (size_t)UNITS_MAX * UNIT)
		return NULL;
	unit = pop(units);
	if (unit == NOTHING)
		unit = cut(units);
	if (unit == NOTHING) {
		atomic_fetch_add_explicit(&keys.refused, 1, memory_order_relaxed);
		return NULL;
	}
	count_use((uint64_t)units * UNIT);
	ALLOW(keys.memory + (size_t)unit * UNIT, (size_t)units * UNIT);
	return keys.memory + (size_t)unit * UNIT;
}

void key_memory_give(void *block)
{
	uint32_t unit, units;

	if (!block)
		return;
	unit = unit_of(block);
	units = keys.size_of[unit];
	ALLOW(block, (size_t)units * UNIT);
	explicit_bzero(block, (size_t)units * UNIT);
	FORBID(block, (size_t)units * UNIT);
	atomic_fetch_sub_explicit(&keys.used, (uint64_t)units * UNIT, memory_order_relaxed);
	push(units, unit);
}

bool key_memory_has(const void *block)
{
	uintptr_t begin = (uintptr_t)keys.memory;

	return begin && (uintptr_t)block >= begin && (uintptr_t)block < begin + keys.bytes;
}

size_t key_memory_bytes(const void *block)
{
	return (size_t)keys.size_of[unit_of(block)] * UNIT;
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
