/*
 * The interposer's side of an epoll set of the program.
 *
 * A set is an epoll set of the kernel: its descriptor is the program's. When its first offloaded socket is added, it
 * gets a polling context of libxts as well (ctx). Most registrations are in one of the two. This file keeps only those
 * registrations that concern both:
 *
 *     UNDECIDED  in the kernel's set until the socket is offloaded, then moved to the context
 *     BOTH       of a listener that has a kernel socket too (ALSO_LOCAL): in both; one event is reported
 *     SET        another set: its kernel half is in ours, its context in our context
 *
 * Sets are looked up by number and held while in use; their memory is used again but never given back, so that a number
 * read a moment ago leads to a set or to nothing.
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
	bool in_kernel; /* BOTH: the kernel socket is there too (it listens) */
};

struct epoll_set {
	/* Low half: references, one for all its descriptors. High half: threads that wait in the kernel alone. */
	_Atomic uint64_t users;
	_Atomic uint32_t number; /* 0: closed */
	/* registrations in the kernel's set; those that vanished by a close are still counted */
	_Atomic uint32_t members;
	void *_Atomic ctx;
	/* an eventfd in the kernel's set, readable while threads wait there that do not know of ctx; else -1 */
	_Atomic int bell;
	_Atomic uint32_t both; /* registrations that may be reported twice */
	int fd;                /* one of the set's descriptors, as last seen */
	struct registration *registrations;
	unsigned registration_count, registration_room;
	struct epoll_set *next_free;
};

#define SET_WAITER (UINT64_C(1) << 32) /* in users */
#define SET_UNKNOWN_MEMBERS (1u << 30) /* of a set that came to be known later: never counted down to none */

/* A new set for the descriptor fd, with its reference; 0: none is free. */
uint32_t set_make(int fd, uint32_t members);
/* The set, with references added (1, or SET_WAITER + 1); NULL: closed meanwhile. */
struct epoll_set *set_hold(uint32_t number, uint64_t by);
void set_drop(struct epoll_set *set, uint64_t by);

/* Called by a thread that may have been the last to wait in the kernel alone: removes the bell. */
void set_silence_last(struct epoll_set *set);

/* Everything below needs the lock, which is never held in a wait. */
void sets_lock(void);
void sets_unlock(void);
/* Gives the set its context and wakes the threads that wait in the kernel alone. false: errno. */
bool set_convert(struct epoll_set *set);
/* The last of them has left. */
void set_silence(struct epoll_set *set);
struct registration *set_registration(struct epoll_set *set, int fd); /* NULL: none */
/* Keeps one; false: ENOMEM. */
bool set_add_registration(struct epoll_set *set, const struct registration *note);
void set_remove_registration(struct epoll_set *set, struct registration *note);
/* Calls visit for every set. */
void sets_each(void (*visit)(struct epoll_set *set, void *argument), void *argument);
/* Is any registration kept at all? Without the lock. */
bool sets_have_registrations(void);
int set_descriptor(struct epoll_set *set); /* -1: closed */

/* Marks the events of our own bell. */
#define SET_BELL_DATA UINT64_C(0x5854532062656c6c)

#endif
