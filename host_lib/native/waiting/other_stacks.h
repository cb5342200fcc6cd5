/*
 * Sockets and contexts of other stacks in a wait.
 *
 * A polling context belongs to the stack of the thread that made it, and a wait to one stack. Sockets of other stacks
 * are watched in the same way as those of its own: the watch is in the list of its socket, under the lock of the
 * socket's stack, and each event puts it onto a ready list. So they have the same edges, and registering one needs no
 * descriptor. Only the ready list is another one, since a thread that reports an event has the lock of the socket's
 * stack, and one that collects has none: the foreign list of the context, with a lock of its own. It is taken while a
 * stack's lock is held or none is, and nothing is locked while it is held. So no call holds the locks of two stacks,
 * and these have no order (except in before_fork(), which takes all in order of creation).
 *
 * The list has a bell, an eventfd, which is readable while a watch is on the list; a thread that waits in the context
 * sleeps on it, too. To collect, a thread copies which watches are on the list, then asks each socket for its events
 * under the lock of its stack. Frames for the other stacks are taken by that thread, when it collects, and else by
 * their progress threads.
 *
 * Contexts of other stacks (nested sets) are watched through their descriptors (epoll_fd.c; nested_contexts.c). Each
 * write to a bell is an edge of the descriptor that it is in, also while it is readable already. So where an outer
 * context asks for edges, a bell is rung for each event, and otherwise only while it is silent.
 */
#ifndef XTS_OTHER_STACKS_H
#define XTS_OTHER_STACKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct epoll_ctx;
struct member;
struct stack;
struct watch;
struct xts_sock;

/* Stacks that have, or had, sockets in a context. */
struct other_stack {
	struct other_stack *next;
	struct stack *stack;
};

struct foreign {
	pthread_mutex_t lock; /* of the list */
	struct watch *first, *last;
	unsigned count;
	bool ringing;
	_Atomic int watches; /* how many there are, on the list or not */
	_Atomic int bell;    /* -1: no descriptor was available */
	/* only grows while the context lives; changed under the lock of the context's stack */
	struct other_stack *_Atomic stacks;
	/* under the lock of the context's stack: contexts, and the kernel's epoll set of their descriptors and the bell */
	_Atomic int set; /* -1: there are none */
	struct member *members;
};

/* Prepares the context for a socket of that stack; 0 or -ENOMEM. Called without a lock. */
int foreign_prepare(struct epoll_ctx *ctx, struct stack *st);
/* A bell is made now if one might be needed, because later there may be no descriptor. Under the context's lock. */
void foreign_reserve(struct epoll_ctx *ctx);
/* Counts watches. */
void foreign_count(struct epoll_ctx *ctx, int by);
/* Puts a watch onto the list of its context, or takes it off; called under the lock of its socket's stack. event: it
 * has just come, and is an edge for a context that watches this one. */
void foreign_add(struct watch *w, bool event);
void foreign_remove(struct watch *w);

/* Has threads that wait in the context look again. */
void foreign_ring(struct epoll_ctx *ctx);

/* Collects what is ready now; does not wait. looks: the program's call does not wait. Called without a lock, like the
 * next two. */
int foreign_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max, bool looks);
bool foreign_has_event(struct epoll_ctx *ctx);
/* Ends the watches of the context on sockets of other stacks. */
void foreign_end(struct epoll_ctx *ctx);

/* Has it had any socket or context of another stack so far? */
bool foreign_is_used(const struct epoll_ctx *ctx);
/* readable when something may be ready; -1: nothing is there, or no descriptor for it */
int foreign_fd(const struct epoll_ctx *ctx);
/* Puts what is there into ctx->set, which has just been made. 0 or -errno. */
int foreign_join_set(struct epoll_ctx *ctx);
/* Under the lock of the context's stack: frees what is left when all watches have ended; in a forked child, renews what
 * belongs to the parent. */
void foreign_free(struct epoll_ctx *ctx);
void foreign_after_fork(struct epoll_ctx *ctx);
/* In the child, before that, for all contexts: a thread of the parent may have been copying a list. */
void foreign_unlock(struct epoll_ctx *ctx);

/* The events of a socket of any stack, out of those asked for, as poll(2) reports them. looks: as above. */
short foreign_poll(int number, short events, bool looks);

/* --- nested_contexts.c -------------------------------------------------------------------------------------------- */

/* A context of another stack in ctx; as epoll_ctl(2), 0 or -errno. Called without a lock, like the next one. */
int nested_ctl(struct epoll_ctx *ctx, int op, struct epoll_ctx *inner, uint32_t key, const struct epoll_event *event);
int nested_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max);
/* Called under the lock of the context's stack. */
bool nested_is_member(const struct epoll_ctx *ctx, const struct epoll_ctx *inner, uint32_t key);
void nested_end(struct foreign *f);
/* Puts the bell into the set, if there is one. */
void nested_watch_bell(struct foreign *f);
/* The same as foreign_prepare() without a socket. NULL: no memory. Called under the lock of the context's stack. */
struct foreign *foreign_make(struct epoll_ctx *ctx);

#endif
