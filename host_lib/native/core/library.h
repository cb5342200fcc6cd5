/*
 * What the files of libxts share.
 *
 * Theory of operation
 *
 * A process has at most one live *channel* (channel.c): an attachment, its queue and the link over it. One mutex,
 * xts.lock, guards everything; it is never held while sleeping. Every public call is
 *
 *     library_enter(); r = ...; library_leave(); return r, or -1 and errno
 *
 * and works on the caller's thread: it takes frames from the queue (channel_pump), which changes sockets, builds frames
 * in transmit slots, and library_leave() sends what is left to send and rings the peer once.
 *
 * A call that has to wait (wait.c) names a *subject*, a counter of its waiters inside the thing that must change. One
 * waiting thread, the leader, sleeps on the queue for all; the others on a bell (eventfd) of their own. Whoever changes
 * something wakes the subject. After a wait nothing is remembered: the caller looks its socket up again and re-reads
 * xts.channel, for both may have gone.
 *
 * A socket (struct xts_sock) keeps the kernel's own variables: state is sk_state, phase is the socket's SS_*, shutdown is
 * sk_shutdown, done is SOCK_DONE, error is sk_err. The calls then follow the kernel's code paths, and with them its errno.
 *
 * What cannot leave at once for want of frame credits (a close, an advert, small data already accepted) is noted in
 * the socket's todo bits, and the socket is in the channel's outbox until it has left. If the application sleeps
 * elsewhere meanwhile, the progress thread (progress.c) sees to it.
 *
 * Polling contexts (epoll.h) keep lists of what is ready, as the kernel's epoll does; mixed.c waits for them, for sockets
 * and for kernel descriptors at once, by the same wait.
 *
 * Sockets that several processes have (fork, exec) are in inherit.h: shared listeners, whose connections are only
 * offered until one process accepts, and connections, which move to the process that uses them.
 */
#ifndef XTS_LIBRARY_H
#define XTS_LIBRARY_H

#include <errno.h>
#include <limits.h>
#include <linux/tls.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>

#include "attach.h"
#include "environment_names.h"
#include "xts_private.h"
#include "credit.h"
#include "link.h"
#include "own.h"
#include "queue.h"
#include "core/reason.h"
#include "waiting/signals.h"
#include "status.h"
#include "xts.h"

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define FOREVER UINT64_MAX

#define WINDOW_BYTES_MIN XTS_ENV_MIN_WINDOW_BYTES
#define SPIN_NEVER UINT32_MAX
#define PATIENCE 4u
#define PING_MS 250u
/* A device that says nothing may be busy, stopped or dead, which look alike from here. It is given up after so long, whatever
 * the queue; where its death shows at once (over shm the attach connection hangs up) it is not waited for. */
#define OPENING_MS 2000u          /* for the answer to HELLO */
#define ATTACH_ERROR_BYTES 256u
#define OPTION_BYTES_MAX 1024u /* of a value that is forwarded */
#define HOLD_US 200u
#define HOLD_EVENTS_MIN 4u     /* in fewer events a turn there is less to save than the clock costs */
#define KICK_FRAMES 4u         /* frames after which a long send rings the peer, so that both sides work */

/* --- received data: buffer.c ---------------------------------------------------------------------------------------- */

/* A received frame kept where it lies until it has been read. */
struct held {
	struct held *older, *newer; /* all held frames of a channel, or the pool (newer only) */
	struct piece *piece;
	struct xts_rx_frame frame;
};

/* A stretch of received data: in a held frame or in a heap buffer. */
struct piece {
	struct piece *next;
	struct held *held;         /* NULL: in heap */
	uint8_t *heap;
	uint32_t offset, bytes;    /* unread part, counted from the frame's or buffer's beginning */
	uint32_t capacity;         /* of heap */
};

#define TLS_DATA_RECORD 23     /* RFC 8446: application_data */
#ifndef SOL_TLS
#define SOL_TLS 282            /* linux/socket.h, which programs do not see */
#endif
#define CONTROL_BYTES 16u      /* of a PDU's control data */
#define ULP_DEPTH 8u           /* protocols on one another */

