/* Polling contexts: epoll.c (what is ready), epoll_ctl.c (what is registered), epoll_fd.c (the
 * descriptor), mixed_descriptors.c (waiting). */
#ifndef XTS_EPOLL_H
#define XTS_EPOLL_H

#include <stdatomic.h>
#include <sys/epoll.h>

#include "core/stack.h"

#define HOLD_EVENTS_MIN 4u /* with fewer events per turn, the clock costs more than holding saves */
#define EPOLL_ALWAYS (EPOLLERR | EPOLLHUP)
#define EPOLL_WAYS (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE) /* flags that are modes, not events */

struct epoll_ctx {
	struct stack *stack; /* the stack of the thread that made it; its lock protects the other members */
	struct epoll_ctx *next;
	struct watch *ready_first, *ready_last;
	struct watch *outer; /* watches of other contexts on this one */
	uint16_t waiters, polled;
	unsigned watches; /* on sockets and contexts of its own stack */
	uint16_t held;    /* threads that use it although it may be destroyed meanwhile: the last of them frees it */
	bool ended;
	unsigned flags;
	int set, bell; /* -1 until xts_epoll_fd() */
	int queue_fd;  /* the queue's descriptor in the set, or -1 */
	bool idle, ringing;
	_Atomic bool edged;              /* another context waits for edges of the descriptor */
	_Atomic unsigned arrivals;       /* of an edged one: how many events have come */
	bool turn;                       /* XTS_EPOLL_TURN: between a collection that found something and xts_flush() */
	struct foreign *_Atomic foreign; /* sockets and contexts of other stacks: other_stacks.h; NULL: none so far */
	bool foreign_last;               /* events of other stacks filled the whole array at the last wait */
	_Atomic bool kernel_first;       /* there was no room for the kernel's events at the last wait */
};

/* A context can have several watches of one socket, with different keys (for the interposer: descriptors): the kernel
 * registers a file once for each descriptor. */
struct watch {
	struct watch *next; /* the next watch of the same socket or inner context */
	struct watch *ready_next, *ready_previous;
	struct epoll_ctx *ctx;
	union {
		struct xts_sock *socket; /* what is watched */
		struct epoll_ctx *inner; /* if is_context */
	};
	epoll_data_t data;
	uint32_t key;
	uint32_t events;
	uint32_t number; /* of an away one: its socket's, for other threads */
	bool is_context;
	bool away;            /* the context is another stack's than the socket: other_stacks.h */
	bool ready, disabled; /* disabled: reported once (EPOLLONESHOT) */
};

/* A context in this stack, which the caller has not locked. NULL: no memory. */
struct epoll_ctx *epoll_create_in(struct stack *st);
/* Begins a call that collects: ends the thread's promise to be back soon, and handles the frames that have arrived. */
void epoll_arrive(struct epoll_ctx *ctx);
void epoll_promise(struct epoll_ctx *ctx, int count);
/* Reports what is ready; returns the number of events. */
int epoll_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max);
bool epoll_has_event(struct epoll_ctx *ctx);
uint32_t epoll_watch_events(struct watch *w); /* what it has to report now */
void epoll_set_ready(struct watch *w);
/* Takes it off the ready list and reports what it has: 1, or 0 if that is nothing. */
int epoll_report(struct watch *w, struct epoll_event *event);
void epoll_ready_remove(struct watch *w);

/* Keeps a context, whose stack the caller has locked, until epoll_release(), which is called without the lock. */
void epoll_hold(struct epoll_ctx *ctx);
void epoll_release(struct epoll_ctx *ctx);

/* The descriptor: make it ready until a collection finds nothing; note what a collection has found; close it. */
void epoll_ring(struct epoll_ctx *ctx);
void epoll_ring_event(struct epoll_ctx *ctx); /* the same for an event that has just come, which is an edge */
void epoll_collected(struct epoll_ctx *ctx, int found);
void epoll_found_nothing(struct epoll_ctx *ctx); /* the same after a look that takes nothing */
void epoll_close_fd(struct epoll_ctx *ctx);
/* From now on each event is an edge of the descriptor, and counted. Called without a lock. */
void epoll_want_edges(struct epoll_ctx *ctx);
/* xts_epoll_fd() for the library itself: the program does not get it. */
int epoll_own_descriptor(void *ectx);

/* For other parts of the library. */
void epoll_ready(struct xts_sock *s, uint32_t events);
void epoll_end_turn(struct stack *st);
void epoll_channel_opened(struct stack *st);
void epoll_forget_socket(struct xts_sock *s);
struct watch *epoll_watch_of(const struct epoll_ctx *ctx, const struct xts_sock *s, uint32_t key); /* or NULL */
void epoll_end_watches(struct stack *st, const struct epoll_ctx *ctx); /* of the context, on sockets of the stack */
/* In a forked child: for all stacks, then for each. */
void epoll_unlock(struct stack *st);
void epoll_forget(struct stack *st);
/* In a child that nobody has expected (caller.h): makes the contexts of a stack empty ones of another, in a list before
 * others. Returns the list. */
struct epoll_ctx *epoll_orphaned(struct stack *from, struct stack *to, struct epoll_ctx *others);
bool epoll_watches(const struct epoll_ctx *ctx, const struct xts_sock *s);
bool epoll_awaits(const struct xts_sock *s);           /* a thread waits for it in a context */
bool epoll_awaits_elsewhere(const struct xts_sock *s); /* a thread may sleep on a context's descriptor */

#endif
