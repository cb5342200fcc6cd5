/* The files of relatives; relatives_file.h says what is whose. */
#include "processes/relatives_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_limit.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "core/clock.h"

#define FIRST_RUN_NS (5 * NS_PER_S) /* a child that has not run by then is taken for dead */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

#define MAGIC 0x58545246u /* "XTRF" */
#define VERSION 1u        /* of files that this library makes */
#define COMPATIBLE 1u     /* the oldest that can use them */

/* Whoever changes it adds members at its end, or raises COMPATIBLE. */
_Static_assert(sizeof(struct common) == 208, "an entry");
#define ENTRY_BYTES_LEAST offsetof(struct common, status) /* of version 1 */

/* What servers read (relatives_files.py). */
_Static_assert(offsetof(struct relatives_file, slot) == 32 && offsetof(struct common, used) == 0 &&
		       offsetof(struct common, keeper) == 4 && offsetof(struct common, key) == 88 &&
		       offsetof(struct common, passed) == 100 && offsetof(struct common, has) == 112,
	       "as relatives_files.py has it");

static const struct layout own_layout = {
	.magic = MAGIC,
	.version = VERSION,
	.compatible = COMPATIBLE,
	.slots = RELATIVES_MAX,
	.entries = COMMON_MAX,
	.entries_at = offsetof(struct relatives_file, common),
	.entry_bytes = sizeof(struct common),
};

struct family *families;
uint64_t families_last_number;
pthread_mutex_t families_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- slots -------------------------------------------------------------------------------------------------------- */

bool family_lock_slot(const struct family *f, uint32_t slot)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(f->fd, F_SETLK, &lock) == 0;
}

static bool is_locked(const struct family *f, uint32_t slot)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(f->fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

bool family_lives(const struct family *f, uint32_t slot)
{
	uint64_t since = atomic_load(&f->file->slot[slot]);

	if (slot == f->slot)
		return true;
	return is_locked(f, slot) || (!(since & SLOT_RUNS) && since && now_ns() - since < FIRST_RUN_NS);
}

uint64_t slot_reserved_now(void)
{
	return now_ns() & ~SLOT_RUNS;
}

void family_runs(const struct family *f)
{
	atomic_fetch_or(&f->file->slot[f->slot], SLOT_RUNS);
}

/* --- one file ----------------------------------------------------------------------------------------------------- */

int family_read_layout(int fd, struct layout *l, size_t *bytes)
{
	struct stat file;

	if (fcntl(fd, F_GET_SEALS) != SEALS || pread(fd, l, sizeof *l, 0) != (ssize_t)sizeof *l || l->magic != MAGIC ||
	    fstat(fd, &file) < 0)
		return -ENOENT;
	*bytes = (size_t)file.st_size;
	if (l->compatible > VERSION || l->compatible > l->version)
		return -EPROTONOSUPPORT;
	if (l->slots != RELATIVES_MAX || !l->entries || l->entries > COMMON_MAX || l->entry_bytes % sizeof(uint64_t) ||
	    l->entries_at % sizeof(uint64_t) || l->entry_bytes < ENTRY_BYTES_LEAST ||
	    l->entries_at < offsetof(struct relatives_file, common) || *bytes < l->entries_at ||
	    (*bytes - l->entries_at) / l->entries < l->entry_bytes)
		return -ENOENT;
	return 0;
}

static struct relatives_file *map(int fd, size_t bytes)
{
	struct relatives_file *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return file == MAP_FAILED ? NULL : file;
}

struct family *family_join(int fd, uint32_t slot, const struct layout *layout, size_t bytes)
{
	struct family *f = calloc(1, sizeof *f);

	if (!f)
		return NULL;
	f->layout = *layout;
	f->bytes = bytes;
	f->file = map(fd, bytes);
	if (!f->file) {
		free(f);
		return NULL;
	}
	/* Until it is locked: the descriptor may get another number, which drops a lock. */
	atomic_store(&f->file->slot[slot], slot_reserved_now());
	f->fd_before = fd;
	f->fd = xts_own(fd);
	f->slot = slot;
	f->child = RELATIVES_MAX;
	f->number = ++families_last_number;
	(void)family_lock_slot(f, slot);
	family_runs(f);
	f->next = families;
	families = f;
	return f;
}

void family_give_up(struct family *f)
{
	munmap(f->file, f->bytes);
	xts_own_close(f->fd);
	xts_release(f);
}

static struct family *make_file(void)
{
	int fd = memfd_create("xts-relatives", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct family *f = NULL;

	if (fd < 0)
		return NULL;
	if (xts_limited_truncate(fd, sizeof(struct relatives_file)) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0 &&
	    xts_limited_pwrite(fd, &own_layout, sizeof own_layout, 0) == (ssize_t)sizeof own_layout)
		f = family_join(fd, 0, &own_layout, sizeof(struct relatives_file));
	if (!f) {
		close(fd);
		return NULL;
	}
	f->fd_before = -1;
	return f;
}

struct family *family_incomplete(void)
{
	struct family *f = families;

	while (f && f->complete)
		f = f->next;
	return f ? f : make_file();
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

void relatives_begin(void)
{
	pthread_mutex_lock(&families_lock);
	(void)family_incomplete();
	pthread_mutex_unlock(&families_lock);
}

struct family *family_of(const struct common *c)
{
	struct family *f;

	pthread_mutex_lock(&families_lock);
	f = families;
	while (f && (c < family_entry(f, 0) || c >= family_entry(f, f->layout.entries)))
		f = f->next;
	pthread_mutex_unlock(&families_lock);
	return f;
}

static const struct family *first_after(uint64_t told)
{
	const struct family *first = NULL;

	for (const struct family *f = families; f; f = f->next)
		if (f->entries && f->number > told && (!first || f->number < first->number))
			first = f;
	return first;
}

void relatives_tell(uint64_t *told, void (*tell)(const void *context, int fd), const void *context)
{
	const struct family *f;

	pthread_mutex_lock(&families_lock);
	for (f = first_after(*told); f; f = first_after(*told)) {
		*told = f->number;
		tell(context, f->fd);
	}
	pthread_mutex_unlock(&families_lock);
}

void relatives_drop(struct common *c)
{
	struct family *f = family_of(c), **at = &families;

	pthread_mutex_lock(&families_lock);
	while (f && *at != f)
		at = &(*at)->next;
	if (f && --f->entries == 0) {
		*at = f->next;
		family_give_up(f);
	}
	pthread_mutex_unlock(&families_lock);
}
