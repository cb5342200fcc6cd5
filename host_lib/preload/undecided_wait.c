/*
 * Sleeping on a datagram socket that has not been decided.
 *
 * Theory of operation
 *
 * Until it is decided the socket is a kernel socket, and a thread that waits for it sleeps there. The first datagram
 * that another thread sends may make it an offloaded socket, and what the first thread waits for then never comes to
 * the kernel socket. So the thread that offloads it shuts the kernel socket down. That fails with ENOTCONN, but wakes
 * its sleepers all the same: poll() and select() see a hang-up. After such a sleep a thread looks up again what the
 * descriptors stand for. (Registrations in epoll sets are moved: epoll_calls.c.)
 *
 * Receiving calls do not sleep in the kernel's own call: its result could not be told from a datagram without data, and
 * it would have overwritten the lengths of the program's buffers. They poll first. The program's timeout (SO_RCVTIMEO)
 * counts from the beginning of the call, whether the datagram comes from the kernel or from XTS.
 *
 * Another process may have the same kernel socket (fork), and decide differently: so it is shut down only when a thread
 * of this process sleeps.
 */
#include "undecided_wait.h"

#include <poll.h>
#include <pthread.h>

#include "deadline.h"
#include "preload.h"

static _Atomic unsigned sleeping;

void undecided_sleep_begins(void)
{
	atomic_fetch_add(&sleeping, 1);
}

void undecided_sleep_ends(void)
{
	atomic_fetch_sub(&sleeping, 1);
}

static void sleep_cancelled(void *unused)
{
	(void)unused;
	undecided_sleep_ends();
}

void undecided_wake(int fd)
{
	if (atomic_load(&sleeping))
		(void)real()->shutdown(fd, SHUT_RDWR);
}

static void in_child(void)
{
	atomic_store(&sleeping, 0);
}

__attribute__((constructor)) static void follow_fork(void)
{
	static const struct xts_fork_part at_fork = { .in_child = in_child, .orphaned = in_child };

	xts_at_fork(&at_fork);
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static bool may_sleep(int fd, int flags)
{
	int status;

	if (flags & (MSG_DONTWAIT | MSG_ERRQUEUE))
		return false;
	status = real()->fcntl(fd, F_GETFL);
	return status >= 0 && !(status & O_NONBLOCK);
}

static uint64_t receive_deadline(int fd)
{
	struct timeval allowed = { 0 };
	socklen_t length = sizeof allowed;

	if (real()->getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &allowed, &length) < 0 ||
	    (!allowed.tv_sec && !allowed.tv_usec) || allowed.tv_sec >= SECONDS_MAX)
		return XTS_FOREVER;
	return xts_now_ns() + (uint64_t)allowed.tv_sec * NS_A_SECOND + (uint64_t)allowed.tv_usec * 1000;
}

/* A sleep on this many descriptors has ended. True: one of them is ready. As in recv(2), a handler with SA_RESTART ends
 * only a sleep with a timeout. */
static bool ended_ready(int count, uint64_t deadline_ns)
{
	if (!count)
		errno = EAGAIN;
	else if (count < 0 && errno == EINTR && deadline_ns == XTS_FOREVER)
		errno = ERESTART;
	return count > 0;
}

/* Sleeps until the kernel socket is ready, or has been decided. Returns its events (0: it is decided), or -1 and
 * errno. */
static int sleep_undecided(int fd, uint64_t deadline_ns)
{
	struct pollfd kernel = { .fd = fd, .events = POLLIN | POLLRDHUP };
	struct timespec left;
	int count = 1;

	undecided_sleep_begins();
	if (is_undecided_datagram(descriptor_get(fd)))
		count = preload_sleep_poll(&kernel, 1, time_until(deadline_ns, &left), NULL,
					   &(struct preload_undo){ .undo = sleep_cancelled });
	undecided_sleep_ends();
	return ended_ready(count, deadline_ns) ? kernel.revents : -1;
}

static int sleep_offloaded(int s, uint64_t deadline_ns)
{
	struct pollfd ours = { .fd = s, .events = POLLIN };
	int count = XTS(xts_poll_mixed(&ours, 1, NULL, 0, deadline_ns, NULL));

	return ended_ready(count, deadline_ns) ? 0 : -1;
}

enum undecided_receiver undecided_receiver(int fd, int flags)
{
	struct descriptor d = descriptor_get(fd);
	uint64_t deadline_ns;
	int ready;

	if (!is_undecided_datagram(d) || !may_sleep(fd, flags))
		return d.kind == DESCRIPTOR_OFFLOADED ? RECEIVER_XTS : RECEIVER_KERNEL;
	xts_cancellation_point();
	deadline_ns = receive_deadline(fd);
	ready = CALL_AGAIN(sleep_undecided(fd, deadline_ns));
	if (ready < 0)
		return RECEIVER_NONE;
	d = descriptor_get(fd);
	/* Only if the program itself has not shut it down. If another thread takes the datagram, the kernel's call
	 * sleeps until the next. */
	if (is_undecided_datagram(d) && (ready & (POLLIN | POLLRDHUP)) == POLLIN)
		decide_stay_undecided(fd, d);
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return RECEIVER_KERNEL;
	if (deadline_ns != XTS_FOREVER && CALL_AGAIN(sleep_offloaded((int)d.number, deadline_ns)) < 0)
		return RECEIVER_NONE;
	return RECEIVER_XTS;
}
