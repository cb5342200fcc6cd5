/*
 * Receive callbacks: the program decides about each datagram and each PDU before a receive call gets it.
 *
 * Theory of operation
 *
 * There are two ways to ask the program. A function of C (xts_register_recv_callback()) is called as the datagram or
 * PDU comes, with the stack's lock held: it is in the middle of taking a message. A call that would wait for that lock
 * would wait for ever, so it ends the program with a sentence (stack_lock()).
 *
 * An interpreter cannot promise to make no call: it may run finalizers and signal handlers at any time. So it asks its
 * function by itself (xts_ask_reader()), without a lock, in the thread that wants to receive. Everything is queued, and
 * the first one in the queue is decided about before a receive call may have it: the call fails with XTS_UNDECIDED, the
 * thread takes a copy (xts_undecided()), asks, and says what has been decided (xts_decided()). Meanwhile the socket is
 * not readable for other threads, so that the order is kept and nothing is decided about twice.
 *
 * What the program holds takes the receive credits that it came with, until it is given back. When the queue and its
 * account are dropped together (buffer_drop()), so are these: `drops` tells such packets apart.
 */
#ifndef XTS_RECEIVE_CALLBACK_H
#define XTS_RECEIVE_CALLBACK_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/socket.h"
#include "xts.h"
#include "xts_private.h"

#define CALLBACK_CONTROL_ROOM 320u

struct stack;
struct xts_endpoint;

/* A datagram or PDU as the program sees it. */
struct offered {
	struct xts_packet packet; /* first: the program gives this back */
	struct sockaddr_storage address;
	uint32_t credits; /* that it has taken; 0: they have been given back */
	uint32_t drops;   /* of its socket, when the program got it */
	uint32_t room;    /* for data */
	_Alignas(struct cmsghdr) uint8_t control[CALLBACK_CONTROL_ROOM];
	uint8_t data[];
};

struct receive_callback {
	xts_recv_callback function; /* NULL: none, or who reads is asked */
	void *context;
	bool of_reader;              /* who reads is asked */
	bool decided;                /* about the first one in the queue: it stays there */
	const struct offered *asked; /* a copy of the first one in the queue, which a thread is deciding about */
	pthread_t reader;            /* that thread */
	uint32_t drops;
	uint32_t held; /* credits that the program holds */
};

int callback_make(struct xts_sock *s); /* there is one from now on: 0 or -ENOMEM */
void callback_free(struct xts_sock *s);
void callback_dropped(struct xts_sock *s); /* the queue has been dropped, with its account */

struct offered *offered_make(uint32_t bytes); /* NULL: no memory */
void offered_free(struct offered *p);
/* Whose it is: from this endpoint. The rest has been filled in. */
void offered_address(struct xts_sock *s, struct offered *p, const struct xts_endpoint *from);
enum xts_packet_verdict callback_ask(struct xts_sock *s, const struct offered *p);
bool callback_is_asking(const struct stack *st); /* this thread, with the stack's lock held */
const struct stack *callback_stack(void);        /* that one; NULL: this thread is asking nothing */
void callback_hold(struct xts_sock *s, struct offered *p);

static inline bool callback_has_function(const struct xts_sock *s)
{
	return s->callback && s->callback->function;
}

/* A thread is deciding about the first one in the queue: it is not there for others. */
static inline bool callback_decides(const struct xts_sock *s)
{
	return s->callback && s->callback->asked;
}

/* A receive call wants the first one in the queue: 0 or -errno. */
static inline int callback_admits(const struct xts_sock *s)
{
	const struct receive_callback *c = s->callback;

	if (__builtin_expect(!c, 1))
		return 0;
	if (c->asked)
		return pthread_equal(c->reader, pthread_self()) ? -XTS_UNDECIDED : 0;
	return c->of_reader && !c->decided ? -XTS_UNDECIDED : 0;
}

/* The first one has left the queue. */
static inline void callback_next(struct xts_sock *s)
{
	if (s->callback)
		s->callback->decided = false;
}

#endif