/* A PDU whose data is among the pieces, or a stretch of stream data beside PDUs: pdu.c. */
struct pdu {
	struct pdu *next;
	uint32_t bytes;            /* received and unread */
	uint32_t read;             /* of it, modulo 2^32 */
	uint32_t record_bytes;     /* length of all of it; 0: not known */
	uint32_t messages;         /* that it came in and whose XTS_PDU_CREDITS are still taken */
	bool stream;               /* no PDU: data of the byte stream */
	bool whole;                /* its last byte has come */
	uint8_t control_bytes;
	uint16_t control_type;
	uint8_t control[CONTROL_BYTES];
};
/* With what malloc() takes for itself: what waits must not cost more than the credits it has taken. */
_Static_assert(sizeof(struct pdu) + 16 <= XTS_PDU_CREDITS, "struct pdu");

/* --- sockets: table.c ----------------------------------------------------------------------------------------------- */

#define HEAD_COPY_BYTES 128u   /* of a frame, copied before anything in it is believed */
#define SOCKETS_MAX (1u << 20)
#define SOCKET_INDEX(id) ((id) & (SOCKETS_MAX - 1))

enum { /* sk_state, as far as the host can tell */
	TCP_STATE_CLOSE,
	TCP_STATE_SYN_SENT,
	TCP_STATE_ESTABLISHED,
	TCP_STATE_LISTEN,
};
enum { PHASE_UNCONNECTED, PHASE_CONNECTING, PHASE_CONNECTED, PHASE_DISCONNECTING }; /* the kernel's SS_* */
enum { RCV_SHUTDOWN = 1, SEND_SHUTDOWN = 2, SHUTDOWN_MASK = 3 };
enum { /* what still has to leave */
	TODO_ACCEPTED = 1, /* NEWCONN_ACK */
	TODO_DATA = 2,     /* the pending buffer */
	TODO_ADVERT = 4,
	TODO_FIN = 8,
	TODO_CLOSE = 16,
	TODO_SHARE = 32,   /* a listener's key, and how long it shall be kept */
	TODO_GIVE_BACK = 64, /* received bytes, for a protocol that has been pushed */
};
enum { NOT_INHERITED, INHERITED_ASK, INHERITED_KEYED }; /* the parent has it; or its key and state are here */
enum { NOT_MOVED, MOVING, MOVED }; /* a connection that is being, or has been, given to another process */

/* What has been pushed onto a socket, and a PDU that is being sent: push_ulp.c. */
struct ulps {
	uint8_t id[2][ULP_DEPTH]; /* by ULPS_RECEIVE and ULPS_SEND; the first is next to TCP */
	uint8_t depth[2];
	bool peeking;              /* peek mode */
	bool handshaking;          /* READY will come, or RESET */
	bool sending;              /* a thread waits in the middle of a PDU */
	bool begun;                /* a PDU that the next send call goes on with */
	uint32_t record_bytes;     /* its length; 0: not known */
	uint32_t sent;             /* of it */
	uint32_t wanted;           /* credits without which a PDU was refused */
	struct tls_crypto_info keys[2]; /* version and cipher of keys of the kernel's kind (ktls.c); version 0: none */
	uint16_t tls_version, tls_cipher; /* as the proxy has told (event TLS); 0: has not */
	uint8_t tls_by[2];         /* who decrypts and encrypts, by ULPS_RECEIVE and ULPS_SEND */
	bool tls;                  /* setsockopt(TCP_ULP, "tls") */
	bool keys_expired;         /* the peer has sent KeyUpdate */
	bool along;                /* pushed along with CONNECT: if that fails, nobody knows what is there */
	bool zerocopy_ro, expect_no_pad;
};

struct call;
struct fault;
struct mirror;
struct sharers;
struct watch;

