/*
 * Sockets, and the table of them (socket_table.c).
 *
 * A socket keeps the kernel's own variables: state is sk_state, phase is the socket's SS_*, shutdown is sk_shutdown,
 * done is SOCK_DONE, error is sk_err. The calls then follow the kernel's code paths, and so return its errno.
 *
 * Sockets and waits. A thread that waits releases the stack's lock, and meanwhile another thread may close the socket. So
 * a call holds its socket, as it does in the kernel (fdget()): as long as somebody holds it, the entry of the table is
 * not used for another socket, and all that the socket has stays in memory. stack_enter_of() holds the socket of a
 * call, and stack_leave() lets go of it. What waits besides calls (the progress thread, fork, the end of a process)
 * does so itself, with socket_hold() and socket_put(); builds with XTS_DEBUG assert in each wait on a socket that it is
 * held. After a wait
 *
 *     s->open     says that the application has not closed it, without which its call does not go on. What waits for the
 *                 socket itself sees to that, and then returns -EBADF: call_proxy() (call.h), operations (operation.h),
 *                 socket_wait() (wait.h), and what is made of these.
 *     s->in_use   says that the connection has not ended: it may outlive the application's close().
 */
#ifndef XTS_SOCKET_H
#define XTS_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "link/credit.h"
#include "processes/ownership.h"
#include "ulps/pushed.h"
#include "attaching/waits.h"
#include "wire/wire.h"

#define SOCKETS_MAX (1u << 20)
#define SOCKET_INDEX(id) ((id) & (SOCKETS_MAX - 1))

enum {                  /* sk_state, as far as the host can tell */
       TCP_STATE_CLOSE, /* also the state of a datagram socket, connected or not */
       TCP_STATE_SYN_SENT,
       TCP_STATE_ESTABLISHED,
       TCP_STATE_LISTEN,
};
enum { PHASE_UNCONNECTED, PHASE_CONNECTING, PHASE_CONNECTED, PHASE_DISCONNECTING }; /* the kernel's SS_* */
enum { RCV_SHUTDOWN = 1, SEND_SHUTDOWN = 2, SHUTDOWN_MASK = 3 };

struct asked;
struct call;
struct datagrams;
struct fault;
struct hint;
struct mirror;
struct pdu;
struct piece;
struct receive_callback;
struct stack;
struct watch;

/*
 * The cold part of a socket: members that most sockets never use. Those of a block of the table lie in memory of their
 * own, of which the kernel gives a page only when something is written to it. So a member that stays 0 costs nothing,
 * and to use one nothing has to be allocated, which could fail. Therefore code that is common to all sockets reads
 * these members, and writes one only if its value changes.
 */
struct cold {
	struct ulps ulps;
	struct pdu *pdu_first, *pdu_last; /* no list: all unread bytes are stream data */
	struct fault *fault;              /* the last error of a pushed protocol, as far as known: ulp_info.c */
	struct hint *hints;               /* options that change nothing: hint.c */
	struct sharing sharing;
	/* of a listener: connections that wait for accept() */
	struct xts_sock *accept_first, *accept_last;
	uint32_t accept_count, backlog;
	struct asked *asked;         /* what is asked again of the next proxy: asked.c */
	struct asked *asked_connect; /* what CONNECT carries that is not answered; NULL: nothing */
	/* sent_bytes and received_bytes when it came to its channel, less what was not sent and not read then: RESUME
	 * tells what has gone both ways since (next_proxy.h) */
	uint64_t sent_base, received_base;
	uint64_t deficit_bytes; /* of the pending ones, that have no post credits */
	uint16_t end_error;     /* errno of recv() at the end: a protocol's stream was cut off; 0: none */
	bool told;              /* the program has been told that it cannot be made again for now */
	bool tells_inq;         /* TCP_INQ */
	/* in a forked child: the number that this entry had in the parent; 0: none. At the end: socket_table.c clears
	 * what is before it */
	uint32_t parents_id;
};
_Static_assert(offsetof(struct cold, parents_id) + sizeof(uint32_t) == sizeof(struct cold), "the last one");

/* A process may have a million of them, so the size counts: at its end is a bound for it. What each message needs comes
 * first. */
