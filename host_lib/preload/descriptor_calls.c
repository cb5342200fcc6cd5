/* Calls about descriptors: close, dup, ranges of descriptors. */
#include "preload.h"

#include <limits.h>

/* The program must not see our own descriptors: it gets EBADF. */
static int no_such_descriptor(void)
{
	errno = EBADF;
	return -1;
}

/*
 * The number is freed before its socket is closed, as in the kernel, where a lingering close() has freed its number
 * already. The table forgets the number before the kernel can give it to another thread.
 */
static int close_ours(int fd, struct descriptor d)
{
	INSIDE;
	int r;

	if (d.kind == DESCRIPTOR_INTERNAL)
		return no_such_descriptor();
	epoll_descriptor_gone(fd, d);
	d = descriptor_take(fd);
	r = real()->close(fd);
	descriptor_release(d);
	return r;
}

EXPORT int close(int fd)
{
	struct descriptor d = descriptor_get(fd);

	if (d.kind == DESCRIPTOR_KERNEL)
		return real()->close(fd);
	xts_cancellation_point();
	return close_ours(fd, d);
}
int __close(int fd) __attribute__((alias("close"))) EXPORT;

/* --- ranges ------------------------------------------------------------------------------------------------------- */

/* The kernel's part: all descriptors from first to last except our own. closing: closes them, and does not only set a
 * flag. */
static int range_around(unsigned first, unsigned last, int flags, bool closing)
{
	unsigned from = first;

	for (unsigned fd = first; fd <= last && fd < DESCRIPTORS_MAX && (int)fd <= descriptor_highest(); fd++) {
		struct descriptor d = descriptor_get((int)fd);

		if (d.kind == DESCRIPTOR_KERNEL)
			continue;
		if (d.kind == DESCRIPTOR_INTERNAL) {
			if (fd > from && real()->close_range(from, fd - 1, flags) < 0)
				return -1;
			from = fd + 1;
		} else if (closing) {
			close_ours((int)fd, d);
		}
	}
	return from <= last ? real()->close_range(from, last, flags) : 0;
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (first > last || ((unsigned)flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
		return real()->close_range(first, last, flags);
	return range_around(first, last, flags, !((unsigned)flags & CLOSE_RANGE_CLOEXEC));
}

EXPORT void closefrom(int first)
{
	if (range_around(first < 0 ? 0 : (unsigned)first, UINT_MAX, 0, true) < 0)
		real()->closefrom(first);
}

/* --- dup ---------------------------------------------------------------------------------------------------------- */

EXPORT int dup(int fd)
{
	INSIDE;
	int copy;

	if (descriptor_get(fd).kind == DESCRIPTOR_INTERNAL)
		return no_such_descriptor();
	copy = real()->dup(fd);
	if (copy >= 0) {
		descriptor_forget_stale(copy);
		descriptor_copy(fd, copy);
		stream_follow(copy);
	}
	return copy;
}

EXPORT int dup3(int from, int to, int flags)
{
	struct descriptor source = descriptor_get(from), target = descriptor_get(to);
	INSIDE;
	int r;

	if (source.kind == DESCRIPTOR_KERNEL && target.kind == DESCRIPTOR_KERNEL)
		return real()->dup3(from, to, flags);
	if (source.kind == DESCRIPTOR_INTERNAL)
		return no_such_descriptor();
	if (target.kind == DESCRIPTOR_INTERNAL) {
		errno = EBUSY; /* the kernel's errno, too, for a number that is being opened */
		return -1;
	}
	if (from == to || real()->fcntl(from, F_GETFD) < 0)
		return real()->dup3(from, to, flags);
	epoll_descriptor_gone(to, target);
	target = descriptor_take(to);
	r = real()->dup3(from, to, flags);
	if (r >= 0)
		descriptor_copy(from, to);
	descriptor_release(target);
	stream_follow(to);
	return r;
}

EXPORT int dup2(int from, int to)
{
	if (from == to ||
	    (descriptor_get(from).kind == DESCRIPTOR_KERNEL && descriptor_get(to).kind == DESCRIPTOR_KERNEL))
		return real()->dup2(from, to);
	return dup3(from, to, 0);
}

EXPORT int __dup2(int from, int to)
{
	return dup2(from, to);
}
