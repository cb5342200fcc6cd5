/*
 * What libxts offers the interposer (libxts-preload) and the Python package in addition to xts.h: waiting for offloaded
 * sockets and kernel descriptors at once, keeping sockets over fork() and exec(), and the rules. Exported under the
 * version XTS_PRIVATE, for users of the very same build.
 */
#ifndef XTS_PRIVATE_H
#define XTS_PRIVATE_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#include "xts.h"

#pragma GCC visibility push(default)

/* --- waiting for both kinds: mixed.c ------------------------------------------------------------------------------ */

#define XTS_FOREVER UINT64_MAX

/* CLOCK_MONOTONIC in ns. */
uint64_t xts_now_ns(void);

/* The C library's own calls, for an interposer that has taken their names. */
struct xts_kernel_calls {
	/* xts_sleep_poll() */
	int (*ppoll)(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
	int (*epoll_wait)(int set, struct epoll_event *events, int max, int timeout_ms);
	long (*syscall)(long number, ...);
	int (*sigaction)(int number, const struct sigaction *action, struct sigaction *old);
	int (*getsockopt)(int fd, int level, int option, void *value, socklen_t *length);
};
/* Before anything else is called. NULL: as it is. */
void xts_use_kernel_calls(const struct xts_kernel_calls *calls);

/*
 * ppoll(2) over XTS socket numbers and kernel descriptors together, until deadline_ns (0: does not wait). Fills all
 * revents and returns how many entries are ready, 0 at the deadline, or -1 with EINTR (whatever SA_RESTART says),
 * ENOMEM. mask (NULL: leave it) is the thread's signal mask while it sleeps.
 */
int xts_poll_mixed(struct pollfd *sockets, nfds_t count, struct pollfd *kernel, nfds_t kernel_count,
		   uint64_t deadline_ns, const sigset_t *mask);

/* A polling context that is polled itself, as an epoll set's descriptor can be. */
struct xts_polled_context {
	void *ectx;
	short events, revents;
};
int xts_poll_contexts(struct pollfd *sockets, nfds_t count, struct xts_polled_context *contexts, nfds_t context_count,
		      struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns, const sigset_t *mask);

/*
 * epoll_pwait2(2) over a polling context (ectx) and the kernel's epoll set kernel_set (-1: none) together: the events
 * of both, at most max, fairly. kernel_set holds kernel descriptors only; *members is how many: at 0 its events are not
 * asked for but by who sleeps (NULL: unknown).
 */
int xts_epoll_wait_mixed(void *ectx, int kernel_set, const _Atomic uint32_t *members, struct epoll_event *events,
			 int max, uint64_t deadline_ns, const sigset_t *mask);
/* Has the context an event now? */
bool xts_epoll_is_ready(void *ectx);
/* xts_epoll_ctl() of a registration with a key, which distinguishes it from others of the same socket in this
 * context. */
int xts_epoll_ctl_keyed(void *ectx, int op, int number, uint32_t key, struct epoll_event *event);
/* What a registration asks for (of one-shot ones that have been reported: nothing any more): 0, or -1 with ENOENT. */
int xts_epoll_registered(void *ectx, int number, uint32_t key, struct epoll_event *event);
/* Registers a context in another one, in which it is readable while it has an event. The caller keeps them from forming
 * a loop. */
int xts_epoll_nest(void *ectx, int op, void *inner, uint32_t key, struct epoll_event *event);

/*
 * Descriptors of libxts's own, from now on: own() is called for each new one, and may move it and return its new
 * number; disown() before it is closed. Before the first socket.
 */
void xts_on_descriptors(int (*own)(int fd), void (*disown)(int fd));

/*
 * Gives this process's attachment up, in order: what closed sockets have sent leaves first, for a second at most; open
 * sockets end (ECONNRESET). Settings are again as at the start, so that xts_configure() may name another endpoint.
 * Without one: only the latter.
 */
void xts_leave(void);

/* The stack of the calling thread for an endpoint, by XTS_STACKS; made, if there is none. For xts_stack_use(); -1 with
 * ENOMEM, ENAMETOOLONG. */
int xts_stack_at(const char *endpoint);

/* For tests: of the messages that the calling thread's stack sends from now on, the next so many are lost on the queue,
 * and of the others this share, in millionths. 0, 0: none. */
void xts_lose(uint32_t share_ppm, uint32_t next);

/* --- descriptors that change: mirror.c ---------------------------------------------------------------------------- */

/* Before the descriptor fd, of a kernel's socket, becomes a duplicate of xts_fileno(number): threads that sleep for
 * what it was are woken whenever the XTS socket becomes readable. Keeps a duplicate. 0, or -1 with EBADF, EMFILE. */
int xts_wake_sleepers_of(int number, int fd);

/* --- names: name_query.c ------------------------------------------------------------------------------------------ */

/* Does the proxy ask name servers for us? Attaches the process. 1, 0, or -1 with the errno of xts_socket(). */
int xts_names_served(void);
/* The errno of the first xts_query_name() of this thread that has failed since this was called last; 0: none has. */
int xts_take_name_failure(void);
/* XTS_FAMILY_* of wire.h: the families of the device's addresses, by the last answer; 0: not known. */
unsigned xts_device_families(void);

/* --- options: option.c -------------------------------------------------------------------------------------------- */

/*
 * TCP_NODELAY of a connection, without waiting for the proxy's answer: the only failure would be that the connection is
 * over, which other calls report. EAGAIN: not without waiting, as when the socket is not connected: xts_setsockopt()
 * does.
 */
int xts_set_nodelay(int s);

/* --- receive callbacks of an interpreter: core/receive_callback.h --------------------------------------------------- */

/* errno of a receive call on a socket with xts_ask_reader(): the first datagram or PDU is to be decided about. */
#define XTS_UNDECIDED ENOANO

/* From now on (or no longer) receive calls on this socket ask. As xts_register_recv_callback(), which it replaces. */
int xts_ask_reader(int number, bool on);
/* A copy of the first datagram or PDU of the queue: 1, and this thread decides about it; 0: there is nothing to be
 * decided now, or another thread is about to; -1 and errno. Again before it has decided: the same. Never blocks. */
int xts_undecided(int number, const struct xts_packet **out);
/* It has been decided. With any verdict the packet is the caller's until xts_packet_free(); with XTS_PACKET_HOLD it
 * takes the credits that it came with until then, or until xts_packet_release(). */
void xts_decided(const struct xts_packet *packet, enum xts_packet_verdict verdict);
/* The credits of a packet are free again; its memory is not. */
void xts_packet_release(const struct xts_packet *packet);

/* --- connecting: connect.c ---------------------------------------------------------------------------------------- */

/* 1: the next connect() begins an attempt. 0: it does not: there was an attempt whose result has not been fetched, or a
 * connection, perhaps ended, or it listens. -1 with EBADF. */
int xts_is_unconnected(int s);

/* --- over fork and exec: inherit.c -------------------------------------------------------------------------------- */

/*
 * From now on sockets are kept over fork(): a child has its parent's numbers. Listeners are shared (both accept), and
 * connections are used by turns. See inherit.h.
 */
void xts_inherit_over_fork(void);
/*
 * Before exec(): gives up the sockets of this process (numbers and the descriptors they shall have after it) to
 * whoever reads the returned memfd (close-on-exec unset), or -1 with errno. After a failed exec, xts_resume() with
 * it takes them back under their old numbers.
 */
struct xts_exec_socket {
	int number;     /* XTS socket */
	int descriptor; /* of the program; there may be several of one number */
	bool again;     /* xts_inherit_next(): the number was given before, with another descriptor */
	bool listens;   /* xts_inherit_next(), xts_take_passed() */
	bool datagrams; /* likewise: a datagram socket */
};
int xts_exec_prepare(const struct xts_exec_socket *sockets, unsigned count);
/* In the new program: takes the sockets over, one call each, in order: 1 and *out filled, 0 at the end, -1 with errno
 * for one that is not kept (out->descriptor says which; ENOTCONN: it is another process's). Closes memfd at the end. */
int xts_inherit_next(int memfd, struct xts_exec_socket *out);
/* After an exec that failed: takes back what xts_exec_prepare() has given up, under the old numbers, and closes
 * memfd. */
void xts_resume(int memfd);
/*
 * To pass a socket to another program over a Unix socket: a descriptor to be sent in its place, and then to be closed
 * (pass.c). kernel_fd: of a listener, or a socket that is bound, a socket of the kernel that is to stand for it, as the
 * one that listens for it on this host; or -1. -1 and errno: ENOTCONN, there is
 * nothing to be passed, for it has ended; EOPNOTSUPP, it cannot be now; EUSERS, other programs hold its whole name.
 */
int xts_pass(int number, int kernel_fd);
/* And of a descriptor that was received: 1 and *out, 0: it is no such descriptor, -1 and errno: it cannot be had. The
 * descriptor is the caller's to close in any case. at_once: a listener is joined, and not only when it is used. */
int xts_take_passed(int fd, bool at_once, struct xts_exec_socket *out);
/*
 * Before _exit(), which runs no destructor: what has been sent leaves, and living children are left what they may want.
 * Not in a child of vfork(). The library must not be used after it.
 */
void xts_before_exit(void);

/* The sentence that goes with this errno, if this thread's last failed call had it, or the proxy means more by it than
 * its usual text says; else NULL. ask: a pushed protocol's reason may be asked for, which takes a round trip. Valid
 * until the next call. */
const char *xts_reason_of(int error, bool ask);
/* Why the proxy has refused this thread's last failed call, if it has: enum xts_refusal, else 0. */
unsigned xts_last_refusal(void);
/* The state of a socket, enum xts_state of status.h; -1 with EBADF. Does not block. */
int xts_state(int number);
/* The table of what states a socket can be in (state_table.h), for the documentation. */
const struct xts_state_table *xts_socket_states(void);

/*
 * notify() is called for each socket that this process does not have after fork or exec, when the application first
 * uses it (whose call fails): its number, and XTS_REASON_ELSEWHERE or XTS_REASON_LOST. It is called with the library's
 * lock, and must not wait or call the library. Before the first socket.
 */
void xts_on_gone(void (*notify)(int number, unsigned reason));

/*
 * How many sockets of this process had each reason so far (enum xts_reason; [0]: were offloaded), for the figures that
 * the endpoint keeps of a program that is killed. Waits for no lock.
 */
void xts_publish_counts(const uint64_t *sockets, unsigned count);

/*
 * The CPU time of this process since xts_cpu_begin(), which the interposer calls when it is loaded: a process keeps its
 * CPU time over exec, and what `xts run` used before it became the program is none of the program's. Without that call,
 * and in a child of fork, all of it.
 */
struct rusage;
void xts_cpu_begin(void);
int xts_cpu_used(struct rusage *used); /* only the two times; 0, or -1 and errno */

/* A listener's connections are taken only while this process shows interest (a wait or an accept), in small numbers:
 * for listeners that may come to be shared. Call between socket and listen. */
int xts_share_listener(int s);

#pragma GCC visibility pop

#endif
