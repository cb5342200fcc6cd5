/* What the files of relatives become over fork() and exec(): a child and a new program have what was given to them.
 * relatives.h has the theory of operation. */
#include "processes/relatives_file.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* --- fork --------------------------------------------------------------------------------------------------------- */

static bool take_slot(struct family *f, uint32_t slot, uint64_t was)
{
	if (family_lives(f, slot) || !atomic_compare_exchange_strong(&f->file->slot[slot], &was, slot_reserved_now()))
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
			if (atomic_load_explicit(&family_entry(f, at)->used, memory_order_relaxed))
				common_clear_bit(family_entry(f, at), i);
	}
	return f->child != RELATIVES_MAX;
}

bool relatives_give_child(struct common *c)
{
	struct family *f = family_of(c);

	if (!f || !expect_child(f))
		return false;
	atomic_fetch_or(&c->has[f->child / 64], slot_bit(f->child));
	return true;
}

static void become_child(struct family *f)
{
	f->slot = f->child; /* RELATIVES_MAX: it has nothing there */
	f->entries = 0;
	f->complete = true;
	f->fd_before = -1;
	if (f->slot < RELATIVES_MAX && family_lock_slot(f, f->slot))
		family_runs(f);
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

	if (!family_has(f, c))
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
		family_give_up(f);
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
		atomic_store(&f->file->slot[f->slot], slot_reserved_now());
	else
		family_runs(f);
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
		.index = (uint32_t)((size_t)((uint8_t *)c - (uint8_t *)family_entry(f, 0)) / f->layout.entry_bytes),
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

	if (family_read_layout(fd, &layout, &bytes) == -ENOENT)
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
	r = family_read_layout(place->fd, &layout, &bytes);
	if (r)
		return r;
	*out = f = family_join(place->fd, place->slot, &layout, bytes);
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
		c = family_entry(f, place->index);
	if (!r && (!c || !family_has(f, c)))
		r = -ENOENT;
	if (!r) {
		f->entries++;
		*out = c;
	}
	pthread_mutex_unlock(&families_lock);
	return r;
}
