/*
 * The interposer's record of an epoll set of the program.
 *
 * A set is an epoll set of the kernel: its descriptor is the program's. When its first offloaded socket is added, it
 * gets a polling context of libxts as well (ctx). Most registrations are in one of the two. This file keeps only those
 * registrations that concern both:
 *
 *     UNDECIDED  in the kernel's set until the socket is offloaded, then moved to the context
 *     BOTH       of a listener that has a kernel socket too (ALSO_LOCAL): in both; one event is reported
 *     SET        another set: its kernel half is in ours, its context in our context
 *
 * A set is looked up by number, and held while it is in use. The memory of sets is reused but never freed, so that an
 * outdated number leads to a set or to nothing.
 */
#ifndef XTS_PRELOAD_EPOLL_SET_H
#define XTS_PRELOAD_EPOLL_SET_H

#include "preload.h"

enum registration_kind { REGISTERED_UNDECIDED, REGISTERED_BOTH, REGISTERED_SET };

struct registration {
	int fd;
	enum registration_kind kind;
	struct epoll_event event;
	uint32_t inner; /* SET: its number */
	bool in_kernel; /* BOTH: the kernel socket is registered too (it listens) */
};

struct epoll_set {
	/* Low half: references; all its descriptors together count as one. High half: threads that wait only in the
	 * kernel. */
	_Atomic uint64_t users;
	_Atomic uint32_t number; /* 0: closed */
	/* registrations in the kernel's set, including those that a close has removed */
	_Atomic uint32_t members;
	void *_Atomic ctx;
	/* an eventfd in the kernel's set, readable while threads that do not know of ctx wait there; else -1 */
	_Atomic int bell;
	_Atomic uint32_t both; /* registrations that may be reported twice */
	_Atomic bool called;   /* somebody has waited for it by a call of ours */
	_Atomic bool mirrored; /* it is waited for by instruction: by_instruction.h */
	int fd;                /* one of the set's descriptors, as last used */
	struct registration *registrations;
	unsigned registration_count, registration_room;
	struct epoll_set *next_free;
};

#define SET_WAITER (UINT64_C(1) << 32) /* added to users by a waiting thread */
/* for a set that was already in use when it became known: never counted down to 0 */
#define SET_UNKNOWN_MEMBERS (1u << 30)

/* Makes a set for the descriptor fd, with one reference; 0: the store is full. */
uint32_t set_make(int fd, uint32_t members);
/* The set, with references added (1, or SET_WAITER + 1); NULL: it was closed meanwhile. */
struct epoll_set *set_hold(uint32_t number, uint64_t by);
void set_drop(struct epoll_set *set, uint64_t by);

/* To be called by a thread that may have been the last to wait only in the kernel: removes the bell. */
void set_silence_last(struct epoll_set *set);

/* A thread that holds it is about to wait for it, by a call of ours. */
static inline void set_call(struct epoll_set *set)
{
	if (!atomic_load_explicit(&set->called, memory_order_relaxed))
		atomic_store_explicit(&set->called, true, memory_order_relaxed);
}

/* Everything below needs the lock, which is never held in a wait. */
void sets_lock(void);
void sets_unlock(void);
/* Gives the set a context, in the stack of the socket with this number (-1: of this thread), and wakes the threads that
 * wait only in the kernel. False: errno. */
bool set_convert(struct epoll_set *set, int number);
/* The last of those threads has left: removes the bell. */
void set_silence(struct epoll_set *set);
struct registration *set_registration(struct epoll_set *set, int fd); /* NULL: none */
/* Adds a registration; false: ENOMEM. */
bool set_add_registration(struct epoll_set *set, const struct registration *note);
void set_remove_registration(struct epoll_set *set, struct registration *note);
/* Calls visit for every set. */
void sets_each(void (*visit)(struct epoll_set *set, void *argument), void *argument);
/* Is any registration kept at all? Called without the lock. */
bool sets_have_registrations(void);
int set_descriptor(struct epoll_set *set); /* -1: it is closed */

/* The event data that marks our own bell. */
#define SET_BELL_DATA UINT64_C(0x5854532062656c6c)

#endif
