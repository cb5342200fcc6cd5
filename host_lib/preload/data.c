/*
 * Sending and receiving. For a descriptor that is not offloaded, a call costs a load and a branch before it calls the C
 * library's function. For an offloaded one it calls the function of libxts that corresponds to it.
 */
#include "preload.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#include "core/arguments.h"
#include "deadline.h"
#include "passing.h"
#include "undecided_wait.h"

/* --- receiving ---------------------------------------------------------------------------------------------------- */

/* After the kernel has received on an undecided datagram socket that was bound without a port: the socket is a receiver
 * after all, since the sender knows its port and expects the answer from it. It stays with the kernel. */
static ssize_t kernel_has_received(int fd, ssize_t result)
{
	struct descriptor d = descriptor_get(fd);

	if (__builtin_expect(is_undecided_datagram(d) && result >= 0, 0))
		decide_stay_undecided(fd, d);
	return result;
}

/* A receiving call on an undecided datagram socket: uses the kernel's function, or calls this one again if the socket
 * has been offloaded meanwhile (perhaps just before the kernel's function was called). */
#define RECEIVE_UNDECIDED(fd, flags, kernels, again) \
	({ \
		enum undecided_receiver receiver_ = undecided_receiver(fd, flags); \
		ssize_t received_ = receiver_ == RECEIVER_KERNEL ? kernel_has_received(fd, kernels) : -1; \
		bool late_ = receiver_ == RECEIVER_KERNEL && received_ < 0 && errno == ENOTCONN; \
		if (receiver_ == RECEIVER_XTS || (late_ && descriptor_offloaded(fd) >= 0)) \
			received_ = (again); \
		received_; \
	})

EXPORT ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
	struct descriptor d = descriptor_get(fd);

	if (is_undecided_datagram(d))
		return recvfrom(fd, data, bytes, flags, NULL, NULL);
	return d.kind == DESCRIPTOR_OFFLOADED ? XTS(xts_recv((int)d.number, data, bytes, flags)) :
						real()->recv(fd, data, bytes, flags);
}

/* The fortified names: the C library's versions abort the program if the call asks for more bytes than there is room
 * for. */
EXPORT ssize_t __recv_chk(int fd, void *data, size_t bytes, size_t room, int flags)
{
	return bytes > room ? real()->__recv_chk(fd, data, bytes, room, flags) : recv(fd, data, bytes, flags);
}

EXPORT ssize_t recvfrom(int fd, void *data, size_t bytes, int flags, struct sockaddr *address, socklen_t *length)
{
	struct descriptor d = descriptor_get(fd);

	if (is_undecided_datagram(d))
		return RECEIVE_UNDECIDED(fd, flags, real()->recvfrom(fd, data, bytes, flags, address, length),
					 recvfrom(fd, data, bytes, flags, address, length));
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->recvfrom(fd, data, bytes, flags, address, length);
	return XTS(xts_recvfrom((int)d.number, data, bytes, flags, address, length));
}

EXPORT ssize_t __recvfrom_chk(int fd, void *data, size_t bytes, size_t room, int flags, struct sockaddr *address,
			      socklen_t *length)
{
	return bytes > room ? real()->__recvfrom_chk(fd, data, bytes, room, flags, address, length) :
			      recvfrom(fd, data, bytes, flags, address, length);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	struct descriptor d = descriptor_get(fd);
	ssize_t r;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return XTS(xts_recvmsg((int)d.number, message, flags));
	if (is_undecided_datagram(d))
		return RECEIVE_UNDECIDED(fd, flags, real()->recvmsg(fd, message, flags), recvmsg(fd, message, flags));
	r = real()->recvmsg(fd, message, flags);
	if (r >= 0 && message->msg_controllen)
		passing_received(message);
	return r;
}

/* Unlike recv() and send(), read() and write() may not be told of more bytes than there can be. */
static bool is_possible(const void *data, size_t bytes)
{
	if (!argument_is_impossible(data, bytes))
		return true;
	errno = EFAULT;
	return false;
}

EXPORT ssize_t read(int fd, void *data, size_t bytes)
{
	struct descriptor d = descriptor_get(fd);

	if (is_undecided_datagram(d) && bytes)
		return recv(fd, data, bytes, 0);
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->read(fd, data, bytes);
	if (!is_possible(data, bytes))
		return -1;
	/* unlike recv(), read() of 0 bytes does not look at the socket */
	return bytes ? XTS(xts_recv((int)d.number, data, bytes, 0)) : 0;
}
ssize_t __read(int fd, void *data, size_t bytes) __attribute__((alias("read"))) EXPORT;

EXPORT ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room)
{
	return bytes > room ? real()->__read_chk(fd, data, bytes, room) : read(fd, data, bytes);
}