struct xts_sock {
	uint32_t id;               /* the number; its generation moves on when the entry is released */
	uint32_t proxy_id;         /* 0: the proxy knows nothing of this socket (yet) */
	bool in_use;
	bool open;                 /* the application has not closed it */
	bool opening;              /* the first request is out: proxy_id will come with its reply */
	bool closing;              /* CLOSE has been sent, or will be */
	bool disconnecting;        /* the CLOSE is only the proxy's socket's: this one lives on */
	bool cut;                  /* disconnecting: what goes is a connection, or an attempt at one, that had not ended */
	bool lost;                 /* its channel has died */
	bool done;                 /* the TCP peer's FIN has come (SOCK_DONE) */
	bool nonblocking, close_on_exec;
	bool linger, abort;        /* SO_LINGER; abort: CLOSE carries ABORT */
	bool bound, optioned;      /* state that only the proxy's socket has */
	bool bound_address;        /* bound to an address, not to a port only */
	bool v6only;               /* the program has set IPV6_V6ONLY */
	bool renewed;              /* disconnected since: such state is gone */
	bool no_space;             /* a sender was refused: tell when there is room (SOCK_NOSPACE) */
	bool asked;                /* has sent since it last received: counts in xts.asked */
	bool in_outbox, in_blocked, mirror_dirty;
	/* over fork and exec: inherit.h */
	bool to_share, shared;     /* a listener that shall have a key at listen; that has one with the proxy */
	bool joint;                /* other processes may have it too */
	bool alone;                /* it was, but none of them has it any more, and this one is leaving */
	bool interested;           /* the application has waited for it, or accepted */
	bool offered;              /* a NEWCONN not yet answered: may still go back */
	bool taking;               /* a thread is at taking it over */
	bool kept;                 /* closed here, but not yet closed, since a child may want it */
	bool seqpacket;            /* SOCK_SEQPACKET */
	bool pushing;              /* a push or the end of peek mode is under way: nobody reads or sends meanwhile */
	uint8_t inherited, moved;
	uint8_t gone;              /* enum xts_reason: why this process does not have it after fork or exec */
	bool gone_untold;          /* nobody has used it since */
	uint8_t family;            /* 4 or 6 */
	uint8_t state, phase, shutdown;
	uint8_t todo;
	int32_t error;             /* sk_err, positive */
	uint8_t refusal;           /* enum xts_refusal: why the proxy has refused the last request, 0 if it has not */
	int32_t linger_s;
	uint16_t readers, writers, callers, polled; /* waiting threads, by what they wait for */
	uint32_t receive_lowat;
	uint64_t receive_timeout_ns, send_timeout_ns; /* FOREVER: none */

	/* receiving; for a listener the account counts connections */
	struct xts_credit_grant grant;
	uint32_t window_max;
	uint32_t consumed;         /* bytes read since the window last grew, while the peer used most of it */
	bool squeezed;             /* since then, the peer had less than half of the window left */
	uint32_t unread;           /* bytes */
	struct piece *first, *last;
	struct pdu *pdu_first, *pdu_last; /* none: all that is unread is of the byte stream */

	/* sending */
	uint32_t credits;
	uint32_t peer_window;      /* most credits ever held */
	uint8_t *pending;          /* data accepted while no frame could leave */
	uint32_t pending_bytes, pending_capacity;

	struct call *call;         /* the request being answered */
	struct xts_sock *accept_first, *accept_last, *accept_next;
	struct xts_sock *listener;
	uint32_t accept_count, backlog;
	uint32_t heirs;            /* living children that may come to want it */
	uint32_t link_number;      /* INHERITED_ASK: its number in the parent */
	uint64_t key;              /* of a shared listener, or a connection on its way between processes; else 0 */
	uint64_t interest_ns;      /* a listener: when this process last waited for it or accepted */
	struct xts_sock *shared_next;
	struct sharers *sharers;   /* of a shared listener that was there at a fork */
	struct xts_sock *outbox_next, *outbox_prev, *blocked_next, *dirty_next, *free_next;
	struct watch *watches;
	struct mirror *mirror;
	uint64_t sent_bytes, received_bytes, read_bytes;
	struct xts_endpoint local, peer;
	struct ulps ulps;
	struct fault *fault;       /* the last one of a pushed protocol, as far as the proxy has told: ulp_info.c */
};

