/* Which processes have a copy of a connection. relatives.h has the theory of operation. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "common/file_limit.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "processes/relatives.h"

#define FIRST_RUN_NS (5 * NS_PER_S) /* a child that has not run by then is taken for dead */
#define WORDS (RELATIVES_MAX / 64)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* In a slot: when it was reserved, and whether its process has run since. So no two processes leave the same there. */
#define SLOT_FREE UINT64_C(0)
#define SLOT_RUNS UINT64_C(1)

#define MAGIC 0x58545246u /* "XTRF" */
#define VERSION 1u        /* of files that this library makes */
#define COMPATIBLE 1u     /* the oldest that can use them */

/* At the beginning, in all versions. It is read once: a relative may write to it. */
struct layout {
	uint32_t magic, version, compatible, slots;
	uint32_t entries, entries_at, entry_bytes;
};

struct relatives_file {
	struct layout layout;
	_Atomic uint64_t slot[RELATIVES_MAX];
	_Atomic uint32_t free_hint;
	struct common common[COMMON_MAX];
};

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

/* A file, as this process has it. */
struct family {
	struct family *next;
	struct relatives_file *file;
	struct layout layout; /* of this file */
	size_t bytes;
	int fd;
	int fd_before;        /* its number when this program began; -1: it has made or inherited the file */
	uint32_t slot, child; /* this process's slot; that of the child that a fork will create; RELATIVES_MAX: none */
	uint64_t number;      /* this process's own: a file that it uses later has a greater one */
	uint32_t entries;     /* how many of them this process uses */
	bool complete;        /* another process has the file: it gets no more entries */
};

static struct common *entry_at(const struct family *f, uint32_t i)
{
	return (struct common *)(void *)((uint8_t *)f->file + f->layout.entries_at + (size_t)i * f->layout.entry_bytes);
}

/* The list is of the process, and a caller has the lock of one of several stacks. At a fork nobody is in here, since
 * all stacks are locked. */
static struct family *families;
static uint64_t last_number;
static pthread_mutex_t families_lock = PTHREAD_MUTEX_INITIALIZER;

static struct family *family_of(const struct common *c)
{
	struct family *f;

	pthread_mutex_lock(&families_lock);
	f = families;
	while (f && (c < entry_at(f, 0) || c >= entry_at(f, f->layout.entries)))
		f = f->next;
	pthread_mutex_unlock(&families_lock);
	return f;
}

static bool lock_slot(const struct family *f, uint32_t slot)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(f->fd, F_SETLK, &lock) == 0;
}

static bool is_locked(const struct family *f, uint32_t slot)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(f->fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* The lock decides, and what is written in the slot only until there is one: another process may have overwritten it.
 */
static bool lives(const struct family *f, uint32_t slot)
{
	uint64_t since = atomic_load(&f->file->slot[slot]);

	if (slot == f->slot)
		return true;
	return is_locked(f, slot) || (!(since & SLOT_RUNS) && since && now_ns() - since < FIRST_RUN_NS);
}

static uint64_t reserved_now(void)
{
	return now_ns() & ~SLOT_RUNS;
}

static void runs(const struct family *f)
{
	atomic_fetch_or(&f->file->slot[f->slot], SLOT_RUNS);
}

/* 0; -ENOENT: it is no such file; -EPROTONOSUPPORT. */
static int read_layout(int fd, struct layout *l, size_t *bytes)
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

/* Takes the file for this process, in that slot. NULL: no memory; the descriptor is still the caller's. */
static struct family *join(int fd, uint32_t slot, const struct layout *layout, size_t bytes)
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
	atomic_store(&f->file->slot[slot], reserved_now());
	f->fd_before = fd;
	f->fd = xts_own(fd);
	f->slot = slot;
	f->child = RELATIVES_MAX;
	f->number = ++last_number;
	(void)lock_slot(f, slot);
	runs(f);
	f->next = families;
	families = f;
	return f;
}

