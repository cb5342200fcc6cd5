/*
 * libxts-preload: libc's socket calls, on offloaded sockets if the rules say so.
 *
 * Theory of operation
 *
 * Every libc function that may touch a socket is replaced by one of ours with the same name (LD_PRELOAD). It looks up
 * its descriptor (descriptor_table.h). If the descriptor is not ours, it only calls the C library's function with the
 * same arguments.
 *
 * socket() always makes a kernel socket, whose number stays the program's descriptor. A TCP socket is UNDECIDED until
 * bind, connect or listen. Then the rules are asked (decide.c). Either it has STAYED with the kernel, with a numbered
 * reason; or it is OFFLOADED: an XTS socket is made, the options recorded so far are repeated on it, and the kernel
 * socket only keeps the descriptor's number in use.
 *
 * A listener on the wildcard address serves both networks: the device's addresses through the proxy, the host's own
 * loopback through the kernel (DESCRIPTOR_ALSO_LOCAL).
 *
 * Waiting: poll, select and epoll split their descriptors into ours and the kernel's and wait for both at once
 * (xts_poll_mixed, xts_epoll_wait_mixed in libxts); no lock is held meanwhile. An epoll set of the program is a kernel
 * epoll set and, from its first offloaded socket on, also a polling context of libxts.
 *
 * Calls that bypass the interposer (system calls made by instruction, as in Go, and io_uring) act on the kernel socket:
 * they fail with ENOTCONN, and never see wrong data. syscall() by number is intercepted and routed (syscall.c). A
 * descriptor that has the right readiness for such calls too (xts_fileno()) is not put in the kernel socket's place: a
 * read() of it would return a byte that nobody sent. It is put into epoll sets that are waited for by instruction.
 *
 * Locks: the data path takes none of the interposer's (libxts has its own). table_lock guards changes of what
 * descriptors stand for; it is never held across a wait or a call to the proxy. A thread that holds a lock is inside
 * (INSIDE): no handler of the program runs in it meanwhile.
 *
 * Files: real.h the C library's functions; descriptor_table.[ch]; decide*.c rules, reasons and the change to offloaded;
 * socket_calls.c, data.c, option_calls.c, undecided_options.c (options until a socket is offloaded), undecided_wait.c
 * (sleeping until then), ulp_ioctl.c (pushed protocols), descriptor_calls.c (dup, close), passing.c (descriptors over
 * Unix sockets), open.c (other descriptors), sendfile.c (and splice), stdio.c, wide_stdio.c; poll.c, select.c,
 * epoll*.c, by_instruction.c (waiting past the C library), syscall.c, io_uring.c; doors.c and sharing_children.c (fork
 * and other ways to make a process), process_calls.c (exec, exit), spawn.c, shell.c (system, popen), kept_preload.c and
 * not_preloaded.c (what that has of the interposer); signal.c; start.c (settings), rules_in_force.c, process_page.c
 * (what other programs see of it), fallback_notice.c, once_per_run.c, strict_outcome.c and summary.c (lines on standard
 * error); deep_binding.c, looked_up.c and loaded_objects.c (libraries that look past the interposer). CALLS.md lists
 * all functions, and how each is handled.
 */
#ifndef XTS_PRELOAD_H
#define XTS_PRELOAD_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "xts_private.h"
#include "descriptor_table.h"
#include "real.h"
#include "core/caller.h"
#include "core/reason.h"
#include "common/notice.h"
#include "rules/rules.h"
#include "core/signals.h"
#include "xts.h"

#define EXPORT __attribute__((visibility("default")))

/*
 * Every call of libxts that takes its lock goes through XTS(). Handlers of the program do not run inside it (signal.c),
 * except handlers of faults, and those that a program installs without our sigaction(). If such a handler has
 * interrupted this very thread inside libxts, its call must not wait for libxts's lock: it gets EDEADLK, and is
 * counted.
 */