struct xts_sock {
	struct stack *stack; /* its stack, for the life of the process; the other members are under that stack's lock */
	struct cold *cold;   /* likewise for the life of the process */
	uint32_t id;         /* the number; its generation moves on when the entry is released */
	uint32_t proxy_id;   /* 0: the proxy knows nothing of this socket (so far) */
	bool in_use : 1;
	bool released : 1;      /* it has ended; its entry is used again when no call holds it */
	bool open : 1;          /* the application has not closed it */
	bool opening : 1;       /* the first request has been sent: its reply will bring proxy_id */
	bool closing : 1;       /* CLOSE has been sent, or will be */
	bool cancelled : 1;     /* CANCEL has been sent in its place: nothing counts until CLOSED comes */
	bool disconnecting : 1; /* the CLOSE is for the proxy's socket only: this one remains */
	/* disconnecting: the connection that ends, or the attempt at one, had not ended by itself */
	bool cut : 1;
	/* another process of the proxy has it, and will say so (processes/next_proxy.h); `opening` is set, too */
	bool claiming : 1;
	/* claiming: it had room for what its program sends, and will have (move_has_room()) */
	bool had_room : 1;
	bool lost : 1; /* its channel has died */
	/* its channel has died, and it is made again (processes/again.c) */
	bool away : 1;
	/* a thread makes the proxy's socket: if that one is closed, this one remains as it is */
	bool making : 1;
	bool tried
		: 1; /* a thread is about that; without `making`: what it has made so far has ended with its channel */
	bool done : 1; /* the TCP peer's FIN has come (SOCK_DONE) */
	bool nonblocking : 1, close_on_exec : 1;
	bool linger : 1, abort : 1;   /* SO_LINGER; abort: CLOSE carries ABORT */
	bool bound : 1, optioned : 1; /* the proxy's socket has state that no other has */
	bool bound_address : 1;       /* bound to an address, not only to a port */
	bool v6only : 1;              /* the program has set IPV6_V6ONLY */
	bool renewed : 1;             /* disconnected since then: that state is gone */
	bool no_space : 1;            /* a sender was refused: report when there is room (SOCK_NOSPACE) */
	bool asked : 1;               /* has sent since it last received: counts in stack->asked */
	bool in_deficit : 1;          /* pending data waits for post credits (outbox.h) */
	bool in_outbox : 1, in_blocked : 1, mirror_dirty : 1;
	bool seqpacket : 1; /* SOCK_SEQPACKET */
	bool pushing : 1;   /* a push or the end of peek mode is in progress: no thread reads or sends meanwhile */
	/* receiving: since the window last grew, the peer once had less than half of it left */
	bool squeezed : 1;
	uint8_t family;       /* 4 or 6 */
	uint8_t state, phase; /* changed only by socket_enter() (socket_states.h) */
	uint8_t shutdown;
	uint8_t todo;
	uint8_t refusal;      /* enum xts_refusal: why the proxy has refused the last request, 0 if it has not */
	uint8_t refused_for;  /* enum xts_wait: why the last attempt to send sent nothing */
	uint8_t waits_for[2]; /* enum xts_wait, by direction; how long is on the status page (socket_waits.c) */
	uint16_t readers, writers, callers, polled; /* waiting threads, by what they wait for */
	uint16_t holders;                           /* socket_hold() */
	int32_t error;                              /* sk_err, positive */

	/* receiving; the account of a listener counts connections */
	struct xts_credit_grant grant;
	uint32_t window_max;
	uint32_t consumed; /* bytes read since the window last grew, while the peer used most of it */
	uint32_t unread;   /* bytes not read yet */
	uint32_t receive_lowat;
	struct piece *first, *last;
	struct datagrams *datagrams;       /* of a datagram socket; else NULL */
	struct receive_callback *callback; /* NULL: there never was a callback */

	/* sending */
	uint32_t credits;
	uint32_t peer_window; /* the most credits ever held */
	uint8_t *pending;     /* data accepted while no frame could leave */
	uint32_t pending_bytes, pending_capacity;

	uint64_t sent_bytes, received_bytes, read_bytes;
	struct ownership own;
	struct watch *watches;
	struct mirror *mirror;
	struct call *call; /* the request that is waiting for its answer */
	struct xts_sock *listener, *accept_next;
	union {
		struct xts_sock *outbox_next;
		struct xts_sock *free_next; /* of an entry that is not in use */
	};
	struct xts_sock *outbox_prev, *blocked_next, *dirty_next;
	uint64_t receive_timeout_ns, send_timeout_ns; /* FOREVER: none */
	int32_t linger_s;
	struct xts_endpoint local, peer;
};
/* Those who make it larger have to say why (tests/system/sockets/test_memory_of_connections.py). */
_Static_assert(sizeof(struct xts_sock) <= 328, "memory of a socket");

/* Has the application not closed it; or is it taken over from another process in order to close it? */
static inline bool socket_goes_on(const struct xts_sock *s)
{
	return s->open || s->own.ending;
}

/* Has its channel ended while it was made again? What was made of it has ended, too, and nothing may follow. */
static inline bool making_is_cut(const struct xts_sock *s)
{
	return s->away && !s->making;
}

/* For a pointer that was kept, without holding the socket, together with its number: is it still that socket? */
static inline bool socket_is(const struct xts_sock *s, uint32_t id)
{
	return s->in_use && s->id == id;
}

void socket_end_of_use(struct xts_sock *s); /* of the last holder of one that was released */

static inline void socket_hold(struct xts_sock *s)
{
	s->holders++;
}

static inline void socket_put(struct xts_sock *s)
{
	if (!--s->holders && s->released)
		socket_end_of_use(s);
}