static void give_up(struct family *f)
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
		f = join(fd, 0, &own_layout, sizeof(struct relatives_file));
	if (!f) {
		close(fd);
		return NULL;
	}
	f->fd_before = -1;
	return f;
}

/* The file that gets new entries. */
static struct family *incomplete(void)
{
	struct family *f = families;

	while (f && f->complete)
		f = f->next;
	return f ? f : make_file();
}

void relatives_begin(void)
{
	pthread_mutex_lock(&families_lock);
	(void)incomplete();
	pthread_mutex_unlock(&families_lock);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

static uint64_t bit(uint32_t slot)
{
	return UINT64_C(1) << slot % 64;
}

static bool has(const struct family *f, const struct common *c)
{
	return f && f->slot < RELATIVES_MAX && atomic_load(&c->has[f->slot / 64]) & bit(f->slot);
}

/* Of a process that leaves, or has died. Who uses the connection learns that somebody else knows its key. */
static void clear_bit(struct common *c, uint32_t slot)
{
	if (atomic_fetch_and(&c->has[slot / 64], ~bit(slot)) & bit(slot))
		atomic_store(&c->left, 1);
}

static void set_own_bit(struct common *c)
{
	const struct family *f = family_of(c);

	if (f)
		atomic_fetch_or(&c->has[f->slot / 64], bit(f->slot));
}

static void clear_own_bit(struct common *c)
{
	const struct family *f = family_of(c);

	if (f)
		clear_bit(c, f->slot);
}

bool relatives_seem_to_have(const struct common *c)
{
	const struct family *f = family_of(c);
	uint64_t others = 0;

	for (uint32_t i = 0; f && i < WORDS; i++)
		others |= atomic_load_explicit(&c->has[i], memory_order_relaxed) &
			  ~(i == f->slot / 64 ? bit(f->slot) : 0);
	return others;
}

/* The process that had the slot has died. True: the slot belongs to another process by now, which may have the
 * connection. */
static bool is_reused(const struct family *f, struct common *c, uint32_t slot, uint64_t since)
{
	clear_bit(c, slot);
	if (atomic_load(&f->file->slot[slot]) == since)
		return false;
	atomic_fetch_or(&c->has[slot / 64], bit(slot)); /* wrong, at worst, until that process ends */
	return true;
}

static bool is_known(const struct family *f, const struct living *living, uint32_t slot)
{
	return living && living->file == f && living->known[slot / 64] & bit(slot);
}

static void note_living(const struct family *f, struct living *living, uint32_t slot)
{
	if (!living)
		return;
	if (living->file != f)
		*living = (struct living){ .file = f };
	living->known[slot / 64] |= bit(slot);
}

static bool others_have(const struct family *f, struct common *c, struct living *living)
{
	for (uint32_t i = 0; f && i < RELATIVES_MAX; i++) {
		uint64_t word = atomic_load(&c->has[i / 64]), since;

		if (!word) {
			i |= 63;
			continue;
		}
		if (i == f->slot || !(word & bit(i)))
			continue;
		since = atomic_load(&f->file->slot[i]);
		if (is_known(f, living, i) || lives(f, i)) {
			note_living(f, living, i);
			return true;
		}
		if (is_reused(f, c, i, since))
			return true;
	}
	return false;
}

bool relatives_others_have(struct common *c, struct living *living)
{
	return others_have(family_of(c), c, living);
}

static bool is_kept(const struct family *f, const struct common *c)
{
	uint32_t keeper = atomic_load(&c->keeper);

	return f && keeper && keeper <= RELATIVES_MAX && lives(f, keeper - 1);
}

/* If several processes leave at the same time, each may see no other: exactly one of them frees the entry. */
static bool free_entry(struct common *c)
{
	uint32_t used = 1;

	return atomic_compare_exchange_strong(&c->used, &used, 0);
}

static bool is_left(struct common *c)
{
	const struct family *f = family_of(c);

	return others_have(f, c, NULL) || is_kept(f, c) || !free_entry(c);
}

/* This process is the keeper no longer, unless another one is by now. */
static void keep_no_more(struct common *c)
{
	const struct family *f = family_of(c);
	uint32_t keeper = f ? f->slot + 1 : 0;

	(void)atomic_compare_exchange_strong(&c->keeper, &keeper, 0);
}

bool relatives_leave(struct common *c)
{
	clear_own_bit(c);
	return is_left(c);
}

void relatives_rejoin(struct common *c)
{
	set_own_bit(c);
}

void relatives_keep(struct common *c)
{
	const struct family *f = family_of(c);

	if (f)
		atomic_store(&c->keeper, f->slot + 1);
	clear_own_bit(c);
}

void relatives_have_again(struct common *c)
{
	set_own_bit(c);
	keep_no_more(c);
}

bool relatives_kept(struct common *c)
{
	keep_no_more(c);
	return is_left(c);
}

static struct common *take_entry(struct family *f)
{
	uint32_t hint = atomic_load(&f->file->free_hint);

	for (uint32_t i = 0; i < f->layout.entries; i++) {
		uint32_t at = (hint + i) % f->layout.entries, is_free = 0;
		struct common *c = entry_at(f, at);

		if (!atomic_compare_exchange_strong(&c->used, &is_free, 1))
			continue;
		atomic_store(&f->file->free_hint, at + 1);
		for (uint32_t word = 0; word < WORDS; word++)
			atomic_store(&c->has[word], 0);
		atomic_store(&c->has[f->slot / 64], bit(f->slot));
		atomic_store(&c->keeper, 0);
		atomic_store(&c->passed, 0);
		atomic_store(&c->received, 0);
		atomic_store(&c->key, 0);
		atomic_store(&c->left, 0);
		if (f->layout.entry_bytes >= sizeof *c)
			atomic_store(&c->status.changes, 0);
		if (!f->entries++)
			f->number = ++last_number; /* not before: relatives_tell() passes over an empty one */
		return c;
	}
	f->complete = true; /* it is full */
	return NULL;
}

struct common *relatives_add(void)
{
	struct common *c = NULL;
	struct family *f;

	pthread_mutex_lock(&families_lock);
	for (int i = 0; !c && i < 2; i++) {
		f = incomplete();
		c = f ? take_entry(f) : NULL;
	}
	pthread_mutex_unlock(&families_lock);
	return c;
}

struct shared_status *relatives_status(struct common *c)
{
	const struct family *f = family_of(c);

	return f && f->layout.entry_bytes >= sizeof *c ? &c->status : NULL;
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
		give_up(f);
	}
	pthread_mutex_unlock(&families_lock);
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

static bool take_slot(struct family *f, uint32_t slot, uint64_t was)
{
	if (lives(f, slot) || !atomic_compare_exchange_strong(&f->file->slot[slot], &was, reserved_now()))
		return false;
	f->child = slot;
	return true;
}

/* Reserves a slot for the child. */
static bool expect_child(struct family *f)
{
	for (uint32_t i = 0; i < RELATIVES_MAX && f->child == RELATIVES_MAX; i++)
		if (atomic_load(&f->file->slot[i]) == SLOT_FREE)
			(void)take_slot(f, i, SLOT_FREE);
	for (uint32_t i = 0; i < RELATIVES_MAX && f->child == RELATIVES_MAX; i++) {
		if (!take_slot(f, i, atomic_load(&f->file->slot[i])))
			continue;
		for (uint32_t at = 0; at < f->layout.entries; at++)
			if (atomic_load_explicit(&entry_at(f, at)->used, memory_order_relaxed))
				clear_bit(entry_at(f, at), i);
	}
	return f->child != RELATIVES_MAX;
}

bool relatives_give_child(struct common *c)
{
	struct family *f = family_of(c);

	if (!f || !expect_child(f))
		return false;
	atomic_fetch_or(&c->has[f->child / 64], bit(f->child));
	return true;
}

static void become_child(struct family *f)
{
	f->slot = f->child; /* RELATIVES_MAX: it has nothing there */
	f->entries = 0;
	f->complete = true;
	f->fd_before = -1;
	if (f->slot < RELATIVES_MAX && lock_slot(f, f->slot))
		runs(f);
}

void relatives_after_fork(bool is_child)
{
	for (struct family *f = families; f; f = f->next) {
		if (is_child)
			become_child(f);
		f->complete |= f->child != RELATIVES_MAX;
		f->child = RELATIVES_MAX;
	}
}

bool relatives_inherited(struct common *c)
{
	struct family *f = family_of(c);

	if (!has(f, c))
		return false;
	f->entries++;
	return true;
}

void relatives_drop_unused(void)
{
	struct family **at = &families;

	while (*at) {
		struct family *f = *at;

		if (f->entries) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		give_up(f);
	}
}

/* The slots are the parent's, and so are the descriptors, if the child has the same table of them. */
void relatives_orphaned(void)
{
	pthread_mutex_init(&families_lock, NULL);
	for (struct family *f = families; f; f = f->next)
		munmap(f->file, f->bytes);
	families = NULL;
}

/* --- exec --------------------------------------------------------------------------------------------------------- */

static void keep_over_exec(struct family *f, bool keep)
{
	ioctl(f->fd, keep ? FIONCLEX : FIOCLEX);
	if (keep)
		atomic_store(&f->file->slot[f->slot], reserved_now());
	else
		runs(f);
}

/* The record lock is dropped when any descriptor of the file is closed, and the new program may close one before it
 * knows of the file. So meanwhile the process counts as alive in the same way as a child that has not run yet. */
struct relatives_place relatives_pass(struct common *c)
{
	struct family *f = family_of(c);

	if (!f)
		return (struct relatives_place){ .fd = -1 };
	keep_over_exec(f, true);
	return (struct relatives_place){
		.fd = f->fd,
		.slot = f->slot,
		.index = (uint32_t)((size_t)((uint8_t *)c - (uint8_t *)entry_at(f, 0)) / f->layout.entry_bytes),
	};
}

void relatives_resume(void)
{
	pthread_mutex_lock(&families_lock);
	for (struct family *f = families; f; f = f->next)
		keep_over_exec(f, false);
	pthread_mutex_unlock(&families_lock);
}

bool relatives_unused(int fd)
{
	struct layout layout;
	struct family *f;
	size_t bytes;

	if (read_layout(fd, &layout, &bytes) == -ENOENT)
		return false;
	pthread_mutex_lock(&families_lock);
	f = families;
	while (f && f->fd_before != fd)
		f = f->next;
	pthread_mutex_unlock(&families_lock);
	return !f;
}

static int find_or_join(const struct relatives_place *place, struct family **out)
{
	struct family *f = families;
	struct layout layout;
	size_t bytes;
	int r;

	while (f && f->fd_before != place->fd)
		f = f->next;
	*out = f;
	if (f)
		return f->slot == place->slot ? 0 : -ENOENT;
	r = read_layout(place->fd, &layout, &bytes);
	if (r)
		return r;
	*out = f = join(place->fd, place->slot, &layout, bytes);
	if (!f)
		return -ENOMEM;
	f->complete = true;
	keep_over_exec(f, false);
	return 0;
}

int relatives_adopt(const struct relatives_place *place, struct common **out)
{
	struct common *c = NULL;
	struct family *f;
	int r = -ENOENT;

	*out = NULL;
	if (place->slot >= RELATIVES_MAX)
		return r;
	pthread_mutex_lock(&families_lock);
	r = find_or_join(place, &f);
	if (!r && place->index < f->layout.entries)
		c = entry_at(f, place->index);
	if (!r && (!c || !has(f, c)))
		r = -ENOENT;
	if (!r) {
		f->entries++;
		*out = c;
	}
	pthread_mutex_unlock(&families_lock);
	return r;
}
