/* Which processes have a copy of a connection: the entries. relatives.h has the theory of operation. */
#include "processes/relatives_file.h"

static void set_own_bit(struct common *c)
{
	const struct family *f = family_of(c);

	if (f)
		atomic_fetch_or(&c->has[f->slot / 64], slot_bit(f->slot));
}

static void clear_own_bit(struct common *c)
{
	const struct family *f = family_of(c);

	if (f)
		common_clear_bit(c, f->slot);
}

bool relatives_seem_to_have(const struct common *c)
{
	const struct family *f = family_of(c);
	uint64_t others = 0;

	for (uint32_t i = 0; f && i < WORDS; i++)
		others |= atomic_load_explicit(&c->has[i], memory_order_relaxed) &
			  ~(i == f->slot / 64 ? slot_bit(f->slot) : 0);
	return others;
}

/* The process that had the slot has died. True: the slot belongs to another process by now, which may have the
 * connection. */
static bool is_reused(const struct family *f, struct common *c, uint32_t slot, uint64_t since)
{
	common_clear_bit(c, slot);
	if (atomic_load(&f->file->slot[slot]) == since)
		return false;
	atomic_fetch_or(&c->has[slot / 64], slot_bit(slot)); /* wrong, at worst, until that process ends */
	return true;
}

static bool is_known(const struct family *f, const struct living *living, uint32_t slot)
{
	return living && living->file == f && living->known[slot / 64] & slot_bit(slot);
}

static void note_living(const struct family *f, struct living *living, uint32_t slot)
{
	if (!living)
		return;
	if (living->file != f)
		*living = (struct living){ .file = f };
	living->known[slot / 64] |= slot_bit(slot);
}

static bool others_have(const struct family *f, struct common *c, struct living *living)
{
	for (uint32_t i = 0; f && i < RELATIVES_MAX; i++) {
		uint64_t word = atomic_load(&c->has[i / 64]), since;

		if (!word) {
			i |= 63;
			continue;
		}
		if (i == f->slot || !(word & slot_bit(i)))
			continue;
		since = atomic_load(&f->file->slot[i]);
		if (is_known(f, living, i) || family_lives(f, i)) {
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

	return f && keeper && keeper <= RELATIVES_MAX && family_lives(f, keeper - 1);
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
		struct common *c = family_entry(f, at);

		if (!atomic_compare_exchange_strong(&c->used, &is_free, 1))
			continue;
		atomic_store(&f->file->free_hint, at + 1);
		for (uint32_t word = 0; word < WORDS; word++)
			atomic_store(&c->has[word], 0);
		atomic_store(&c->has[f->slot / 64], slot_bit(f->slot));
		atomic_store(&c->keeper, 0);
		atomic_store(&c->passed, 0);
		atomic_store(&c->received, 0);
		atomic_store(&c->key, 0);
		atomic_store(&c->left, 0);
		if (f->layout.entry_bytes >= sizeof *c)
			atomic_store(&c->status.changes, 0);
		if (!f->entries++)
			f->number = ++families_last_number; /* not before: relatives_tell() passes over an empty one */
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
		f = family_incomplete();
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