struct xts_sock *table_allocate(void);                 /* NULL: full */
struct xts_sock *table_find(uint32_t id);              /* by the peer's word: also closing ones; NULL: no such */
struct xts_sock *table_open(int s);                    /* by the application's word; NULL: EBADF */
struct xts_sock *table_use(int s);                     /* the same, to use it: an inherited one is taken over first (waits) */
void table_release(struct xts_sock *s);
struct xts_sock *table_next(struct xts_sock *after);   /* all in use; NULL to begin */

/* --- the process: library.c ----------------------------------------------------------------------------------------- */

struct settings {
	char endpoint[108];
	char queue[128];
	char pcap[256];
	char faults[256];
	uint32_t spin_us, window_bytes, window_bytes_max, frame_window, dead_ms;
};

/* A thread that has waited: its bell rings (becomes readable) when it is woken. */
struct thread {
	struct thread *next, *previous;
	int bell;                  /* an eventfd, its own or the spare one: bell.c */
	bool shares_bell, rung;    /* it has the spare; which was rung for it */
	bool sleeping;             /* in poll: ring to wake it */
	bool batching;             /* has promised to come back: no doorbell until then */
	bool holding;              /* will probably come back: none until then, or until the progress thread's clock strikes */
};

struct waiter {
	struct waiter *next, *previous;
	uint16_t *subject;
	struct thread *thread;
	bool woken;
};

struct library {
	pthread_mutex_t lock;
	bool configured, started;
	struct settings settings;
	struct channel *channel;   /* the live one or NULL */
	struct channel *dead;      /* to be released when nobody sleeps on them any more */
	uint32_t sockets;          /* in use */
	bool attaching;
	uint16_t attach_waiters, frame_waiters, poll_waiters, close_waiters;
	unsigned asked;            /* sockets that have sent since they last received */
	struct waiter *waiters, *leader;
	unsigned waiting;
	struct thread *threads;
	unsigned idle_contexts;    /* polling contexts whose descriptor the application may be sleeping on */
	unsigned mirrors;
	struct xts_sock *dirty;    /* sockets whose mirror is out of date */
	struct epoll_ctx *contexts;
	struct xts_sock *shared;   /* this process's shared listeners */
	struct xts_sock *to_join;  /* inherited listeners that it has not joined */
	bool inherits;             /* sockets are kept over fork */
	bool joint;                /* some of them are, or were, other processes' too */
	unsigned untaken;          /* inherited sockets not taken over yet */
	unsigned moving;           /* connections that are being parked */
	uint64_t not_inherited;    /* sockets that could not be kept over fork or exec */
	uint32_t token;
	int last_error;            /* why the last channel ended or could not be opened */
	char attach_error[ATTACH_ERROR_BYTES]; /* the same of one that could not be opened, as a sentence; else empty */
	uint64_t spins, sleeps, bad_ids, bad_messages;
	uint32_t lose_ppm, lose_next; /* loss.c */
	uint64_t sent_bytes, received_bytes; /* of all sockets ever, since the process began or was forked */
};
extern struct library xts;

void library_enter(void);
void library_leave(void);
/* Leaves, as library_leave(), with the result of a call that may be interrupted. True: it is -ERESTART, and the call is to be made
 * again from the beginning. One that is not becomes -EINTR, unless the caller is inside still (signals.h) and decides itself. */
bool library_leave_interrupted(ssize_t *result);
static inline bool library_restarts(ssize_t *result)
{
	if (__builtin_expect(*result == -ERESTART, 0))
		return library_leave_interrupted(result);
	library_leave();
	return false;
}
/* Before the lock is given up for anything but a wait of wait.c: what was said leaves, and whoever sleeps on the queue outside
 * of our waits has its doorbell armed. */
