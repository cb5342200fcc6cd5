/*
 * Sockets of other stacks in a wait.
 *
 * A polling context belongs to the stack of the thread that made it, and a wait to one stack. Sockets (and contexts) of
 * other stacks are watched through their kernel descriptors (mirror.c, epoll_fd.c), which their own stack keeps true.
 * The descriptor only says that it is worth looking; the socket itself then says what it is ready for, under its own
 * stack's lock. So no call holds two stacks' locks, and there is no order among them (except in before_fork(), which
 * takes all in order of creation).
 */
#ifndef XTS_FOREIGN_H
#define XTS_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct epoll_ctx;
struct foreign;
struct stack;

/* In a polling context. All but the last three without the lock. */
bool foreign_is(const struct epoll_ctx *ctx, int number); /* such a number is of another stack */
int foreign_ctl(struct epoll_ctx *ctx, int op, int number, void *inner, uint32_t key, const struct epoll_event *event);
int foreign_registered(struct epoll_ctx *ctx, int number, uint32_t key, struct epoll_event *event); /* 0 or -ENOENT */
/* how many are ready now; does not wait */
int foreign_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max);
int foreign_set(const struct epoll_ctx *ctx); /* readable when one may be ready; -1: there are none */
bool foreign_may_be_ready(const struct epoll_ctx *ctx);
void foreign_free(struct epoll_ctx *ctx);

/* What a socket of any stack is ready for now, of what is asked, as poll(2) says it. */
short foreign_poll(int number, short events);

#endif