/* Is it being given up, or does another process hold it? Then a call that uses it has to take it first. */
static inline bool turn_is_elsewhere(const struct xts_sock *s)
{
	return s->own.moved != NOT_MOVED || (s->own.inherited != NOT_INHERITED && s->own.common);
}

/* The topmost protocol of a direction; 0: none. */
static inline uint16_t socket_ulp(const struct xts_sock *s, unsigned direction)
{
	const struct ulps *u = &s->cold->ulps;

	return u->depth[direction] ? u->id[direction][u->depth[direction] - 1] : 0;
}

/* --- the table: socket_table.c ------------------------------------------------------------------------------------ */

struct xts_sock *table_allocate(struct stack *st); /* NULL: full */
/* by the identifier in a message: also sockets that are closing; NULL: none on this stack */
struct xts_sock *table_find(struct stack *st, uint32_t id);
struct xts_sock *table_open(struct stack *st, int number); /* by the application's number; NULL: EBADF */
/* The same for a call that uses it: an inherited socket is taken over first (waits). */
struct xts_sock *table_use(struct stack *st, int number);
/* The same for another purpose of take_over.h: to wait for events, or PURPOSE_NOBODY if the call takes it over
 * itself. */
struct xts_sock *table_use_for(struct stack *st, int number, uint32_t purpose);
/* Holds the entry of this number, whatever socket has it; NULL: there is none. */
struct xts_sock *table_hold(int number);
void table_forget_holders(struct stack *st); /* in a forked child: they are threads of the parent */
void table_release(struct xts_sock *s);      /* the socket is found no more */
void table_reuse(struct xts_sock *s);        /* and its entry may be another socket's from now on */
/* did the parent have this number open at the fork, while this process does not have it? */
bool table_was_parents(int number);
void table_orphaned(void); /* a child that nobody has expected has none of its parent's sockets: caller.h */
/* iterates over all sockets in use; NULL to begin */
struct xts_sock *table_next(struct stack *st, struct xts_sock *after);
/* The same to the end, for a loop that waits: it holds each socket until the next one. */
struct xts_sock *table_walk(struct stack *st, struct xts_sock *after);
/* its index among the sockets of its stack, from 0 on */
uint32_t table_place(const struct xts_sock *s);
/* The stack of this number's socket; NULL: none. Called without a lock. */
struct stack *table_stack(int number);

/* --- a socket's life: socket.c ------------------------------------------------------------------------------------ */

struct xts_sock *socket_make(struct stack *st, uint8_t family);
void socket_changed(struct xts_sock *s, uint32_t events); /* EPOLL* that may have become true: wakes all waiters */
/* The counterpart of sk_state_change(): all waiters look again, since all wait for EPOLLHUP. */
#define STATE_CHANGE (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP)
uint32_t socket_events(struct xts_sock *s); /* readiness, as tcp_poll() in the kernel */
/* Takes all that has come, for a question about its state that does not wait. False: it was closed meanwhile. */
bool socket_looks(const struct xts_sock *s);
void socket_fail(struct xts_sock *s, int error);          /* the connection has been reset (tcp_reset()) */
void socket_learn(struct xts_sock *s, uint32_t proxy_id); /* the reply to the first request has come */
/* Can it be closed, though its CONNECT has not been answered yet? */
bool socket_may_cancel(const struct xts_sock *s);
void socket_free(struct xts_sock *s);    /* after CLOSED, or if the proxy knows nothing of it */
void socket_release(struct xts_sock *s); /* the last step of that; its memory stays while somebody holds it */
void socket_asked(struct xts_sock *s, bool asked);
void socket_set_lowat(struct xts_sock *s, uint32_t bytes); /* SO_RCVLOWAT, and the window that it needs */
void socket_wait_for_link(struct xts_sock *s);             /* it is woken when frames may be sent again */
uint32_t socket_credits_worth_waiting_for(const struct xts_sock *s);
int socket_disconnect(struct xts_sock *s);    /* back to unconnected; waits */
void socket_disconnected(struct xts_sock *s); /* CLOSED has come for it */
void socket_unconnected(struct xts_sock *s);  /* the same, if the proxy needs no message */
void socket_drop_queue(struct xts_sock *s);   /* of a listener: resets what waits for accept() */
void socket_close(struct xts_sock *s);        /* this, the last and the next two: processes/closing.c */
void socket_end(struct xts_sock *s);
void sockets_lose(struct stack *st); /* its channel has died */
/* The process ends. GOODBYE ends connections as close(2) does, except those of which only this process knows that the
 * peer has to get a reset: with unread bytes, or with SO_LINGER of 0. */
void sockets_at_exit(struct stack *st);
/* The same for those that do not move to the proxy's next process. */
void sockets_lose_unclaimed(struct stack *st);
int take_error(struct xts_sock *s); /* sock_error(): -errno or 0, and clears it */

int connect_socket(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		   const struct connect_pushes *encoded); /* connect.c; encoded NULL: no pushes */

#endif
