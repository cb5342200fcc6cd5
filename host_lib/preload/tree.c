/* What has been told on standard error: see tree.h. */
#include "tree.h"

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

struct told {
	_Atomic uint64_t reasons[TREE_BITS / WORD_BITS];
};
_Static_assert(sizeof(struct told) == TREE_BYTES, "the page");

static struct told own;                    /* where nothing is shared */
static struct told *_Atomic told = &own;
static atomic_bool looked;

static struct told *map(int fd)
{
	struct told *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

/* The first process: its page is found in /proc as long as it lives. */
static void make(void)
{
	int fd = real()->memfd_create(TREE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct told *page = NULL;

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
	atomic_store(&told, page);
}

/* Whoever runs as this user could have put one of another length there. */
static struct told *take(int directory, const char *name)
{
	static const char wanted[] = "/memfd:" TREE_NAME " (deleted)";
	struct told *page = NULL;
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
	struct told *page = NULL;
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof path, "/proc/%u/fd", pid);
	directory = opendir(path);
	if (!directory)
		return; /* it has gone, or is another user's: this process tells for itself */
	while (!page && (entry = readdir(directory)))
		page = take(dirfd(directory), entry->d_name);
	closedir(directory);
	if (page)
		atomic_store(&told, page);
}

void tree_start(void)
{
	uint32_t root = 0;

	xts_environment_number(XTS_ENV_ROOT_PID, &root);
	if (root && root == (uint32_t)getpid())
		make();
	if (!root || root == (uint32_t)getpid())
		atomic_store(&looked, true);
}

bool tree_tells(unsigned number)
{
	uint32_t root = 0;
	uint64_t bit = UINT64_C(1) << number % WORD_BITS;

	if (!atomic_exchange(&looked, true) && xts_environment_number(XTS_ENV_ROOT_PID, &root) == 0)
		look_in(root);
	return !(atomic_fetch_or(&atomic_load(&told)->reasons[number / WORD_BITS], bit) & bit);
}
