/*
 * libxts-preload: libc's socket calls, on offloaded sockets where the rules say so.
 *
 * Theory of operation
 *
 * Every libc function that may touch a socket is replaced by one of ours with the same name (LD_PRELOAD). It looks
 * up its descriptor (descriptor_table.h). If that is not ours, it calls the C library's function with the same
 * arguments, and that is all.
 *
 * socket() always makes a kernel socket, and its number is the program's descriptor for good. A TCP socket is UNDECIDED
 * until bind, connect or listen: then the rules are asked (decide.c), and it either STAYED with the kernel, with
 * a numbered reason, or is OFFLOADED: an XTS socket is made, the options recorded so far are repeated on it, and the
 * kernel's socket only holds the descriptor.
 *
 * A listener on the wildcard address serves both worlds: the device's addresses through the proxy, the host's own
 * loopback through the kernel (DESCRIPTOR_ALSO_LOCAL).
 *
 * Waiting: poll, select and epoll split their descriptors into ours and the kernel's and wait for both at once
 * (xts_poll_mixed, xts_epoll_wait_mixed in libxts); no lock is held meanwhile. An epoll set of the program is a kernel
 * epoll set plus, from its first offloaded socket on, a polling context of libxts.
 *
 * Calls that get past us (system calls made by instruction, as Go's and io_uring's) see the kernel's socket: refused
 * with ENOTCONN, never wrong data. syscall() by number is seen and routed (syscall.c). A descriptor whose readiness is
 * true for such calls too (xts_fileno()) is not put in its place: it would give a read a byte that nobody sent.
 *
 * Locks: the data path takes none of ours (libxts has its own). table_lock guards changes of what descriptors stand
 * for; it is never held across a wait or a call to the proxy. A thread that holds a lock is inside (INSIDE): no handler
 * of the program's runs in it meanwhile.
 *
 * Files: real.h the C library's functions; descriptor.[ch]; decide*.c rules, reasons and the change to offloaded;
 * socket_calls.c, data.c, option_calls.c, undecided_options.c (options until a socket is offloaded), undecided_wait.c
 * (sleeping until then), ulp_ioctl.c (pushed protocols), descriptor_calls.c (dup, close), passing.c (descriptors over
 * Unix sockets), open.c (other descriptors), sendfile.c (and splice), stdio.c; poll.c, select.c, epoll*.c, syscall.c;
 * process_calls.c (fork, exec, exit), spawn.c, shell.c (system, popen); signal.c; start.c (settings), rules_in_force.c,
 * report.c (what others see of it), fallback_notice.c, once_per_run.c and summary.c (lines on standard error). CALLS.md
 * lists all functions, and what becomes of each.
 */
#ifndef XTS_PRELOAD_H
#define XTS_PRELOAD_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "xts_private.h"
#include "descriptor_table.h"
#include "real.h"
#include "core/reason.h"
#include "notice.h"
#include "rules/rules.h"
#include "waiting/signals.h"
#include "xts.h"

#define EXPORT __attribute__((visibility("default")))

/*
 * Every call of libxts that takes its lock goes through XTS(). Handlers of the program do not run inside it (signal.c),
 * except those of faults, and those that a program installs without our sigaction(): in one that interrupted this very
 * thread in libxts the call must not wait for libxts's lock. It gets EDEADLK, which is counted.
 */
bool preload_reentered(void); /* sets errno, counts; false */
void preload_refused(void);   /* counts a call that has to be refused (unseen) */

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
 * INSIDE: from here to the end of the block handlers are put off (signals.h), for something is held, or half done.
 * Whatever sleeps in it must let a signal end its sleep. CALL_AGAIN(): a call made inside, again where a handler that
 * was put off says so (SA_RESTART): it fails with ERESTART then. exec and _exit must not be called inside.
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
	/* of the process (rules_now() has those for a new socket); NULL: not started, everything is passed to the kernel */
	const struct xts_rule_group *_Atomic rules;
	pid_t pid;
	/* XTS_STRICT=1: a socket that would have to stay with the kernel for another reason than a rule fails */
	bool strict;
	_Atomic uint64_t stayed[XTS_REASON_COUNT]; /* sockets by reason */
	/* of those with the reason PROTOCOL: UDP that no rule offloads, raw and others, which `xts run -v` leaves out */
	_Atomic uint64_t not_streams;
	_Atomic uint64_t offloaded; /* sockets ever offloaded */
	/* system calls that had to be refused (syscall.c), by any program part */
	_Atomic uint64_t unseen;
};
extern struct preload preload;