bool preload_reentered(void); /* sets errno, counts; returns false */
void preload_refused(void);   /* counts, as unseen, a call that has to be refused */

#define XTS(call) \
	({ \
		__typeof__(call) result_ = -1; \
		if (__builtin_expect(xts_inside.locked, 0)) \
			preload_reentered(); \
		else \
			result_ = (call); \
		result_; \
	})

/*
 * INSIDE: from here to the end of the block handlers are put off (signals.h), since a lock is held or a change is
 * incomplete. Code in the block that sleeps must let a signal end its sleep. CALL_AGAIN(): a call made inside, repeated
 * if a handler that was put off allows it (SA_RESTART): the call fails with ERESTART in that case. exec and _exit must
 * not be called inside.
 */
static inline void preload_come_out(const int *unused)
{
	(void)unused;
	xts_come_out();
}
#define INSIDE __attribute__((cleanup(preload_come_out), unused)) const int inside_ = (xts_go_in(), 0)

#define CALL_AGAIN(call) \
	({ \
		__typeof__(call) result_; \
		do { \
			xts_go_in(); \
			result_ = (call); \
		} while (xts_come_out_again(result_ < 0 && errno == ERESTART)); \
		if (result_ < 0 && errno == ERESTART && !xts_inside.depth) \
			errno = EINTR; \
		result_; \
	})

/* --- start.c: settings of this process ---------------------------------------------------------------------------- */

struct preload {
	/* the process's rules (rules_now() returns those for a new socket); NULL: not started, everything is passed to
	 * the kernel */
	const struct xts_rule_group *_Atomic rules;
	/* XTS_STRICT=1: the call fails if a socket would have to stay with the kernel for a reason other than a rule */
	bool strict;
	_Atomic uint64_t stayed[XTS_REASON_COUNT]; /* sockets by reason */
	/* of those with the reason PROTOCOL: UDP that no rule offloads, raw and others, which `xts run -v` leaves
	 * out */
	_Atomic uint64_t not_streams;
	_Atomic uint64_t offloaded; /* sockets ever offloaded */
	/* system calls that had to be refused (syscall.c), in any part of the program */
	_Atomic uint64_t unseen;
	_Atomic uint64_t failed_calls; /* calls that have failed because their socket could not be offloaded */
};
extern struct preload preload;

/* reads settings and rules, once; if there is a fault in them it ends the process, before it can run with half of
 * them */
void preload_start(void);
void preload_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- decide.c ----------------------------------------------------------------------------------------------------- */

/* fd stays with the kernel, for this reason: 0. If a strict process does not allow that: -1, with the errno for the
 * program's call, and nothing has changed. */
int decide_stay(int fd, enum xts_reason reason);
/* The rules leave an UNDECIDED datagram socket to the kernel; nothing happens if it is no longer what it was when it
 * was read (was). */
void decide_stay_undecided(int fd, struct descriptor was);
/* A TCP socket that is not in the table (from before exec, or from a Unix socket) is STAYED from now on. Returns what
 * it is now. */
struct descriptor decide_unknown(int fd);
/* bind(2), connect(2) and listen(2) of a socket that may be offloaded, with their results. decide_connect() is called
 * inside, and leaves the kernel's connect(), which may sleep, to its caller. */
#define DECIDE_KERNEL 1
int decide_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_listen(int fd, struct descriptor d, int backlog);
/* The same for a datagram socket. decide_datagram_send(): it is about to send its first datagram to an address; after
 * this the caller looks up again what it is. -1 and errno in a strict process. */
