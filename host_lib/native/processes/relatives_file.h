/*
 * The files of relatives, as this process has them (relatives.h): how a file is laid out, the list of those that are in
 * use, and the slots of processes. What is in the entries is relatives.c's, and what becomes of them over fork() and
 * exec() is relatives_fork.c's.
 */
#ifndef XTS_RELATIVES_FILE_H
#define XTS_RELATIVES_FILE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "processes/relatives.h"

#define WORDS (RELATIVES_MAX / 64)

/* In a slot: when it was reserved, and whether its process has run since. So no two processes leave the same there. */
#define SLOT_FREE UINT64_C(0)
#define SLOT_RUNS UINT64_C(1)

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

/* The list is of the process, and a caller has the lock of one of several stacks. At a fork nobody is in here, since
 * all stacks are locked. */
extern struct family *families;
extern uint64_t families_last_number;
extern pthread_mutex_t families_lock;

static inline struct common *family_entry(const struct family *f, uint32_t i)
{
	return (struct common *)(void *)((uint8_t *)f->file + f->layout.entries_at + (size_t)i * f->layout.entry_bytes);
}

static inline uint64_t slot_bit(uint32_t slot)
{
	return UINT64_C(1) << slot % 64;
}

static inline bool family_has(const struct family *f, const struct common *c)
{
	return f && f->slot < RELATIVES_MAX && atomic_load(&c->has[f->slot / 64]) & slot_bit(f->slot);
}

/* Of a process that leaves, or has died. Who uses the connection learns that somebody else knows its key. */
static inline void common_clear_bit(struct common *c, uint32_t slot)
{
	if (atomic_fetch_and(&c->has[slot / 64], ~slot_bit(slot)) & slot_bit(slot))
		atomic_store(&c->left, 1);
}

/* The file of this entry; NULL: this process does not have it any more. */
struct family *family_of(const struct common *c);
/* The same of a new entry; NULL: no file can be made. With the lock. */
struct family *family_incomplete(void);
/* 0; -ENOENT: it is no such file; -EPROTONOSUPPORT. */
int family_read_layout(int fd, struct layout *l, size_t *bytes);
/* Takes the file for this process, in that slot. NULL: no memory; the descriptor is still the caller's. */
struct family *family_join(int fd, uint32_t slot, const struct layout *layout, size_t bytes);
void family_give_up(struct family *f);

/* --- slots --- */

bool family_lock_slot(const struct family *f, uint32_t slot);
/* The lock decides, and what is written in the slot only until there is one: another process may have overwritten it.
 */
bool family_lives(const struct family *f, uint32_t slot);
/* What is in a slot from now on: until its process has the lock; that it has run. */
uint64_t slot_reserved_now(void);
void family_runs(const struct family *f);

#endif
