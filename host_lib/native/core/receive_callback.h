/*
 * Receive callbacks: the program decides about each datagram and each PDU before a receive call gets it.
 *
 * Theory of operation
 *
 * There are two ways to ask the program. A function in C (xts_register_recv_callback()) is called as the datagram or
 * PDU comes, in the middle of handling a message, with the stack's lock held. A call of this library that would wait
 * for that lock would wait forever, so it aborts the program with a message (stack_lock()).
 *
 * An interpreter cannot promise that it makes no call: it may run finalizers and signal handlers at any time. So an
 * interpreter asks its function by itself (xts_ask_reader()), without a lock, in the thread that wants to receive.
 * Everything is queued, and the first datagram or PDU of the queue has to be decided about before a receive call may
 * have it: the call fails with XTS_PACKET_ASKS, the thread takes a copy (xts_packet_asks()), asks, and reports the
 * decision (xts_packet_decided()). Meanwhile the socket is not readable for other threads, so that the order is kept
 * and nothing is decided about twice.
 *
 * A packet that the program holds keeps the receive credits that it came with until it is given back. When the queue
 * and its account are dropped together (buffer_drop()), so are these credits: `drops` tells such packets apart.
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

/* A datagram or PDU in the form that the program gets. */
struct offered {
	struct xts_packet packet; /* first member: the program gives back a pointer to it */
	struct sockaddr_storage address;
	uint32_t credits; /* credits that it has taken; 0: they have been given back */
	uint32_t drops;   /* the socket's `drops` when the program got it */
	uint32_t room;    /* bytes of room for data */
	_Alignas(struct cmsghdr) uint8_t control[CALLBACK_CONTROL_ROOM];
	uint8_t data[];
};

struct receive_callback {
	xts_recv_callback function; /* NULL: no callback, or the reader is asked */
	void *context;
	bool of_reader;              /* the reader is asked */
	bool decided;                /* the decision about the first one in the queue: it stays there */
	const struct offered *asked; /* a copy of the first one in the queue, which a thread is deciding about */
	pthread_t reader;            /* that thread */
	uint32_t drops;
	uint32_t held; /* credits that the program holds */
};

int callback_make(struct xts_sock *s); /* makes the struct, if there is none: 0 or -ENOMEM */
void callback_free(struct xts_sock *s);
void callback_dropped(struct xts_sock *s); /* the queue has been dropped, and its account with it */

struct offered *offered_make(uint32_t bytes); /* NULL: no memory */
void offered_free(struct offered *p);
/* Sets the sender's address, after everything else has been filled in. */
void offered_address(struct xts_sock *s, struct offered *p, const struct xts_endpoint *from);
enum xts_packet_verdict callback_ask(struct xts_sock *s, const struct offered *p);
bool callback_is_asking(const struct stack *st); /* is this thread asking a callback, with the stack's lock held? */
const struct stack *callback_stack(void);        /* the stack of that callback; NULL: this thread is not asking one */
void callback_hold(struct xts_sock *s, struct offered *p);

static inline bool callback_has_function(const struct xts_sock *s)
{
	return s->callback && s->callback->function;
}

/* Is a thread deciding about the first one in the queue? Then other threads cannot receive it. */
static inline bool callback_decides(const struct xts_sock *s)
{
	return s->callback && s->callback->asked;
}

/* May a receive call have the first one in the queue? 0 or -errno. */
static inline int callback_admits(const struct xts_sock *s)
{
	const struct receive_callback *c = s->callback;

	if (__builtin_expect(!c, 1))
		return 0;
	if (c->asked)
		return pthread_equal(c->reader, pthread_self()) ? -XTS_PACKET_ASKS : 0;
	return c->of_reader && !c->decided ? -XTS_PACKET_ASKS : 0;
}

/* The first one has left the queue. */
static inline void callback_next(struct xts_sock *s)
{
	if (s->callback)
		s->callback->decided = false;
}

#endif
