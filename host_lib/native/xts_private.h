/*
 * What libxts offers the interposer (libxts-preload) and the Python package in addition to xts.h: waiting for offloaded
 * sockets and kernel descriptors at once, keeping sockets over fork() and exec(), and the rules. Exported under the
 * version XTS_PRIVATE, for users of the very same build.
 */
#ifndef XTS_PRIVATE_H
#define XTS_PRIVATE_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#include "xts.h"

#pragma GCC visibility push(default)

/* --- waiting for XTS sockets and kernel descriptors: mixed_descriptors.c
 * ------------------------------------------------------ */

#define XTS_FOREVER UINT64_MAX

/* How many options were accepted in this process that change nothing: core/hint.c. */
uint64_t xts_hints_taken(void);

/* A call that is a cancellation point begins, outside of the library: ends the thread, if that was asked for. */
void xts_cancellation_point(void);

/* CLOCK_MONOTONIC in ns. */
uint64_t xts_now_ns(void);

/* The C library's own functions, for an interposer that has replaced them. */
struct xts_kernel_calls {
	/* for xts_sleep_poll() */
	int (*ppoll)(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
	int (*epoll_wait)(int set, struct epoll_event *events, int max, int timeout_ms);
	long (*syscall)(long number, ...);
	int (*sigaction)(int number, const struct sigaction *action, struct sigaction *old);
	int (*getsockopt)(int fd, int level, int option, void *value, socklen_t *length);
	int (*pthread_cancel)(pthread_t thread);
};
/* To be called before anything else. A NULL member: the call is not replaced. */
void xts_use_kernel_calls(const struct xts_kernel_calls *calls);

/*
 * ppoll(2) over XTS socket numbers and kernel descriptors together, until deadline_ns (0: does not wait). Fills all
 * revents and returns how many entries are ready, 0 at the deadline, or -1 with EINTR (whatever SA_RESTART says),
 * ENOMEM. mask (NULL: no change) is the thread's signal mask while it sleeps.
 */
int xts_poll_mixed(struct pollfd *sockets, nfds_t count, struct pollfd *kernel, nfds_t kernel_count,
		   uint64_t deadline_ns, const sigset_t *mask);

/* A polling context that is polled itself, like the descriptor of an epoll set. */
struct xts_polled_context {
	void *ectx;
	short events, revents;
};
int xts_poll_contexts(struct pollfd *sockets, nfds_t count, struct xts_polled_context *contexts, nfds_t context_count,
		      struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns, const sigset_t *mask);

/*
 * epoll_pwait2(2) over a polling context (ectx) and the kernel's epoll set kernel_set (-1: none) together: the events
 * of both, at most max, fairly. kernel_set holds kernel descriptors only, and *members is their number (NULL: unknown):
 * at 0 the set is only polled during a sleep.
 */
int xts_epoll_wait_mixed(void *ectx, int kernel_set, const _Atomic uint32_t *members, struct epoll_event *events,
			 int max, uint64_t deadline_ns, const sigset_t *mask);
/* Does the context have an event now? */
bool xts_epoll_is_ready(void *ectx);
/* Of all stacks of the process; xts_get_info() is about one. */
struct xts_totals {
	uint64_t sent_bytes, received_bytes; /* of all sockets, closed ones too */
	bool relayed;                        /* one of them is behind the agent's relay */
};
int xts_get_totals(struct xts_totals *out); /* 0 */
/* xts_epoll_ctx_create_flags(), in the stack of this socket, which is about to be registered in it: so threads that
 * wait in it sleep on that stack's queue. */
void *xts_epoll_ctx_create_for(int number, unsigned flags);
/* xts_epoll_ctl() for a registration with a key, which distinguishes it from others of the same socket in this
 * context. */
int xts_epoll_ctl_keyed(void *ectx, int op, int number, uint32_t key, struct epoll_event *event);
/* The events that a registration asks for (none for a one-shot registration that has reported): 0, or -1 with
 * ENOENT. */
int xts_epoll_registered(void *ectx, int number, uint32_t key, struct epoll_event *event);
/* Registers a context in another one, in which it is readable while it has an event. The caller makes sure that they
 * form no loop. */
int xts_epoll_nest(void *ectx, int op, void *inner, uint32_t key, struct epoll_event *event);

/*
 * For libxts's own descriptors, from now on: own() is called for each new one, and may move it and return its new
 * number; disown() is called before it is closed. To be called before the first socket is made.
 */
void xts_on_descriptors(int (*own)(int fd), void (*disown)(int fd));

/*
 * Gives up this process's attachment in an orderly way: data that closed sockets have sent leaves first, for at most a
 * second; open sockets end (ECONNRESET). Settings are as at the start again, so that xts_configure() may name another
 * endpoint. Without an attachment only the settings are reset.
 */
void xts_leave(void);

/* The stack of the calling thread for an endpoint, according to XTS_STACKS; made, if there is none. For
 * xts_stack_use(); -1 with ENOMEM, ENAMETOOLONG. */
int xts_stack_at(const char *endpoint);

/* Asked whether this program has been told to use an endpoint, apart from its own, for a socket that another program
 * gives it. To be called before the first socket is made. */
void xts_on_endpoints(bool (*known)(const char *path));

/* For tests: of the messages that the calling thread's stack sends from now on, the next `next` are lost on the queue,
 * and of the others this share, in millionths. 0, 0: none. */
void xts_lose(uint32_t share_ppm, uint32_t next);

/* --- descriptors that change: mirror.c ---------------------------------------------------------------------------- */

/* To be called before the descriptor fd of a kernel socket becomes a duplicate of xts_fileno(number): threads that
 * sleep on the old socket are woken whenever the XTS socket becomes readable. Keeps a duplicate. 0, or -1 with EBADF,
 * EMFILE. */
int xts_wake_sleepers_of(int number, int fd);
/* xts_fileno(), and it hangs up when an attempt to connect has failed, as a kernel's socket does. That cannot be
 * undone, so the descriptor is closed when the next attempt begins. */
int xts_fileno_until_connect(int number);

/* --- names: name_query.c ------------------------------------------------------------------------------------------ */

/* Does the proxy answer queries for names? Attaches the process. 1, 0, or -1 with the errno of xts_socket(). */
int xts_names_served(void);
/* The errno of this thread's first xts_query_name() that has failed since the last call of this function; 0: none
 * has. */
int xts_take_name_failure(void);
/* XTS_FAMILY_* of wire.h: the families of the device's addresses, from the last answer; 0: not known. */
unsigned xts_device_families(void);

/* --- options: option.c -------------------------------------------------------------------------------------------- */

/*
 * Sets TCP_NODELAY of a connection without waiting for the proxy's answer: it could only fail if the connection is
 * over, which other calls report. EAGAIN: that would need a wait, for example because the socket is not connected: use
 * xts_setsockopt().
 */
int xts_set_nodelay(int s);

/* --- receive callbacks of an interpreter: core/receive_callback.h --------------------------------------------------- */

/* errno of a receive call on a socket with xts_ask_reader(): the first datagram or PDU has to be decided about. */
#define XTS_PACKET_ASKS ENOANO

/* From now on (or no longer) receive calls on this socket ask the reader. Replaces what xts_register_recv_callback()
 * has set, and the other way round. */
int xts_ask_reader(int number, bool on);
/* A copy of the first datagram or PDU of the queue. 1: this thread decides about it; 0: there is nothing to decide now,
 * or another thread is deciding; -1 and errno. If this thread has not decided yet, it gets the same one again. Never
 * blocks. */
int xts_packet_asks(int number, const struct xts_packet **out);
/* Reports the decision. With any verdict the caller owns the packet until xts_packet_free(). With XTS_PACKET_HOLD it
 * keeps the credits that it came with until then, or until xts_packet_release(). */
void xts_packet_decided(const struct xts_packet *packet, enum xts_packet_verdict verdict);
/* Frees the credits of a packet, but not its memory. */
void xts_packet_release(const struct xts_packet *packet);

/* --- connecting: connect.c ---------------------------------------------------------------------------------------- */

/* 1: the next connect() begins an attempt. 0: it does not, since there was an attempt whose result has not been
 * fetched, or there is a connection (which may have ended), or the socket listens. -1 with EBADF. */
int xts_is_unconnected(int s);

/* --- over fork and exec: inherit.c -------------------------------------------------------------------------------- */

/*
 * From now on sockets are kept over fork(): a child has its parent's numbers. Listeners are shared (both processes
 * accept), and connections are used in turn. See inherit.h.
 */
void xts_inherit_over_fork(void);
/* Finds a descriptor of the kernel's half of a listener: one that listens on this host, too. -1: there is none. */
void xts_on_halves(int (*half_of)(int number));
/*
 * Before exec(): gives up the sockets of this process (numbers, and the descriptors they shall have after it), for the
 * program that reads the returned memfd (close-on-exec unset); or -1 with errno. After a failed exec, xts_resume()
 * takes them back under their old numbers.
 */
struct xts_exec_socket {
	int number;     /* XTS socket */
	int descriptor; /* of the program; one number may have several */
	bool again;     /* one more descriptor of a number that the program has: xts_close() comes after the last */
	bool listens;   /* from xts_inherit_next(), xts_take_passed() */
	bool datagrams; /* from the same: a datagram socket */
};
int xts_exec_prepare(const struct xts_exec_socket *sockets, unsigned count);
/* In the new program: takes over one socket with each call, in order. 1 and *out filled; 0 at the end; -1 with errno
 * for a socket that is not kept (out->descriptor says which; ENOTCONN: another process has it). Closes memfd at the
 * end. */
int xts_inherit_next(int memfd, struct xts_exec_socket *out);
/* After an exec that failed: takes back what xts_exec_prepare() has given up, under the old numbers, and closes
 * memfd. */
void xts_resume(int memfd);
/*
 * To pass a socket to another program over a Unix socket: returns a descriptor to send in its place and to close after
 * that (pass.c). kernel_fd: for a listener or bound socket, a kernel socket that shall stand for it, such as the one
 * that listens for it on this host; or -1. -1 and errno: ENOTCONN: there is nothing to pass, since it has ended;
 * EOPNOTSUPP: not possible now.
 */
int xts_pass(int number, int kernel_fd);
/* Programs that inherit `mirror`, a Unix socket that stays this program's, have the listener or bound socket too. 0; -1
 * and errno as above. */
int xts_give(int number, int mirror);
/* The counterpart, for a descriptor that was received: 1 and *out; 0: it does not stand for an XTS socket; -1 and
 * errno: the socket is not available. The caller closes the descriptor in any case. at_once: a listener is joined now,
 * and not only when it is used. */
int xts_take_passed(int fd, bool at_once, struct xts_exec_socket *out);
/*
 * Before a child is made that shares this memory: makes now what would else be made when it is needed, and would then
 * be the child's. These are the threads that look after sockets while the program sleeps elsewhere, and a lock on a
 * file.
 */
void xts_expect_sharing_child(void);
/*
 * Before _exit(), which runs no destructor: data that has been sent leaves, and sockets that living children may use
 * are kept for them. Not in a child of vfork(). The library must not be used after it.
 */
void xts_before_exit(void);

/* Before the root directory changes: the endpoint's path may not exist after that. Attaches where sockets that were
 * inherited need it. */
void xts_before_chroot(void);

/* Around a call for which the process must have no thread of the library's, or none with other capabilities than the
 * caller's (unless `always`). False: there is nothing to resume. */
bool xts_threads_pause(bool always);
void xts_threads_resume(void);

/* The sentence that goes with this errno, if this thread's last failed call had it, or if the proxy means more by it
 * than its usual text says; else NULL. ask: allows to request a pushed protocol's reason, which takes a round trip.
 * Valid until the next call. */
const char *xts_reason_of(int error, bool ask);
/* Why the proxy has refused this thread's last failed call: enum xts_refusal; 0: it has not. */
unsigned xts_last_refusal(void);
/* The state of a socket, enum xts_state of status.h; -1 with EBADF. Does not block. */
int xts_state(int number);
/* The table of the states that a socket can be in (state_table.h), for the documentation. */
const struct xts_state_table *xts_socket_states(void);
const struct xts_state_table *xts_owner_states(void);

/*
 * notify() is called for each socket that this process does not have after fork or exec, when the application first
 * uses it (and that call fails): with its number, and XTS_REASON_ELSEWHERE or XTS_REASON_LOST. It is called with the
 * library's lock held, and must not wait or call the library. To be called before the first socket is made.
 */
void xts_on_gone(void (*notify)(int number, unsigned reason));

/*
 * How many sockets of this process had each reason so far (enum xts_reason; [0]: were offloaded), for the figures that
 * the endpoint keeps about a program that is killed. Waits for no lock.
 */
void xts_publish_counts(const uint64_t *sockets, unsigned count);

/*
 * The CPU time of this process since xts_cpu_begin(), which the interposer calls when it is loaded: a process keeps its
 * CPU time over exec, and the time that `xts run` used before it executed the program does not count as the program's.
 * Without that call, and in a child of fork, all of it.
 */
struct rusage;
void xts_cpu_begin(void);
int xts_cpu_used(struct rusage *used); /* sets only the two times; 0, or -1 and errno */

/* A listener's connections are taken only while this process shows interest (a wait or an accept), and few at a time:
 * for listeners that may be shared later. To be called between socket and listen. */
int xts_share_listener(int s);

/* As xts_ulp_error(), and whose fault it is: *protocol is a number of ULPS.md, and 0 if the proxy does not say. */
int xts_ulp_error_of(int s, unsigned *protocol, unsigned *fault, char *text, size_t bytes);

#pragma GCC visibility pop

#endif
