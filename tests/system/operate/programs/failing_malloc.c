/*
 * For LD_PRELOAD: lets memory run out for one library of a process. Of the allocations that are asked for by code of
 * libraries whose path contains $FAIL_IN, one in N fails. N is the first number in the file $FAIL_CONTROL, which is
 * mapped, so that a test can change it at any time (0: none fails); the second number counts those that have failed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGES_MAX 32

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);

static struct control {
	_Atomic uint32_t one_in, failed;
} *control;
static struct {
	uintptr_t first, end;
} ranges[RANGES_MAX];
static int range_count;
static _Atomic bool searched;
static _Atomic uint32_t seed = 1;

static int search(struct dl_phdr_info *library, size_t bytes, void *wanted)
{
	(void)bytes;
	if (!strstr(library->dlpi_name, wanted))
		return 0;
	for (int i = 0; i < library->dlpi_phnum && range_count < RANGES_MAX; i++) {
		const ElfW(Phdr) *part = &library->dlpi_phdr[i];

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		ranges[range_count].first = library->dlpi_addr + part->p_vaddr;
		ranges[range_count].end = ranges[range_count].first + part->p_memsz;
		range_count++;
	}
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("FAIL_CONTROL");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	if (at != MAP_FAILED)
		control = at;
}

static bool is_ours(uintptr_t caller)
{
	for (int i = 0; i < range_count; i++)
		if (caller >= ranges[i].first && caller < ranges[i].end)
			return true;
	return false;
}

static bool fails(const void *caller)
{
	uint32_t one_in = control ? control->one_in : 0, random;
	const char *wanted;

	if (!one_in)
		return false;
	if (!atomic_exchange(&searched, true)) { /* libraries that are loaded later are not found */
		wanted = getenv("FAIL_IN");
		dl_iterate_phdr(search, (void *)(wanted ? wanted : "no such library"));
	}
	if (!is_ours((uintptr_t)caller))
		return false;
	random = atomic_fetch_add(&seed, 1) * UINT32_C(2654435761);
	random ^= random >> 15;
	if (random % one_in)
		return false;
	control->failed++;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}