/* How many bytes a vector has, or -1 and errno. */
static ssize_t vector_bytes(const struct iovec *vector, int count)
{
	struct span span;
	int r = argument_vector(&span, vector, count);

	errno = -r;
	return r ? -1 : (ssize_t)span.bytes;
}

static ssize_t receive_vector(int s, const struct iovec *vector, int count, int flags)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t bytes = vector_bytes(vector, count);

	return bytes <= 0 ? bytes : XTS(xts_recvmsg(s, &message, flags));
}

static ssize_t transmit_vector(int s, const struct iovec *vector, int count, int flags)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t bytes = vector_bytes(vector, count);

	/* 0 bytes in pieces: does not look at the socket */
	return bytes <= 0 ? bytes : XTS(xts_sendmsg(s, &message, flags));
}

EXPORT ssize_t readv(int fd, const struct iovec *vector, int count)
{
	struct descriptor d = descriptor_get(fd);

	if (is_undecided_datagram(d))
		return RECEIVE_UNDECIDED(fd, 0, real()->readv(fd, vector, count), readv(fd, vector, count));
	return d.kind != DESCRIPTOR_OFFLOADED ? real()->readv(fd, vector, count) :
						receive_vector((int)d.number, vector, count, 0);
}

/* Linux 6.9; not in the headers of every distribution. */
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

/* Flags of preadv2(2) that the kernel takes on any file. Those about what a disk has, and where a file ends, mean
 * nothing on a socket. */
#define FLAGS_TAKEN (RWF_NOWAIT | RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND | RWF_NOAPPEND)

/* The offset -1 means "no offset"; a socket accepts no other. RWF_NOWAIT corresponds to MSG_DONTWAIT. */
static bool takes_flags(off_t offset, int flags)
{
	if (offset < -1)
		errno = EINVAL;
	else if (offset != -1)
		errno = ESPIPE;
	else if (flags & ~FLAGS_TAKEN)
		errno = EOPNOTSUPP;
	else if (flags & RWF_APPEND && flags & RWF_NOAPPEND)
		errno = EINVAL;
	else
		return true;
	return false;
}