void library_rest(void);
/* Is the message at hand to be lost? Asked only while some are (loss.c). */
bool loss_takes_it(void);
void library_settle(void);                    /* waits, a second at most, until what has been said has left */
/* The sentence about an error that a call is about to return, where errno does not say it all: xts_last_error() gives it. */
__attribute__((format(printf, 2, 3))) void last_error_note(int error, const char *format, ...);
/* A public call of this thread, on this socket (-1: on none), has failed. */
void last_error_failed(int error, int number);
/* The result of a public call on a socket (-1: on none): -1 and errno for -errno. */
static inline int finish_of(int number, int result)
{
	if (result >= 0)
		return result;
	errno = result == -ERESTART && !xts_inside.depth ? EINTR : -result;
	last_error_failed(errno, number);
	return -1;
}
static inline int finish(int result)
{
	return finish_of(-1, result);
}
struct thread *thread_self(void); /* NULL: no memory, or no bell to be had */

void bell_reserve(void);          /* the spare; once attached there is one */
bool bell_get(struct thread *t);  /* false: there is none to be had */
void bell_heard(struct thread *t, bool ringing); /* t is awake again, and its bell was ringing or not */
void bell_give_up(struct thread *t);
void bells_forget(void);          /* in a forked child: they are its parent's */
uint64_t now_ns(void);

/* --- settings: configure.c ------------------------------------------------------------------------------------------ */

int settings_complete(struct settings *settings); /* environment and defaults where nothing was configured */
int faults_parse(const char *text, struct xts_faults *transmit, struct xts_faults *receive);

/* A connection the proxy has announced (its identifier) and that we do not take: EAGAIN gives it back. */
struct refused {
	uint32_t proxy_id;
	uint16_t error;
};

/* --- channel: opening.c, channel.c, outbox.c ------------------------------------------------------------------------------------ */

struct channel {
	struct channel *next_dead;
	struct xts_attachment attachment;
	struct xts_queue *queue;   /* attachment.queue, perhaps decorated */
	struct xts_queue *bundle;  /* one of the decorators (xts_bundle_wrap()), or NULL */
	struct xts_link link;
	bool dead;
	bool retry;                /* no slot, or a doorbell that must be repeated: look again in a millisecond */
	bool armed;                /* by library_leave(), for who sleeps on the queue outside of our waits */
	unsigned sleepers;         /* threads in poll on its descriptors */
	unsigned unkicked;         /* frames since the last doorbell */
	struct xts_sock *outbox_first, *outbox_last;
	struct xts_sock *blocked;  /* sockets to be told when frames may be sent again */
	struct held *pool, *held_oldest, *held_newest;
	uint64_t pending_bytes;
	struct refused *refused;   /* connections to be refused or given back */
	unsigned refused_count, refused_room;
	struct held *held;
};

/* Something has still to leave, or to be looked at again. */
static inline bool channel_busy(const struct channel *c)
{
	return c->outbox_first || c->refused_count || c->retry;
}

int channel_attach(void);                     /* makes xts.channel, if there is none; blocks; 0 or -errno */
void channel_control(struct channel *c, uint64_t now);
void channel_pump(void);                      /* takes and handles what has come */
void channel_tick(uint64_t now);
void channel_die(int error);                  /* ends the channel and its sockets */
void channel_fail(int error);                 /* the same for a violation by the peer: says GOODBYE */
void channel_reap(void);
void channel_check_idle(void);                       /* before something new is begun on it */
void channel_connection_event(struct channel *c); /* the attach connection is readable */
uint64_t channel_deadline_ns(const struct channel *c);
bool channel_can_send(void);
int channel_slot(struct xts_tx_slot *slot);   /* 0, or -EAGAIN: no frame can leave now; -ENETDOWN */
void channel_submit(const struct xts_tx_slot *slot, uint32_t bytes);
void channel_flush(bool kick);                /* outbox, control frames, doorbell */
int channel_wait_slot(struct xts_tx_slot *slot); /* waits for one; 0 or -ENETDOWN */
void channel_forget(void);                    /* in a forked child */

/* Notes that a connection the proxy has announced is not taken, for the outbox. */
void channel_refuse(uint32_t proxy_id, uint16_t error);

void outbox_add(struct xts_sock *s, uint8_t todo);
void outbox_remove(struct xts_sock *s);
void outbox_flush(void);
bool outbox_flush_socket(struct xts_sock *s); /* true: nothing of it is left to send */

