/*
 * What a descriptor number of the program stands for: one 64-bit word for each descriptor, read without a lock on every
 * call. A call that is passed to the kernel costs this load and a branch.
 *
 * Every descriptor in the table is a real one of the kernel:
 *
 *     KERNEL     not ours, or not known: calls go to the kernel
 *     UNDECIDED  a socket of the kernel's TCP or UDP about which the rules have not been asked: that is done at bind,
 *                connect or listen, or with the first datagram that is sent to an address. Options set until then are
 *                recorded, to be repeated on the XTS socket
 *     STAYED     a TCP or UDP socket that stays with the kernel; has a reason
 *     OFFLOADED  an XTS socket. The kernel's descriptor keeps its place: an unconnected TCP socket, so that system
 *                calls that get past us are refused (ENOTCONN) and never see data that is not theirs. With
 *                ALSO_LOCAL it is a listening TCP socket for connections from this host itself
 *     EPOLL      an epoll set of the program's (epoll_set.h)
 *     INTERNAL   ours: the program may not close or replace it
 */
#ifndef XTS_PRELOAD_DESCRIPTOR_TABLE_H
#define XTS_PRELOAD_DESCRIPTOR_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/caller.h"

enum descriptor_kind {
	DESCRIPTOR_KERNEL,
	DESCRIPTOR_UNDECIDED,
	DESCRIPTOR_STAYED,
	DESCRIPTOR_OFFLOADED,
	DESCRIPTOR_EPOLL,
	DESCRIPTOR_INTERNAL
};

enum { /* flags */
       /* OFFLOADED listener for which a kernel socket listens too: wait for both, accept from both */
       DESCRIPTOR_ALSO_LOCAL = 1,
       DESCRIPTOR_LISTENS = 2,
       /* OFFLOADED at bind, not yet connected or listening: it can still go back to the kernel */
       DESCRIPTOR_BOUND = 4,
       DESCRIPTOR_PUSHED = 8,    /* a protocol was pushed before connect or listen: it cannot go back */
       DESCRIPTOR_DATAGRAM = 16, /* UNDECIDED or OFFLOADED: a datagram socket */
};

/* A snapshot of a word. An XTS number has a generation, so that an outdated one is EBADF and never another socket. */
struct descriptor {
	uint8_t kind; /* enum descriptor_kind */
	uint8_t flags;
	/* enum xts_reason, for STAYED, and for an OFFLOADED socket that this process does not have
	 * (XTS_REASON_IS_GONE) */
	uint16_t reason;
	/* XTS socket number; index of the epoll set; for UNDECIDED, index of its record (undecided_options.h) */
	uint32_t number;
};

#define DESCRIPTORS_MAX (1u << 20) /* higher descriptors are passed to the kernel, and counted */

/* DESCRIPTORS_MAX words; a page of them costs nothing until it is touched */
extern _Atomic uint64_t *descriptors;
/* How many children share this memory and run at the same time (sharing_children.c): each has a table of its own, or
 * uses this one. descriptors_of_caller(): NULL for a child that nobody has seen. */
extern _Atomic uint32_t descriptor_sharers;
_Atomic uint64_t *descriptors_of_caller(void);

static inline struct descriptor descriptor_get(int fd)
{
	struct descriptor d = { 0 };
	const _Atomic uint64_t *table = descriptors;
	uint64_t word;

	xts_look_who_calls();
	if (__builtin_expect(atomic_load_explicit(&descriptor_sharers, memory_order_relaxed) != 0, 0))
		table = descriptors_of_caller();
	if ((unsigned)fd < DESCRIPTORS_MAX && table) {
		word = atomic_load_explicit(&table[fd], memory_order_acquire);
		d.kind = (uint8_t)word;
		d.flags = (uint8_t)(word >> 8);
		d.reason = (uint16_t)(word >> 16);
		d.number = (uint32_t)(word >> 32);
	}
	return d;
}

/* The XTS socket behind fd, or -1. */
static inline int descriptor_offloaded(int fd)
{
	struct descriptor d = descriptor_get(fd);

	return d.kind == DESCRIPTOR_OFFLOADED ? (int)d.number : -1;
}

void descriptor_set(int fd, struct descriptor d);
/* fd is a plain kernel descriptor again, or closed. Returns what it was. */
struct descriptor descriptor_take(int fd);
/* fd, and all descriptors that share what it stood for (dup), stand for d from now on; the notes of an UNDECIDED one
 * are dropped. False: fd is no longer what it was when it was read (was), and nothing has changed. */
bool descriptor_become(int fd, struct descriptor was, struct descriptor d);
/* copy (just made by dup) stands for the same thing as fd. */
void descriptor_copy(int fd, int copy);
/* Adds or removes a descriptor of the same XTS socket, note or epoll set (dup, close). Removing the last one closes
 * it. */
void descriptor_share(struct descriptor d);
void descriptor_release(struct descriptor d);
bool descriptor_is_last(struct descriptor d); /* is it the last descriptor of what it stands for? */
/* This process does not have the XTS socket after fork or exec: notes why (enum xts_reason). Takes no lock. */
void descriptor_gone(int number, unsigned reason);
int descriptor_highest(void); /* the highest descriptor ever set; -1: none */
/* Moves a descriptor of ours, which the program may not close, out of the program's way. Returns its new number. */
int descriptor_own(int fd);
void descriptor_disown(int fd);
/* Calls visit for every descriptor of this kind, in order. */
/* One of an offloaded socket that listens on this host, too; -1: there is none. Takes no lock. */
int descriptor_half_of(int number);
void descriptor_each(enum descriptor_kind kind, void (*visit)(int fd, struct descriptor d, void *argument),
		     void *argument);

/* For the table of such a child: a copy of its parent's, in which each descriptor counts as one more; closing all of
 * its descriptors; making it this process's own (after a fork). */
void descriptors_copy_all(const _Atomic uint64_t *from, _Atomic uint64_t *table);
void descriptors_release_all(_Atomic uint64_t *table);
void descriptors_replace_all(const _Atomic uint64_t *table);

#endif
