/*
 * Epoll sets that a program waits for by an instruction of its own, and not by calling the C library (Bun does; crates
 * of Rust that make system calls themselves).
 *
 * Such a wait sees only the kernel's half of a set. So the set gets, next to its context, a mirror (xts_fileno()) of
 * each offloaded socket in it, with the program's events and data: the kernel reports them. That is dearer than the
 * context, so it is done only for a set for which a thread has been seen to sleep in such a call. Who looks is a
 * thread of the library. It is started when a program with threads, or one whose file has such an instruction, puts its
 * first offloaded socket into a set for which it has not waited yet, and ends when each of these sets has been waited
 * for, one way or the other.
 *
 * The registrations stay in the context as well, where those of descriptors that the kernel gets back are looked up.
 */
#ifndef XTS_PRELOAD_BY_INSTRUCTION_H
#define XTS_PRELOAD_BY_INSTRUCTION_H

#include "epoll_set.h"

/* A set that nobody has waited for has got a context. Under the sets' lock. */
void instruction_expect(void);
/* What has been done to a socket's registration in the context, done to its mirror's. -1: errno. Under the sets' lock. */
int instruction_control(struct epoll_set *set, int epfd, int op, uint32_t number, struct epoll_event *event);
/* An offloaded socket has begun to connect: the mirror of a failed attempt has ended. */
void instruction_connects(int fd, struct descriptor d);
/* In a forked child: the thread is the parent's. */
void instruction_after_fork(void);

#endif
