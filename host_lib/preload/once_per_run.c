/* The page that the processes of a run share: see once_per_run.h. */
#include "once_per_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file_limit.h"
#include "settings/environment.h"
#include "preload.h"

#define WORD_BITS 64u

struct run_page { /* xts_socket/_once_per_run.py knows it, too */
	_Atomic uint64_t bits[ONCE_BITS / WORD_BITS];
	_Atomic uint64_t offloaded, refused, reason;
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct run_page) == ONCE_BYTES, "the page");

static struct run_page own; /* used if no page is shared */
static struct run_page *_Atomic shared = &own;
static atomic_bool looked;
static int page_fd = -1; /* of the first process */
static pid_t first;      /* its number, in that process and its children */
static bool is_strict;

static struct run_page *map(int fd)
{
	struct run_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

/* Makes the page in the first process. Others find it in /proc as long as that process lives. */
static void make(void)
{
	int fd = real()->memfd_create(ONCE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct run_page *page = NULL;

	if (fd < 0)
		return;
	if (xts_limited_truncate(fd, sizeof *page) == 0)
		page = map(fd);
	if (!page) {
		real()->close(fd);
		return;
	}
	real()->fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	page_fd = descriptor_own(fd);
	atomic_store(&shared, page);
}

/* Checks the length, since another program of this user could have made a page of another length. */
static struct run_page *take(int directory, const char *name)
{
	static const char wanted[] = "/memfd:" ONCE_NAME " (deleted)";
	struct run_page *page = NULL;
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
	struct run_page *page = NULL;
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
		atomic_store(&shared, page);
}

/* The page that this process had before it executed this program. */
static bool keep(void)
{
	struct run_page *page = NULL;
	struct dirent *entry;
	DIR *directory = opendir("/proc/self/fd");
	int fd = -1;

	if (!directory)
		return false;
	while (!page && (entry = readdir(directory))) {
		page = take(dirfd(directory), entry->d_name);
		fd = (int)strtol(entry->d_name, NULL, 10);
	}
	closedir(directory);
	if (!page)
		return false;
	real()->fcntl(fd, F_SETFD, FD_CLOEXEC);
	page_fd = descriptor_own(fd);
	atomic_store(&shared, page);
	return true;
}

void once_per_run_start(bool strict)
{
	uint32_t root = 0;

	is_strict = strict;
	xts_environment_number(XTS_ENV_ROOT_PID, &root);
	if (root && root == (uint32_t)getpid()) {
		first = getpid();
		if (!strict || !keep())
			make();
	} else if (root && strict) {
		look_in(root);
	}
	if (!root || strict || root == (uint32_t)getpid())
		atomic_store(&looked, true);
}

bool once_per_run(unsigned number)
{
	uint32_t root = 0;
	uint64_t bit = UINT64_C(1) << number % WORD_BITS;

	if (!atomic_exchange(&looked, true) && xts_environment_number(XTS_ENV_ROOT_PID, &root) == 0)
		look_in(root);
	return !(atomic_fetch_or(&atomic_load(&shared)->bits[number / WORD_BITS], bit) & bit);
}

/* --- strict runs -------------------------------------------------------------------------------------------------- */

void run_count_offloaded(void)
{
	if (is_strict)
		atomic_fetch_add_explicit(&atomic_load(&shared)->offloaded, 1, memory_order_relaxed);
}

void run_count_refused(unsigned reason)
{
	struct run_page *page = atomic_load(&shared);

	if (!is_strict)
		return;
	atomic_store_explicit(&page->reason, reason, memory_order_relaxed);
	atomic_fetch_add_explicit(&page->refused, 1, memory_order_relaxed);
}

struct run_sockets run_sockets(void)
{
	struct run_page *page = atomic_load(&shared);

	return (struct run_sockets){ .offloaded = page->offloaded,
				     .refused = page->refused,
				     .reason = (unsigned)page->reason };
}

bool run_is_first(void)
{
	return is_strict && first && getpid() == first;
}

void run_over_exec(bool about_to)
{
	if (run_is_first() && page_fd >= 0)
		real()->fcntl(page_fd, F_SETFD, about_to ? 0 : FD_CLOEXEC);
}
