/*
 * syscall(): programs and runtimes that make system calls by number. Calls that name one of our descriptors, or make
 * one, are routed to our functions of that name, and so do those that wait or end this program.
 *
 * System calls made by instruction (Go, static programs) do not come here: they act on the kernel socket, and fail.
 */
#include "preload.h"

#include <poll.h>
#include <pthread.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "core/arguments.h"

/* The arguments of a system call, whatever it takes. */
struct arguments {
	long a[6];
};

#define INT(i) ((int)c->a[i])
#define SIZE(i) ((size_t)c->a[i])
#define POINTER(i) ((void *)c->a[i])

static bool is_ours(long fd)
{
	uint8_t kind = descriptor_get((int)fd).kind;

	return fd >= 0 && fd < (long)DESCRIPTORS_MAX && kind != DESCRIPTOR_KERNEL && kind != DESCRIPTOR_STAYED;
}

/* --- calls that end this program ---------------------------------------------------------------------------------- */

/* The new program has offloaded sockets only if they were handed over. exec() returns if it has failed. */
static bool route_ending(long number, const struct arguments *c, long *r)
{
	switch (number) {
	case SYS_execve:
		*r = execve(POINTER(0), POINTER(1), POINTER(2));
		return true;
	case SYS_execveat:
		*r = execveat(INT(0), POINTER(1), POINTER(2), POINTER(3), INT(4));
		return true;
	case SYS_exit_group:
		_exit(INT(0));
	default:
		return false;
	}
}

/* Calls after which the endpoint's path may not exist any more. */
static bool changes_root(long number)
{
	return number == SYS_chroot || number == SYS_pivot_root;
}

/* --- calls that wait for descriptors ------------------------------------------------------------------------------ */

/* The C library's functions read a timeout and the address of a mask by themselves, and the kernel answers EFAULT. */
static bool is_readable_or_null(const void *argument, size_t bytes)
{
	return !argument || xts_argument_is_readable(argument, bytes);
}

/* pselect6(2): the mask comes with its size. */
struct mask_of_pselect6 {
	const sigset_t *mask;
	size_t bytes;
};

static bool route_pselect(const struct arguments *c, long *r)
{
	const struct mask_of_pselect6 *sized = POINTER(5);
	const sigset_t *mask;

	if (!is_readable_or_null(POINTER(4), sizeof(struct timespec)) || !is_readable_or_null(sized, sizeof *sized))
		return false;
	mask = sized ? sized->mask : NULL;
	if (mask && (sized->bytes != MASK_BYTES || !is_readable_or_null(mask, MASK_BYTES)))
		return false;
	*r = pselect(INT(0), POINTER(1), POINTER(2), POINTER(3), POINTER(4), mask);
	return true;
}

static bool route_waiting(long number, const struct arguments *c, long *r)
{
	switch (number) {
#ifdef SYS_poll
	case SYS_poll:
		*r = poll(POINTER(0), (nfds_t)c->a[1], INT(2));
		return true;
#endif
#ifdef SYS_select
	case SYS_select:
		if (!is_readable_or_null(POINTER(4), sizeof(struct timeval)))
			return false;
		*r = select(INT(0), POINTER(1), POINTER(2), POINTER(3), POINTER(4));
		return true;
#endif
	case SYS_pselect6:
		return route_pselect(c, r);
	case SYS_ppoll:
		if (!is_readable_or_null(POINTER(2), sizeof(struct timespec)) ||
		    !is_readable_or_null(POINTER(3), MASK_BYTES) || (c->a[3] && SIZE(4) != MASK_BYTES))
			return false;
		*r = ppoll(POINTER(0), (nfds_t)c->a[1], POINTER(2), POINTER(3));
		return true;
	default:
		return false;
	}
}

/* --- calls that make a descriptor, or name more than one ---------------------------------------------------------- */

