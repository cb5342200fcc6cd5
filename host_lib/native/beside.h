/*
 * What libxts offers the interposer (libxts-preload) beside xts.h: waiting for offloaded sockets and kernel descriptors
 * at once, keeping sockets over fork() and exec(), and the rules. Exported under the version XTS_PRIVATE, for a
 * libxts-preload of the very same build.
 */
#ifndef XTS_BESIDE_H
#define XTS_BESIDE_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "xts.h"

#pragma GCC visibility push(default)

/* --- waiting for both kinds: mixed.c ------------------------------------------------------------------------------ */

#define XTS_FOREVER UINT64_MAX

/* CLOCK_MONOTONIC in ns. */
uint64_t xts_now_ns(void);

/*
 * ppoll(2) over XTS socket numbers (offloaded) and kernel descriptors (kernel) together, until deadline_ns (0: does not
 * wait). Fills revents of both and returns how many entries of both are ready, 0 at the deadline, or -1 with EINTR,
 * ENOMEM. mask (NULL: leave it) is the thread's signal mask while it sleeps.
 */
int xts_poll_mixed(struct pollfd *offloaded, nfds_t offloaded_count, struct pollfd *kernel, nfds_t kernel_count,
		   uint64_t deadline_ns, const sigset_t *mask);

/*
 * epoll_pwait2(2) over a polling context (ectx) and the kernel's epoll set epoll_fd together: the events of both, at
 * most max, fairly. epoll_fd holds kernel descriptors only.
 */
int xts_epoll_wait_mixed(void *ectx, int epoll_fd, struct epoll_event *events, int max, uint64_t deadline_ns,
			 const sigset_t *mask);
/* Has the context an event now? */
bool xts_epoll_is_ready(void *ectx);

/* --- over fork and exec: inherit.c ------------------------------------------------------------------------------------ */

/*
 * From now on sockets are kept over fork(): a child has its parent's numbers. Listeners are shared (both accept); a
 * connection stays with the parent until the child uses it, which moves it to the child; the parent's use of it then
 * fails with ENOTCONN, its close() is quiet. See inherit.c.
 */
void xts_inherit_over_fork(void);
/*
 * Before exec(): gives up the sockets of this process (numbers and the descriptors they shall have after it) to
 * whoever reads the returned memfd (close-on-exec unset), or -1 with errno. After a failed exec, xts_resume() with
 * it takes them back under their old numbers.
 */
struct xts_bequest {
	int number;      /* XTS socket */
	int descriptor;  /* of the program */
};
int xts_bequeath(const struct xts_bequest *sockets, unsigned count);
/* In the new program: takes the sockets over, one call each, in order: 1 and *out filled, 0 at the end, -1 with errno
 * for one that is lost (out->descriptor says which). Closes memfd at the end. */
int xts_inherit_next(int memfd, struct xts_bequest *out);
/* After an exec that failed: takes back what xts_bequeath() has given up, under the old numbers, and closes memfd. */
void xts_resume(int memfd);
/*
 * Before _exit(), which runs no destructor: what has been sent leaves, and living children are left what they may want.
 * Not in a child of vfork(). The library must not be used after it.
 */
void xts_before_exit(void);

/* A listener's connections are taken only while this process shows interest (a wait or an accept), in small numbers: for
 * listeners that may come to be shared. Call between socket and listen. */
int xts_share_listener(int s);

#pragma GCC visibility pop

#endif