void message_receive(struct xts_rx_frame *frame, const struct xts_head *head, const uint8_t *copy);
struct xts_sock *message_target(uint32_t id); /* of a message; NULL: none, which is counted */
bool message_credits(struct xts_sock *s, uint32_t post_credits); /* takes them; false: the channel has ended */

/* --- waiting: wait.c, progress.c -------------------------------------------------------------------------------------- */

#define SLEEP_FDS 3 /* bell, queue, attach connection */

/* What a wait watches beside its subject: kernel descriptors and, while it sleeps, another signal mask. */
struct beside {
	struct pollfd *fds;        /* the first SLEEP_FDS are wait.c's own */
	nfds_t count;              /* of the others */
	const sigset_t *mask;      /* NULL: leave it */
	bool patient;              /* spins PATIENCE times as long */
	bool looked;               /* the revents tell how it was during this wait */
	bool ready;                /* one of them is */
};

/* Sleeps until the subject is woken: 0, -ETIMEDOUT at deadline_ns, -ENOBUFS. Gives up xts.lock meanwhile. */
int wait_for(uint16_t *subject, uint64_t deadline_ns, bool spin);
/* The same, but a signal ends it: -EINTR. */
int wait_interruptibly(uint16_t *subject, uint64_t deadline_ns, bool spin);
/* The same; 0 also when beside->ready. */
int wait_beside(uint16_t *subject, uint64_t deadline_ns, bool spin, struct beside *beside);
extern struct xts_kernel_calls kernel_calls;
void wake(uint16_t *subject);
void wake_all(void);
void wake_sleepers_on_queue(void);            /* to look again at how long they may sleep */
void thread_ring(struct thread *thread);
int sleep_on_bell(struct thread *thread, struct beside *beside, uint64_t deadline_ns);
int sleep_on_channel(struct channel *c, struct thread *thread, struct beside *beside, uint64_t deadline_ns);
/* In a call that sends: waits until there is room, or s has changed otherwise. 0: look again; else what the call returns: -EBADF: s was closed meanwhile,
 * and is not to be touched; -EAGAIN: the deadline is over; -ERESTART or -EINTR, as interrupted() has it; -ENOBUFS. */
int wait_to_send(struct xts_sock *s, uint64_t deadline_ns, bool spin);
/* After -EINTR: what the call ends with. One that has a timeout is never made again (signal(7)). */
static inline int interrupted(uint64_t timeout_ns)
{
	return timeout_ns == FOREVER ? -ERESTART : -EINTR;
}
bool signal_restarts(void);
static inline uint64_t deadline_after(uint64_t timeout_ns)
{
	return timeout_ns == FOREVER ? FOREVER : now_ns() + timeout_ns;
}

void progress_need(void);                     /* something has to be looked after: wakes or starts the thread */
void progress_wake(void);                     /* if it sleeps on the queue */
void progress_forget(void);
bool progress_sleeps_on_queue(void);
bool progress_will_flush(void);               /* in HOLD_US at the latest; false: it cannot */

/* --- sockets ---------------------------------------------------------------------------------------------------------- */

struct xts_sock *socket_make(uint8_t family);
void socket_changed(struct xts_sock *s, uint32_t events); /* EPOLL* that may have become true: tells everybody */
/* What sk_state_change() is here: whoever waits for anything looks again. EPOLLHUP is what everybody waits for. */
#define STATE_CHANGE (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP)
uint32_t socket_events(struct xts_sock *s);   /* readiness, as tcp_poll() in the kernel */
void socket_fail(struct xts_sock *s, int error); /* the connection is gone (tcp_reset()) */
void socket_learn(struct xts_sock *s, uint32_t proxy_id); /* the reply to the first request has come */
void socket_free(struct xts_sock *s);         /* after CLOSED, or where the proxy knows nothing of it */
void socket_asked(struct xts_sock *s, bool asked);
uint32_t socket_credits_worth_waiting_for(const struct xts_sock *s);
int socket_disconnect(struct xts_sock *s);    /* back to unconnected; waits */
void socket_disconnected(struct xts_sock *s); /* it is */
void socket_unconnected(struct xts_sock *s);  /* the same, where the proxy need not be told */
void socket_close(struct xts_sock *s);
void socket_end(struct xts_sock *s);
int take_error(struct xts_sock *s);           /* sock_error(): -errno or 0, and clears it */