EXPORT ssize_t preadv2(int fd, const struct iovec *vector, int count, off_t offset, int flags)
{
	int s = descriptor_offloaded(fd);

	if (s < 0)
		return real()->preadv2(fd, vector, count, offset, flags);
	if (!takes_flags(offset, flags))
		return -1;
	return receive_vector(s, vector, count, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}
ssize_t preadv64v2(int fd, const struct iovec *vector, int count, off64_t offset, int flags)
	__attribute__((alias("preadv2"))) EXPORT;

/* The program's timeout counts from the beginning of the call, whether the datagrams come from the kernel or from
 * XTS. */
static int receive_many_undecided(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	struct timespec left;
	uint64_t deadline_ns;
	int r;

	if (!deadline_of(timeout, &deadline_ns))
		return -1;
	if (deadline_ns == XTS_FOREVER || !deadline_ns)
		return (int)RECEIVE_UNDECIDED(fd, flags, real()->recvmmsg(fd, messages, count, flags, timeout),
					      recvmmsg(fd, messages, count, flags, timeout));
	r = (int)RECEIVE_UNDECIDED(
		fd, flags,
		real()->recvmmsg(fd, messages, count, flags, (struct timespec *)time_until(deadline_ns, &left)),
		recvmmsg(fd, messages, count, flags, (struct timespec *)time_until(deadline_ns, &left)));
	if (r > 0)
		*timeout = left;
	return r;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	struct descriptor d = descriptor_get(fd);
	int r;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return XTS(xts_recvmmsg((int)d.number, messages, count, flags, timeout));
	if (is_undecided_datagram(d))
		return receive_many_undecided(fd, messages, count, flags, timeout);
	r = real()->recvmmsg(fd, messages, count, flags, timeout);
	for (int i = 0; i < r; i++)
		if (messages[i].msg_hdr.msg_controllen)
			passing_received(&messages[i].msg_hdr);
	return r;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Data with the connect (Fast Open) is carried out as a connect followed by the data, which is what the kernel does
 * without a cookie. */
static bool is_fast_open(struct descriptor d, int flags)
{
	return flags & MSG_FASTOPEN && !(d.flags & DESCRIPTOR_DATAGRAM) &&
	       (d.kind == DESCRIPTOR_UNDECIDED || d.kind == DESCRIPTOR_OFFLOADED);
}

/* connect(), which does not wait for the peer if the flags of the call say so. */
static int connect_first(int fd, const struct msghdr *message, int flags)
{
	int mode = flags & MSG_DONTWAIT ? fcntl(fd, F_GETFL) : -1, r, error;

	if (mode < 0 || mode & O_NONBLOCK)
		return connect(fd, message->msg_name, message->msg_namelen);
	fcntl(fd, F_SETFL, mode | O_NONBLOCK);
	r = connect(fd, message->msg_name, message->msg_namelen);
	error = errno;
	fcntl(fd, F_SETFL, mode);
	errno = error;
	return r;
}

static bool names_nobody(const struct msghdr *message)
{
	sa_family_t family = AF_INET;

	if (message->msg_namelen >= sizeof family && !argument_is_bad(message->msg_name, sizeof family))
		memcpy(&family, message->msg_name, sizeof family);
	return family == AF_UNSPEC;
}

static ssize_t fast_open(int fd, const struct msghdr *message, int flags)
{
	struct descriptor d = descriptor_get(fd);

	if (!message->msg_name) {
		errno = d.kind == DESCRIPTOR_OFFLOADED && !(d.flags & DESCRIPTOR_BOUND) ? EISCONN : EINVAL;
		return -1;
	}
	if (names_nobody(message)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (connect_first(fd, message, flags) < 0)
		return -1;
	return sendmsg(fd, message, flags & ~MSG_FASTOPEN);
}

/* A datagram that an undecided socket sends to an address decides where the socket belongs. *d: the descriptor after
 * that; false: the call fails. */
static bool decide_by_datagram(int fd, struct descriptor *d, const void *address, socklen_t length)
{
	if (!is_undecided_datagram(*d) || !address)
		return true;
	if (decide_datagram_send(fd, *d, address, length) < 0)
		return false;
	*d = descriptor_get(fd);
	return true;
}

EXPORT ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	int s = descriptor_offloaded(fd);

	return s < 0 ? real()->send(fd, data, bytes, flags) : XTS(xts_send(s, data, bytes, flags));
}
ssize_t __send(int fd, const void *data, size_t bytes, int flags) __attribute__((alias("send"))) EXPORT;

EXPORT ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *address, socklen_t length)
{
	struct descriptor d = descriptor_get(fd);

	if (is_fast_open(d, flags)) {
		struct iovec part = { .iov_base = (void *)data, .iov_len = bytes };
		struct msghdr message = {
			.msg_name = (void *)address, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1
		};

		return fast_open(fd, &message, flags);
	}
	if (!decide_by_datagram(fd, &d, address, length))
		return -1;
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->sendto(fd, data, bytes, flags, address, length);
	return XTS(xts_sendto((int)d.number, data, bytes, flags, address, length));
}

static bool passes_descriptors(const struct msghdr *message)
{
	return !argument_is_bad(message, sizeof *message) &&
	       !argument_is_bad(message->msg_control, message->msg_controllen) && passing_any(message);
}

static ssize_t send_elsewhere(int fd, const struct msghdr *message, int flags)
{
	return passes_descriptors(message) ? passing_send(fd, message, flags) : real()->sendmsg(fd, message, flags);
}

static int send_all_elsewhere(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	for (unsigned i = 0; i < count && !argument_is_bad(messages, count * sizeof *messages); i++)
		if (passes_descriptors(&messages[i].msg_hdr))
			return passing_send_all(fd, messages, count, flags);
	return real()->sendmmsg(fd, messages, count, flags);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct descriptor d = descriptor_get(fd);

	if (is_fast_open(d, flags) && !argument_is_bad(message, sizeof *message))
		return fast_open(fd, message, flags);
	if (!argument_is_bad(message, sizeof *message) &&
	    !decide_by_datagram(fd, &d, message->msg_name, message->msg_namelen))
		return -1;
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return send_elsewhere(fd, message, flags);
	return XTS(xts_sendmsg((int)d.number, message, flags));
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	struct descriptor d = descriptor_get(fd);

	if (count && !argument_is_bad(messages, sizeof *messages) &&
	    !decide_by_datagram(fd, &d, messages->msg_hdr.msg_name, messages->msg_hdr.msg_namelen))
		return -1;
	return d.kind != DESCRIPTOR_OFFLOADED ? send_all_elsewhere(fd, messages, count, flags) :
						XTS(xts_sendmmsg((int)d.number, messages, count, flags));
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
	int s = descriptor_offloaded(fd);

	if (s < 0)
		return real()->write(fd, data, bytes);
	return is_possible(data, bytes) ? XTS(xts_send(s, data, bytes, 0)) : -1;
}
ssize_t __write(int fd, const void *data, size_t bytes) __attribute__((alias("write"))) EXPORT;

EXPORT ssize_t writev(int fd, const struct iovec *vector, int count)
{
	int s = descriptor_offloaded(fd);

	return s < 0 ? real()->writev(fd, vector, count) : transmit_vector(s, vector, count, 0);
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *vector, int count, off_t offset, int flags)
{
	int s = descriptor_offloaded(fd);

	if (s < 0)
		return real()->pwritev2(fd, vector, count, offset, flags);
	if (!takes_flags(offset, flags))
		return -1;
	return transmit_vector(s, vector, count, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}
ssize_t pwritev64v2(int fd, const struct iovec *vector, int count, off64_t offset, int flags)
	__attribute__((alias("pwritev2"))) EXPORT;