/* settings and rules, once; a fault in them ends the process before it can run on half of them */
void preload_start(void);
void preload_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- decide.c ----------------------------------------------------------------------------------------------------- */

/* It stays with the kernel, for this reason: 0. In a strict process, if the reason does not allow that: -1 and errno
 * for the program's call, and nothing has changed. */
int decide_stay(int fd, enum xts_reason reason);
/* By the rules, an UNDECIDED datagram socket; nothing happens if it is no longer what it was when it was read (was). */
void decide_stay_undecided(int fd, struct descriptor was);
/* A TCP socket that is not in the table (from before exec, or over a Unix socket) is STAYED from now on. What it is
 * now. */
struct descriptor decide_unknown(int fd);
/* bind(2), connect(2) and listen(2) of a socket that may be offloaded: as the calls. decide_connect() is called inside,
 * and leaves the kernel's connect(), which may sleep, to its caller. */
#define DECIDE_KERNEL 1
int decide_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_listen(int fd, struct descriptor d, int backlog);
/* The same of a datagram socket. decide_datagram_send(): it is about to send its first datagram to an address; what it
 * is then is to be looked up again. -1 and errno in a strict process. */
int decide_datagram_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_datagram_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
int decide_datagram_send(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length);
/*
 * The kernel's socket only keeps an offloaded one's place from now on. A program that is started past us
 * (wordexp()) finds such a socket where its parent had an offloaded one: decide_lost_places(), at its
 * start, gives those the reason LOST.
 */
void decide_mark_place(int fd);
/* it is used again, with the options that the program has set on the XTS socket s */
void decide_unmark_place(int fd, int s);
void decide_lost_places(void);
/* A kernel descriptor to stand for an accepted XTS socket: an unconnected TCP socket, close-on-exec. -1 and errno. */
int decide_placeholder(void);

/* --- option.c, push.c --------------------------------------------------------------------------------------------- */

/* The record of an UNDECIDED descriptor, made if necessary: 1; 0: it has been decided, or noted, by another
 * thread meanwhile; -1 and errno. */
int option_note(int fd, struct descriptor d, uint32_t *number);
/* Is this ioctl() about pushed protocols? */
bool push_is_request(unsigned long request);
int push_request(int fd, struct descriptor d, unsigned long request, void *argument);
/* It stays with the kernel, for this reason, and cannot have protocols: counted; -1 and errno. */
int push_refuse(int fd, enum xts_reason reason);

/* --- open.c ------------------------------------------------------------------------------------------------------- */

/* A number that the kernel has just returned: what it stood for was closed without our knowing. */
void descriptor_forget_stale(int fd);

/* --- signal.c ----------------------------------------------------------------------------------------------------- */

/* libxts uses the C library's own calls. Before it is used. */
void preload_lend_calls(void);
/* xts_sleep_poll() and xts_sleep_epoll() in the place of the C library's calls, which are cancellation points. */
int preload_sleep_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int preload_sleep_epoll(int set, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask);

/* --- process.c ---------------------------------------------------------------------------------------------------- */

/* The sockets that came over exec() have their descriptors again. */
void process_take_over(void);

/* --- spawn.c ------------------------------------------------------------------------------------------------------ */

/* Carriers among the descriptors of a new program are its sockets. */
void spawn_take_over(void);

/* --- stdio.c ------------------------------------------------------------------------------------------------------ */

/* fd has become another file: a standard stream of that number has to read and write what it is now. */
void stream_follow(int fd);

/* --- epoll.c, for close and dup ----------------------------------------------------------------------------------- */

/* The descriptor is about to be closed or replaced: leaves all epoll sets when it is the last of its socket, as in the
 * kernel. */
void epoll_descriptor_gone(int fd, struct descriptor d);
/* It has just become offloaded (was in kernel epoll sets before): moves its registrations over. */
void epoll_descriptor_offloaded(int fd, struct descriptor d);
/* It is about to be the kernel's again: moves them back. */
void epoll_descriptor_given_back(int fd, struct descriptor d);
/* The last descriptor of an epoll set is closed. */
void epoll_set_release(uint32_t number);

#endif