void buffer_append(struct xts_sock *s, struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes);
size_t buffer_copy(struct xts_sock *s, uint32_t skip, const struct iovec *out, size_t out_skip, size_t bytes);
int buffer_take_over(struct xts_sock *s, uint8_t *heap, uint32_t bytes); /* appends; heap is the buffer's from here on; 0 or -ENOMEM */
void buffer_consume(struct xts_sock *s, uint32_t bytes);
void buffer_drop(struct xts_sock *s);
int buffer_pool_make(struct channel *c);
void buffer_evict_all(struct channel *c);
void frame_recycle(struct xts_rx_frame *frame);

/* A request that has a reply with a token: BIND, LISTEN, SETSOCKOPT, GETSOCKOPT, IOCTL, SHARE, PARK, CLAIM. */
struct call {
	uint8_t type;              /* of the request */
	uint32_t token;
	int32_t level, option;     /* IOCTL: option is the request */
	uint16_t ulp_id;           /* of a push */
	uint32_t post_credits, backlog;
	uint64_t key;
	uint32_t keep_ms, unread;
	uint64_t deadline_ns;      /* 0: none */
	struct xts_endpoint local;
	uint8_t value[OPTION_BYTES_MAX];
	uint32_t length;
	bool done;
	int error;                 /* positive */
};
int call_proxy(struct xts_sock *s, struct call *call);
int call_proxy_unanswered(struct xts_sock *s, struct call *call);
int first_request_wait(struct xts_sock *s);   /* until nobody else's first request is out */

/* --- receiving and sending: recv.c, send.c ------------------------------------------------------------------------------ */

/* What recvmsg() tells beside the data. */
struct about {
	void *control;
	size_t room, used;         /* of control */
	int flags;                 /* msg_flags */
};

/* Has been read: bytes of the buffer, and credits that were taken beside. */
void recv_consume(struct xts_sock *s, uint32_t bytes, uint32_t credits);

struct source {
	const struct iovec *iov;
	size_t offset;             /* in *iov */
	size_t left;               /* bytes in all */
};
void source_take(struct source *src, uint8_t *out, size_t bytes);
void send_account(struct xts_sock *s, uint32_t credits, uint32_t bytes);
void send_wait_for_link(struct xts_sock *s);
/* tcp_sendmsg(): all of it when blocking, else what fits. Bytes or -errno. */
ssize_t send_all(struct xts_sock *s, struct source *src, int flags);
int send_wait_connected(struct xts_sock *s, bool blocking, uint64_t deadline); /* sk_stream_wait_connect() */

/* --- pushed protocols: push_ulp.c, connect_pushes.c, ulp_info.c, pdu.c, pdu_recv.c, pdu_send.c -------------------------------------- */

enum { ULPS_RECEIVE, ULPS_SEND };

/* The uppermost protocol of a direction; 0: none. */
static inline uint16_t socket_ulp(const struct xts_sock *s, unsigned direction)
{
	return s->ulps.depth[direction] ? s->ulps.id[direction][s->ulps.depth[direction] - 1] : 0;
}

/* Pushes a protocol: request is SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX or SIOC_PUSH_ULP. Waits; 0 or -errno. */
int socket_push(struct xts_sock *s, uint32_t request, uint16_t ulp_id, const uint8_t *attributes, uint32_t bytes);
int push_ioctl(struct xts_sock *s, unsigned long request, const void *argument);
/* Pushes that go along with a CONNECT: connect_pushes.c. */
struct along {
	uint32_t bytes;
	uint8_t payload[XTS_CONNECT_PUSH_BYTES];
};
void push_note(struct xts_sock *s, uint32_t request, uint16_t ulp_id); /* it is there, or will be */
void push_along(struct xts_sock *s, const struct along *along); /* they are on their way */
int connect_socket(struct xts_sock *s, const struct sockaddr *address, socklen_t length, const struct along *along); /* connect.c; along NULL: none */
void push_answered(struct xts_sock *s, const struct call *call); /* the proxy has done it */
int push_give_back(struct xts_sock *s);       /* 0: all is given back; -EAGAIN: no frame can leave now; -ENETDOWN */
void push_forget(struct xts_sock *s);         /* a new connection begins with nothing pushed */
uint32_t push_window(const struct xts_sock *s, uint32_t window); /* at least what such a socket needs */
void fault_forget(struct xts_sock *s);