int decide_datagram_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_datagram_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_datagram_send(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
/*
 * From now on the kernel socket only keeps an offloaded one's place. A program that is started past the interposer
 * (wordexp()) finds such a socket where its parent had an offloaded one: decide_lost_places(), at its start, gives
 * those the reason LOST.
 */
void decide_mark_place(int fd);
/* the kernel socket is used again, with the options that the program has set on the XTS socket s */
void decide_unmark_place(int fd, int s);
void decide_lost_places(void);
/* A kernel descriptor that stands for an accepted XTS socket: an unconnected TCP socket, close-on-exec. -1 and
 * errno. */
int decide_placeholder(void);

/* --- option_calls.c, ulp_ioctl.c ---------------------------------------------------------------------------------- */

/* Finds or makes the record of an UNDECIDED descriptor: 1; 0: another thread has decided it, or made a record,
 * meanwhile; -1 and errno. */
int option_note(int fd, struct descriptor d, uint32_t *number);
/* Is this ioctl() about pushed protocols? */
bool push_is_request(unsigned long request);
int push_request(int fd, struct descriptor d, unsigned long request, void *argument);
/* It stays with the kernel, for this reason, and so cannot have protocols: counts it; -1 and errno. */
int push_refuse(int fd, enum xts_reason reason);

/* --- open.c ------------------------------------------------------------------------------------------------------- */

/* The kernel has just returned this number, so what it stood for was closed without our knowledge. */
void descriptor_forget_stale(int fd);

/* --- io_uring.c --------------------------------------------------------------------------------------------------- */

/* May the program use it? It asks by number or through liburing. False is counted. */
bool preload_may_use_io_uring(void);
bool preload_allows_io_uring(void); /* the setting alone */

/* --- signal.c ----------------------------------------------------------------------------------------------------- */

/* Makes libxts use the C library's own functions. To be called before libxts is used. */
void preload_lend_calls(void);
/* What is taken back when a thread is cancelled in the sleep. */
struct preload_undo {
	void (*undo)(void *argument);
	void *argument;
};
/* xts_sleep_poll() and xts_sleep_epoll() with cancellation points, as the C library's calls have them. undo NULL:
 * nothing. */
int preload_sleep_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
		       const struct preload_undo *undo);
int preload_sleep_epoll(int set, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask, const struct preload_undo *undo);

/* --- process_calls.c ---------------------------------------------------------------------------------------------- */

/* Is the caller a child that shares this memory, and so has a number of its own? (After xts_look_who_calls(), a child
 * with a copy of it has noted its own.) */
bool preload_shares_memory(void);
void preload_before_chroot(void);                 /* and before all else that changes the root directory */
long preload_alone(long number, const long a[2]); /* a system call, by a process without a thread of ours */
/* Gives the sockets that came over exec() their descriptors again. */
void process_take_over(void);

/* --- doors.c ------------------------------------------------------------------------------------------------------ */

/* Is this system call, by its number and arguments, one that makes a process which has to be followed as a fork? Then
 * *child is its result. */
bool door_by_number(long number, const long a[6], long *child);

/* --- spawn.c ------------------------------------------------------------------------------------------------------ */

/* Takes over the sockets whose carriers are among the descriptors of a new program. */
void spawn_take_over(void);

/* --- stdio.c ------------------------------------------------------------------------------------------------------ */

/* fd has become another file: a standard stream of that number has to read and write the new one. */
void stream_follow(int fd);
void streams_follow(int number); /* those that stand for this socket, which has just become offloaded */
/* For as long as the stream is open. NULL: a stream of the C library's own. */
int *stream_orientation(FILE *file);

/* --- epoll_calls.c, for close and dup ----------------------------------------------------------------------------- */

/* The descriptor is about to be closed or replaced: if it is the last one of its socket, it leaves all epoll sets, as
 * in the kernel. */
void epoll_descriptor_gone(int fd, struct descriptor d);
/* It has just become offloaded, and was only in kernel epoll sets before: moves its registrations. */
void epoll_descriptor_offloaded(int fd, struct descriptor d);
/* It is about to become a kernel descriptor again: moves its registrations back. */
void epoll_descriptor_given_back(int fd, struct descriptor d);
/* The last descriptor of an epoll set has been closed. */
void epoll_set_release(uint32_t number);

#endif
