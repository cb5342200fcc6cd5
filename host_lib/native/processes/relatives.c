/* Which processes have a copy of a connection. relatives.h has the theory of operation. */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "own_descriptors.h"
#include "processes/relatives.h"

#define FIRST_RUN_NS (5 * NS_PER_S) /* a child that has not run by then is taken for dead */
#define WORDS (RELATIVES_MAX / 64)

/* values above these: the time at which the slot was reserved for a child that has not run yet */
enum { SLOT_FREE, SLOT_LIVES };

struct relatives_file {
	_Atomic uint64_t slot[RELATIVES_MAX];
	_Atomic uint32_t free_hint;
	struct common common[COMMON_MAX];
};

static struct {
	struct relatives_file *file;
	int fd;
	uint32_t slot, child; /* this process's slot; the slot of the child that a fork will create, or RELATIVES_MAX */
} own = { .fd = -1, .child = RELATIVES_MAX };

static bool lock_slot(uint32_t slot)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(own.fd, F_SETLK, &lock) == 0;
}

static bool is_locked(uint32_t slot)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(own.fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

static bool lives(uint32_t slot)
{
	uint64_t since = atomic_load(&own.file->slot[slot]);

	if (slot == own.slot)
		return true;
	if (since == SLOT_FREE)
		return false;
	return is_locked(slot) || (since != SLOT_LIVES && now_ns() - since < FIRST_RUN_NS);
}

static bool map(int fd)
{
	own.file = mmap(NULL, sizeof *own.file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (own.file == MAP_FAILED)
		own.file = NULL;
	return own.file;
}

/* Creates the file, in the first of these processes. */
static bool make_file(void)
{
	int fd;

	if (own.file)
		return true;
	fd = memfd_create("xts-relatives", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return false;
	if (ftruncate(fd, sizeof *own.file) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0 || !map(fd)) {
		close(fd);
		return false;
	}
	own.fd = xts_own(fd);
	own.slot = 0;
	own.child = RELATIVES_MAX;
	atomic_store(&own.file->slot[0], SLOT_LIVES);
	return lock_slot(0);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

static uint64_t bit(uint32_t slot)
{
	return UINT64_C(1) << slot % 64;
}

bool relatives_have(const struct common *c)
{
	return atomic_load(&c->has[own.slot / 64]) & bit(own.slot);
}

/* Clears the bit of a process that has died. */
static void clear_bit_of(struct common *c, uint32_t slot)
{
	atomic_fetch_and(&c->has[slot / 64], ~bit(slot));
}

bool relatives_seem_to_have(const struct common *c)
{
	uint64_t others = 0;

	for (uint32_t i = 0; i < WORDS; i++)
		others |= atomic_load_explicit(&c->has[i], memory_order_relaxed) &
			  ~(i == own.slot / 64 ? bit(own.slot) : 0);
	return others;
}

/* The process that had the slot has died. True: the slot belongs to another process by now, which may have the
 * connection. */
static bool is_reused(struct common *c, uint32_t slot, uint64_t since)
{
	clear_bit_of(c, slot);
	if (atomic_load(&own.file->slot[slot]) == since)
		return false;
	atomic_fetch_or(&c->has[slot / 64], bit(slot)); /* wrong, at worst, until that process ends */
	return true;
}

static bool is_known(const struct living *living, uint32_t slot)
{
	return living && living->known[slot / 64] & bit(slot);
}

bool relatives_others_have(struct common *c, struct living *living)
{
	for (uint32_t i = 0; i < RELATIVES_MAX; i++) {
		uint64_t word = atomic_load(&c->has[i / 64]), since;

		if (!word) {
			i |= 63;
			continue;
		}
		if (i == own.slot || !(word & bit(i)))
			continue;
		since = atomic_load(&own.file->slot[i]);
		if (is_known(living, i) || lives(i)) {
			if (living)
				living->known[i / 64] |= bit(i);
			return true;
		}
		if (is_reused(c, i, since))
			return true;
	}
	return false;
}

static bool is_kept(const struct common *c)
{
	uint32_t keeper = atomic_load(&c->keeper);

	return keeper && keeper <= RELATIVES_MAX && lives(keeper - 1);
}

/* If several processes leave at the same time, each may see no other: exactly one of them frees the entry. */
static bool free_entry(struct common *c)
{
	uint32_t used = 1;

	return atomic_compare_exchange_strong(&c->used, &used, 0);
}

bool relatives_leave(struct common *c)
{
	clear_bit_of(c, own.slot);
	return relatives_others_have(c, NULL) || is_kept(c) || !free_entry(c);
}

void relatives_rejoin(struct common *c)
{
	atomic_fetch_or(&c->has[own.slot / 64], bit(own.slot));
}

void relatives_keep(struct common *c)
{
	atomic_store(&c->keeper, own.slot + 1);
	clear_bit_of(c, own.slot);
}

void relatives_have_again(struct common *c)
{
	uint32_t keeper = own.slot + 1; /* unless another process keeps it by now */

	relatives_rejoin(c);
	(void)atomic_compare_exchange_strong(&c->keeper, &keeper, 0);
}

bool relatives_kept(struct common *c)
{
	uint32_t keeper = own.slot + 1; /* unless another process keeps it by now */

	(void)atomic_compare_exchange_strong(&c->keeper, &keeper, 0);
	return relatives_others_have(c, NULL) || is_kept(c) || !free_entry(c);
}

struct common *relatives_add(void)
{
	uint32_t hint;

	if (!make_file())
		return NULL;
	hint = atomic_load(&own.file->free_hint);
	for (uint32_t i = 0; i < COMMON_MAX; i++) {
		uint32_t at = (hint + i) % COMMON_MAX, is_free = 0;
		struct common *c = &own.file->common[at];

		if (!atomic_compare_exchange_strong(&c->used, &is_free, 1))
			continue;
		atomic_store(&own.file->free_hint, at + 1);
		for (uint32_t word = 0; word < WORDS; word++)
			atomic_store(&c->has[word], 0);
		atomic_store(&c->has[own.slot / 64], bit(own.slot));
		atomic_store(&c->keeper, 0);
		atomic_store(&c->passed, 0);
		return c;
	}
	return NULL;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

static bool take_slot(uint32_t slot, uint64_t was)
{
	if (!atomic_compare_exchange_strong(&own.file->slot[slot], &was, now_ns()))
		return false;
	own.child = slot;
	return true;
}

bool relatives_expect_child(void)
{
	if (!make_file())
		return false;
	for (uint32_t i = 0; i < RELATIVES_MAX && own.child == RELATIVES_MAX; i++)
		if (atomic_load(&own.file->slot[i]) == SLOT_FREE)
			(void)take_slot(i, SLOT_FREE);
	for (uint32_t i = 0; i < RELATIVES_MAX && own.child == RELATIVES_MAX; i++) {
		uint64_t was = atomic_load(&own.file->slot[i]);

		if (lives(i) || !take_slot(i, was))
			continue;
		for (uint32_t at = 0; at < COMMON_MAX; at++)
			if (atomic_load_explicit(&own.file->common[at].used, memory_order_relaxed))
				clear_bit_of(&own.file->common[at], i);
	}
	return own.child != RELATIVES_MAX;
}

void relatives_give_child(struct common *c)
{
	atomic_fetch_or(&c->has[own.child / 64], bit(own.child));
}

void relatives_after_fork(bool is_child)
{
	if (is_child && own.child != RELATIVES_MAX) {
		own.slot = own.child;
		if (lock_slot(own.slot))
			atomic_store(&own.file->slot[own.slot], SLOT_LIVES);
	}
	own.child = RELATIVES_MAX;
}

/* The slot is the parent's. The file stays mapped and open: nothing refers to it. */
void relatives_orphaned(void)
{
	own.file = NULL;
	own.fd = -1;
	own.slot = 0;
	own.child = RELATIVES_MAX;
}

/* --- exec --------------------------------------------------------------------------------------------------------- */

/* The record lock is dropped when any descriptor of the file is closed, and the new program may close one before it
 * knows of the file. So meanwhile the process counts as alive in the same way as a child that has not run yet. */
int relatives_pass(bool pass)
{
	if (own.fd < 0)
		return -1;
	ioctl(own.fd, pass ? FIONCLEX : FIOCLEX);
	atomic_store(&own.file->slot[own.slot], pass ? now_ns() : SLOT_LIVES);
	return own.fd;
}

uint32_t relatives_slot(void)
{
	return own.slot;
}

uint32_t relatives_index(const struct common *c)
{
	return (uint32_t)(c - own.file->common);
}

struct common *relatives_adopt(int fd, uint32_t slot, uint32_t index)
{
	struct stat file;
	struct common *c;

	if (slot >= RELATIVES_MAX || index >= COMMON_MAX)
		return NULL;
	if (!own.file) {
		if (fstat(fd, &file) < 0 || file.st_size != sizeof *own.file || !map(fd))
			return NULL;
		/* This descriptor may get another number, which drops the lock. */
		atomic_store(&own.file->slot[slot], now_ns());
		own.fd = xts_own(fd);
		own.slot = slot;
		if (!lock_slot(slot))
			return NULL;
		atomic_store(&own.file->slot[slot], SLOT_LIVES);
		relatives_pass(false);
	}
	c = &own.file->common[index];
	return own.slot == slot && relatives_have(c) ? c : NULL;
}