static bool route_making(long number, const struct arguments *c, long *r)
{
	switch (number) {
	case SYS_socket:
		*r = socket(INT(0), INT(1), INT(2));
		return true;
	case SYS_epoll_create1:
		*r = epoll_create1(INT(0));
		return true;
#ifdef SYS_epoll_create
	case SYS_epoll_create:
		*r = epoll_create(INT(0));
		return true;
#endif
#ifdef SYS_dup2
	case SYS_dup2:
		*r = dup2(INT(0), INT(1));
		return true;
#endif
	case SYS_dup3:
		*r = dup3(INT(0), INT(1), INT(2));
		return true;
#ifdef SYS_close_range
	case SYS_close_range:
		*r = close_range((unsigned)c->a[0], (unsigned)c->a[1], INT(2));
		return true;
#endif
	case SYS_epoll_ctl:
		*r = epoll_ctl(INT(0), INT(1), INT(2), POINTER(3));
		return true;
	case SYS_sendfile:
		if (!is_ours(c->a[0]) && !is_ours(c->a[1]))
			return false;
		*r = sendfile(INT(0), INT(1), POINTER(2), SIZE(3));
		return true;
	case SYS_splice:
		if (!is_ours(c->a[0]) && !is_ours(c->a[2]))
			return false;
		*r = splice(INT(0), POINTER(1), INT(2), POINTER(3), SIZE(4), (unsigned)c->a[5]);
		return true;
	/* Over Unix sockets descriptors pass. */
	case SYS_sendmsg:
		*r = sendmsg(INT(0), POINTER(1), INT(2));
		return true;
	case SYS_recvmsg:
		*r = recvmsg(INT(0), POINTER(1), INT(2));
		return true;
	case SYS_sendmmsg:
		*r = sendmmsg(INT(0), POINTER(1), (unsigned)c->a[2], INT(3));
		return true;
	case SYS_recvmmsg:
		*r = recvmmsg(INT(0), POINTER(1), (unsigned)c->a[2], INT(3), POINTER(4));
		return true;
	default:
		return false;
	}
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static bool route_socket(long number, const struct arguments *c, long *r)
{
	switch (number) {
	case SYS_bind:
		*r = bind(INT(0), POINTER(1), (socklen_t)c->a[2]);
		return true;
	case SYS_connect:
		*r = connect(INT(0), POINTER(1), (socklen_t)c->a[2]);
		return true;
	case SYS_listen:
		*r = listen(INT(0), INT(1));
		return true;
#ifdef SYS_accept
	case SYS_accept:
		*r = accept(INT(0), POINTER(1), POINTER(2));
		return true;
#endif
	case SYS_accept4:
		*r = accept4(INT(0), POINTER(1), POINTER(2), INT(3));
		return true;
	case SYS_shutdown:
		*r = shutdown(INT(0), INT(1));
		return true;
	case SYS_getsockname:
		*r = getsockname(INT(0), POINTER(1), POINTER(2));
		return true;
	case SYS_getpeername:
		*r = getpeername(INT(0), POINTER(1), POINTER(2));
		return true;
	case SYS_getsockopt:
		*r = getsockopt(INT(0), INT(1), INT(2), POINTER(3), POINTER(4));
		return true;
	case SYS_setsockopt:
		*r = setsockopt(INT(0), INT(1), INT(2), POINTER(3), (socklen_t)c->a[4]);
		return true;
	case SYS_recvfrom:
		*r = recvfrom(INT(0), POINTER(1), SIZE(2), INT(3), POINTER(4), POINTER(5));
		return true;
	case SYS_sendto:
		*r = sendto(INT(0), POINTER(1), SIZE(2), INT(3), POINTER(4), (socklen_t)c->a[5]);
		return true;
	default:
		return false;
	}
}

/* --- calls that name a descriptor --------------------------------------------------------------------------------- */

static bool route_descriptor(long number, const struct arguments *c, long *r)
{
	switch (number) {
	case SYS_read:
		*r = read(INT(0), POINTER(1), SIZE(2));
		return true;
	case SYS_readv:
		*r = readv(INT(0), POINTER(1), INT(2));
		return true;
	/* offsets have two halves, of which the second is 0 on a machine with 64 bits */
	case SYS_preadv2:
		*r = preadv2(INT(0), POINTER(1), INT(2), c->a[3], INT(5));
		return true;
	case SYS_pwritev2:
		*r = pwritev2(INT(0), POINTER(1), INT(2), c->a[3], INT(5));
		return true;
	case SYS_write:
		*r = write(INT(0), POINTER(1), SIZE(2));
		return true;
	case SYS_writev:
		*r = writev(INT(0), POINTER(1), INT(2));
		return true;
	case SYS_close:
		*r = close(INT(0));
		return true;
	case SYS_dup:
		*r = dup(INT(0));
		return true;
	case SYS_fstat:
		*r = fstat(INT(0), POINTER(1));
		return true;
#ifdef SYS_newfstatat
	case SYS_newfstatat:
		*r = fstatat(INT(0), POINTER(1), POINTER(2), INT(3));
		return true;
#endif
	case SYS_statx:
		*r = statx(INT(0), POINTER(1), INT(2), (unsigned)c->a[3], POINTER(4));
		return true;
	case SYS_fcntl:
		*r = fcntl(INT(0), INT(1), c->a[2]);
		return true;
	case SYS_ioctl:
		*r = ioctl(INT(0), (unsigned long)c->a[1], POINTER(2));
		return true;
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
		*r = epoll_wait(INT(0), POINTER(1), INT(2), INT(3));
		return true;
#endif
	case SYS_epoll_pwait:
		*r = epoll_pwait(INT(0), POINTER(1), INT(2), INT(3), POINTER(4));
		return true;
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
		*r = epoll_pwait2(INT(0), POINTER(1), INT(2), POINTER(3), POINTER(4));
		return true;
#endif
	default:
		return false;
	}
}

/* Other system calls on one of our descriptors go to the kernel socket, and are counted. */
static void note_unseen(long number, long fd)
{
	if (descriptor_get((int)fd).kind != DESCRIPTOR_OFFLOADED)
		return;
	atomic_fetch_add_explicit(&preload.unseen, 1, memory_order_relaxed);
	preload_log("descriptor %ld: system call %ld goes to the kernel's socket", fd, number);
}

static bool names_descriptor_first(long number)
{
	switch (number) {
	case SYS_pread64:
	case SYS_pwrite64:
	case SYS_preadv:
	case SYS_pwritev:
	case SYS_fsync:
		return true;
	default:
		return false;
	}
}

/* syscall() is no cancellation point, whatever it calls. */
static bool uncancelled(bool (*route)(long, const struct arguments *, long *), long number, const struct arguments *c,
			long *r)
{
	int before;
	bool routed;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	routed = route(number, c, r);
	pthread_setcancelstate(before, &(int){ 0 });
	return routed;
}

static bool waits(long number)
{
	switch (number) {
#ifdef SYS_poll
	case SYS_poll:
#endif
#ifdef SYS_select
	case SYS_select:
#endif
	case SYS_pselect6:
	case SYS_ppoll:
		return true;
	default:
		return false;
	}
}

EXPORT long syscall(long number, ...)
{
	struct arguments c;
	va_list list;
	long r;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		c.a[i] = va_arg(list, long);
	va_end(list);
	xts_look_who_calls();
	if (number == SYS_io_uring_setup && !preload_may_use_io_uring()) {
		errno = ENOSYS;
		return -1;
	}
	if (door_by_number(number, c.a, &r))
		return r;
	if (changes_root(number))
		preload_before_chroot();
	if (number == SYS_unshare || number == SYS_setns)
		return preload_alone(number, c.a);
	if (!xts_inside.locked) {
		if (route_ending(number, &c, &r) || route_making(number, &c, &r) ||
		    (waits(number) && uncancelled(route_waiting, number, &c, &r)))
			return r;
		if (is_ours(c.a[0]) &&
		    (uncancelled(route_socket, number, &c, &r) || uncancelled(route_descriptor, number, &c, &r)))
			return r;
		if (names_descriptor_first(number))
			note_unseen(number, c.a[0]);
	}
	return real()->syscall(number, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5]);
}
