/*
 * Sockets of other stacks in a wait.
 *
 * A polling context belongs to the stack of the thread that made it, and a wait to one stack. Sockets (and contexts) of
 * other stacks are watched through their kernel descriptors (mirror.c, epoll_fd.c), which their own stack keeps true. A
 * ready descriptor only says that it is worth looking: the socket is then asked for its events, under the lock of its
 * own stack. So no call holds the locks of two stacks, and the locks have no order (except in before_fork(), which
 * takes all in order of creation).
 */
#ifndef XTS_OTHER_STACKS_H
#define XTS_OTHER_STACKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct epoll_ctx;
struct foreign;
struct stack;

/* For polling contexts. All functions except the last three are called without the lock. */
bool foreign_is(const struct epoll_ctx *ctx, int number); /* is this the number of another stack's socket or context? */
int foreign_ctl(struct epoll_ctx *ctx, int op, int number, void *inner, uint32_t key, const struct epoll_event *event);
int foreign_registered(struct epoll_ctx *ctx, int number, uint32_t key, struct epoll_event *event); /* 0 or -ENOENT */
/* returns how many are ready now; does not wait */
int foreign_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max);
int foreign_set(const struct epoll_ctx *ctx); /* readable when a member may be ready; -1: there are no members */
bool foreign_may_be_ready(const struct epoll_ctx *ctx);
void foreign_free(struct epoll_ctx *ctx);

/* The events of a socket of any stack, out of those asked for, as poll(2) reports them. */
short foreign_poll(int number, short events);

#endif
