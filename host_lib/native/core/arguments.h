/*
 * Arguments of the public calls, checked as the kernel checks them and in its order, before anything else uses them.
 *
 * Theory of operation
 *
 * The kernel notices a bad pointer when it copies. This library copies by itself, so that a bad pointer would be a
 * fault of the program. There are three kinds of them.
 *
 * Impossible: beyond what a process may have on this machine (xts_argument_end), or reaching into that. The kernel
 * refuses these before it does anything, and so do the functions here. It costs a comparison.
 *
 * Nowhere: in the first page, which is NULL and what a program has computed from NULL. The kernel gets as far as the
 * copy. A call that copies nothing succeeds: recv() with MSG_TRUNC, a datagram without data. So a vector of pieces is
 * used up to the first one that is nowhere (struct span), and the call fails where the kernel's copy would.
 *
 * Not accessible: unmapped, or protected. Only the kernel knows. Calls that are not about data ask it, with a system
 * call that changes nothing (xts_argument_is_readable()), unless what they were given is on the caller's stack. Calls
 * that send, receive or wait do not ask, since that would cost each of them a system call: there such a pointer is a
 * fault of the program (DIFFERENCES.md).
 */
#ifndef XTS_ARGUMENTS_H
#define XTS_ARGUMENTS_H

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define ARGUMENT_PAGE 4096u                      /* vm.mmap_min_addr is this or more */
#define ARGUMENT_BYTES_MAX ((size_t)0x7ffff000u) /* MAX_RW_COUNT: one call moves no more */
#define ARGUMENT_PIECES_MAX 1024u                /* UIO_MAXIOV */

/* MSG_CMSG_COMPAT, which the kernel keeps for itself: no program may give it to a call with a struct msghdr. */
#define FLAGS_OF_KERNEL ((int)0x80000000)

/* Where the memory of processes ends on this machine. Found out when the library is loaded. */
extern __attribute__((visibility("default"))) uintptr_t xts_argument_end;

static inline bool argument_is_impossible(const void *data, size_t bytes)
{
	return (uintptr_t)data > xts_argument_end || bytes > xts_argument_end - (uintptr_t)data;
}

static inline bool argument_is_nowhere(const void *data)
{
	return (uintptr_t)data < ARGUMENT_PAGE;
}

/* It can be no memory of the program. */
static inline bool argument_is_bad(const void *data, size_t bytes)
{
	return bytes && (argument_is_nowhere(data) || argument_is_impossible(data, bytes));
}

/* The address without the family that the program has forgotten: udp_sendmsg() takes AF_UNSPEC for AF_INET. */
static inline bool argument_forgets_family(struct sockaddr_in *out, const void *address, socklen_t length)
{
	if (length < sizeof *out || argument_is_bad(address, sizeof *out))
		return false;
	memcpy(out, address, sizeof *out);
	if (out->sin_family != AF_UNSPEC)
		return false;
	out->sin_family = AF_INET;
	return true;
}

/* How many bytes of a single piece are used, import_ubuf(): it may say more than there is, as SIZE_MAX. */
static inline size_t argument_bytes(size_t bytes)
{
	return bytes < ARGUMENT_BYTES_MAX ? bytes : ARGUMENT_BYTES_MAX;
}

/* The bytes of a call's pieces. */
struct span {
	size_t bytes;  /* of all, at most ARGUMENT_BYTES_MAX */
	size_t usable; /* of those before the first piece that is nowhere */
};

/* import_iovec() of the kernel, for at most ARGUMENT_PIECES_MAX pieces: 0, -EFAULT, -EINVAL. */
static inline int argument_pieces(struct span *out, const struct iovec *pieces, size_t count)
{
	bool nowhere = false;

	*out = (struct span){ 0 };
	if (argument_is_bad(pieces, count * sizeof *pieces))
		return -EFAULT;
	for (size_t i = 0; i < count; i++) {
		size_t bytes = pieces[i].iov_len;

		if (bytes > SSIZE_MAX)
			return -EINVAL;
		if (count == 1)
			bytes = argument_bytes(bytes);
		if (argument_is_impossible(pieces[i].iov_base, bytes))
			return -EFAULT;
		if (bytes > ARGUMENT_BYTES_MAX - out->bytes)
			bytes = ARGUMENT_BYTES_MAX - out->bytes;
		nowhere = nowhere || (bytes && argument_is_nowhere(pieces[i].iov_base));
		out->bytes += bytes;
		out->usable += nowhere ? 0 : bytes;
	}
	return 0;
}

/* The pieces of readv(2) and its like, which have EINVAL where sendmsg(2) has EMSGSIZE. 0 or -errno. */
static inline int argument_vector(struct span *out, const struct iovec *pieces, int count)
{
	return count < 0 || count > (int)ARGUMENT_PIECES_MAX ? -EINVAL : argument_pieces(out, pieces, (size_t)count);
}

/* copy_msghdr_from_user(): what recvmsg(2) refuses before it looks at the socket. 0 or -errno. */
static inline int argument_message(const struct msghdr *message)
{
	if (argument_is_bad(message, sizeof *message))
		return -EFAULT;
	if (message->msg_name && (int)message->msg_namelen < 0)
		return -EINVAL;
	return message->msg_iovlen > ARGUMENT_PIECES_MAX ? -EMSGSIZE : 0;
}

/* The place for the events of epoll_wait(2): 0, -EINVAL, -EFAULT. */
static inline int argument_events(const struct epoll_event *events, int max)
{
	if (max <= 0 || max > (int)(INT_MAX / sizeof *events))
		return -EINVAL;
	return argument_is_impossible(events, (size_t)max * sizeof *events) ? -EFAULT : 0;
}

/* The room for an address, of recvfrom(2): 0, -EFAULT, -EINVAL. */
static inline int argument_room(const socklen_t *length)
{
	if (argument_is_bad(length, sizeof *length))
		return -EFAULT;
	return (int)*length < 0 ? -EINVAL : 0;
}

/* The place for an address, of accept(2): 0, -EFAULT, -EINVAL. */
static inline int argument_name(const struct sockaddr *address, const socklen_t *length)
{
	int r = argument_room(length);

	if (r)
		return r;
	return argument_is_bad(address, *length) ? -EFAULT : 0;
}

/* Those that the kernel passes over on any socket of TCP and UDP: they are for Unix sockets. */
static inline bool argument_is_for_unix(const struct cmsghdr *control)
{
	return control->cmsg_level == SOL_SOCKET &&
	       (control->cmsg_type == SCM_RIGHTS || control->cmsg_type == SCM_CREDENTIALS);
}

#pragma GCC visibility push(default)

/* argument_message() for sendmsg(2), which also copies the name and the control messages. 0 or -errno. */
int xts_argument_outgoing(const struct msghdr *message);
/* Each control message lies within the control data: CMSG_OK() of the kernel, which looks when it is their turn. */
bool xts_argument_controls_are_whole(const struct msghdr *message);

/* The first and the last of these bytes can be read, or written. Asks the kernel. */
bool xts_argument_is_readable(const void *data, size_t bytes);
bool xts_argument_is_writable(void *data, size_t bytes);

/* move_addr_to_kernel(), of bind(2) and connect(2): 0, -EINVAL, -EFAULT. A length of 0 is left to the caller. */
int xts_argument_address(const struct sockaddr *address, socklen_t length);

/* For a result of at most *length bytes: 0, -EFAULT (of *length, or of the place for the result), -EINVAL. */
int xts_argument_result(void *value, socklen_t *length);

#pragma GCC visibility pop

#endif
