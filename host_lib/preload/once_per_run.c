/* Which notices have been written to standard error: see once_per_run.h. */
#include "once_per_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "environment.h"
#include "preload.h"

#define WORD_BITS 64u

struct notices {
	_Atomic uint64_t bits[ONCE_BITS / WORD_BITS];
};
_Static_assert(sizeof(struct notices) == ONCE_BYTES, "the page");

static struct notices own; /* used if no page is shared */
static struct notices *_Atomic written = &own;
static atomic_bool looked;

static struct notices *map(int fd)
{
	struct notices *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

/* Makes the page in the first process. Others find it in /proc as long as that process lives. */
static void make(void)
{
	int fd = real()->memfd_create(ONCE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct notices *page = NULL;

	if (fd < 0)
		return;
	if (ftruncate(fd, sizeof *page) == 0)
		page = map(fd);
	if (!page) {
		real()->close(fd);
		return;
	}
	real()->fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	descriptor_own(fd);
	atomic_store(&written, page);
}

/* Checks the length, since another program of this user could have made a page of another length. */
static struct notices *take(int directory, const char *name)
{
	static const char wanted[] = "/memfd:" ONCE_NAME " (deleted)";
	struct notices *page = NULL;
	char link[sizeof wanted];
	ssize_t n = readlinkat(directory, name, link, sizeof link);
	int fd;

	if (n != sizeof wanted - 1 || memcmp(link, wanted, sizeof wanted - 1) != 0)
		return NULL;
	fd = real()->openat(directory, name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (real()->fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK && lseek(fd, 0, SEEK_END) == sizeof *page)
		page = map(fd);
	real()->close(fd);
	return page;
}

static void look_in(uint32_t pid)
{
	char path[32];
	struct notices *page = NULL;
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof path, "/proc/%u/fd", pid);
	directory = opendir(path);
	if (!directory)
		return; /* it has ended, or belongs to another user: this process uses a page of its own */
	while (!page && (entry = readdir(directory)))
		page = take(dirfd(directory), entry->d_name);
	closedir(directory);
	if (page)
		atomic_store(&written, page);
}

void once_per_run_start(void)
{
	uint32_t root = 0;

	xts_environment_number(XTS_ENV_ROOT_PID, &root);
	if (root && root == (uint32_t)getpid())
		make();
	if (!root || root == (uint32_t)getpid())
		atomic_store(&looked, true);
}

bool once_per_run(unsigned number)
{
	uint32_t root = 0;
	uint64_t bit = UINT64_C(1) << number % WORD_BITS;

	if (!atomic_exchange(&looked, true) && xts_environment_number(XTS_ENV_ROOT_PID, &root) == 0)
		look_in(root);
	return !(atomic_fetch_or(&atomic_load(&written)->bits[number / WORD_BITS], bit) & bit);
}
