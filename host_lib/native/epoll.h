/* Polling contexts, between epoll.c (what is ready) and mixed.c (waiting for it). */
#ifndef XTS_EPOLL_H
#define XTS_EPOLL_H

#include "library.h"

struct epoll_ctx {
	struct epoll_ctx *next;
	struct watch *ready_first, *ready_last;
	struct watch *listeners;   /* watches of listening sockets, whose connections a wait asks for */
	struct watch *outer;       /* watches of other contexts on this one */
	uint16_t waiters, polled;
	unsigned flags;
	int set, bell;             /* -1 until xts_epoll_fd() */
	int queue_fd;              /* the queue's descriptor in the set, or -1 */
	bool idle, ringing;
	bool turn;                 /* XTS_EPOLL_TURN: between a collection that found something and xts_flush() */
	_Atomic bool kernel_first; /* the kernel's events had no room at the last wait */
};

/* At the beginning of a call that collects: ends the promise to be back soon, takes what has come. */
void epoll_arrive(struct epoll_ctx *ctx);
void epoll_promise(struct epoll_ctx *ctx);
/* Reports what is ready: how many. */
int epoll_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max);
bool epoll_has_event(struct epoll_ctx *ctx);

#endif