/* The kernel's TLS interface: ktls.c. 0 or -errno. */
int ktls_set_ulp(struct xts_sock *s, const void *value, socklen_t length);
int ktls_get_ulp(const struct xts_sock *s, void *value, socklen_t *length);
int ktls_set(struct xts_sock *s, int option, const void *value, socklen_t length);
int ktls_get(const struct xts_sock *s, int option, void *value, socklen_t *length);
void ktls_control_read(struct xts_sock *s, uint8_t type, uint8_t first); /* a control record, that begins so, has been read */

/* True when the frame has been taken over. */
bool pdu_message(const struct xts_head *head, const struct xts_recv_pdu *m, struct xts_rx_frame *frame);
bool pdu_stream_data(struct xts_sock *s, uint32_t bytes); /* beside PDUs; false: it cannot be there */
bool pdu_is_open(const struct xts_sock *s);   /* the end of a PDU has not come yet */
bool pdu_is_readable(const struct xts_sock *s); /* of a socket with PDUs: a receive call has something to give */
uint32_t pdu_credits(const struct xts_sock *s); /* taken beside the bytes */
void pdu_drop(struct xts_sock *s);
void pdu_consume(struct xts_sock *s, uint32_t bytes); /* bytes of the first one, or the rest of it */
int pdu_restore(struct xts_sock *s, const struct pdu *pdu); /* appends; 0 or -ENOMEM */
/* Receives of the first one: 1, or 0: nothing now, or -errno. *done: bytes copied. */
int pdu_recv(struct xts_sock *s, const struct iovec *iov, size_t bytes, size_t *done, int flags, struct about *about);
/* A control message; false: it was cut off, or there was no room at all. */
bool about_put(struct about *about, int level, int type, const void *data, size_t bytes);

/* What a PDU is sent with beside its data. */
struct control {
	uint16_t type;             /* enum xts_ulp_id, 0: nothing */
	uint16_t bytes;
	uint8_t data[CONTROL_BYTES];
};
int control_read(struct control *out, const struct msghdr *message); /* of sendmsg(); 0 or -EINVAL */
/* Of a message socket, or with control data. */
ssize_t pdu_send(struct xts_sock *s, struct source *src, int flags, const struct control *control);

void epoll_ready(struct xts_sock *s, uint32_t events);
void epoll_end_turn(void);
void epoll_channel_opened(void);
void epoll_forget_socket(struct xts_sock *s);
void epoll_forget(void);
bool epoll_watches(const struct epoll_ctx *ctx, const struct xts_sock *s);
bool epoll_awaits(const struct xts_sock *s);  /* a thread waits for it in a context */
bool epoll_awaits_elsewhere(const struct xts_sock *s); /* somebody may, on a context's descriptor */
/* Somebody waits for a connection of this listener, or accepts: to a shared one they may come. */
void listener_interest(struct xts_sock *s);
void mirror_dirty(struct xts_sock *s);
void mirrors_update(void);
void mirror_close(struct xts_sock *s);

int address_read(struct xts_endpoint *out, uint8_t family, const struct sockaddr *address, socklen_t length, bool to_bind);
/* -errno where this host can tell, as the kernel at once, that s cannot connect to peer; else 0. */
int address_connectable(const struct xts_sock *s, const struct xts_endpoint *peer);
int address_write(uint8_t family, const struct xts_endpoint *endpoint, struct sockaddr *address, socklen_t *length);

#include "processes/inherit.h"

void status_state(const struct xts_sock *s);
void status_data(const struct xts_sock *s);
void status_ulps(const struct xts_sock *s);   /* what is pushed has changed */
void status_link(void);

#endif
