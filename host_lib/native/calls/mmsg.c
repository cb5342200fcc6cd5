/*
 * sendmmsg(2) and recvmmsg(2). The datagrams of one call share the messages to the proxy, and the call takes the
 * stack's lock once. Other sockets send and receive message by message.
 */
#include <time.h>

#include "core/arguments.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/take_over.h"
#include "xts.h"
#include "xts_private.h"

#define MESSAGES_MAX 1024u /* UIO_MAXIOV, at which the kernel cuts these calls */

/* A call with all messages at once: returns their number, or -errno. */
typedef int call_at_once(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns);

static int send_on(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns)
{
	(void)deadline_ns;
	return kind_of(s)->send_messages(s, messages, count, flags);
}

static int recv_on(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns)
{
	return kind_of(s)->recv_messages(s, messages, count, flags, deadline_ns);
}

/* False: this kind of socket sends and receives one by one. */
static bool at_once(int number, call_at_once *call, struct mmsghdr *messages, unsigned count, int flags,
		    uint64_t deadline_ns, ssize_t *result)
{
	struct xts_sock *s;
	struct stack *st;

	xts_cancellation_point();
	do {
		st = stack_enter_of(number);
		s = table_use_for(st, number, PURPOSE_NOBODY);
		*result = s ? call(s, messages, count, flags, deadline_ns) : -EBADF;
	} while (stack_restarts(st, result)); /* only if nothing has been sent or received */
	return *result != -ENOSYS;
}

int xts_sendmmsg(int number, struct mmsghdr *messages, unsigned count, int flags)
{
	unsigned i;
	ssize_t r;

	if (flags & FLAGS_OF_KERNEL)
		return finish(-EINVAL);
	if (count > MESSAGES_MAX)
		count = MESSAGES_MAX;
	if (argument_is_bad(messages, count * sizeof *messages))
		return finish(-EFAULT);
	if (at_once(number, send_on, messages, count, flags, FOREVER, &r))
		return r < 0 ? (int)finish_of(number, (int)r) : (int)r;
	for (i = 0; i < count; i++) {
		ssize_t bytes = xts_sendmsg(number, &messages[i].msg_hdr, flags);

		if (bytes < 0)
			return i ? (int)i : -1;
		messages[i].msg_len = (unsigned)bytes;
	}
	return (int)i;
}

/* A pending error comes before data here, unlike in recvmsg(), as in do_recvmmsg(). */
static int recv_on_stream(int number, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns)
{
	int error = 0;
	socklen_t length = sizeof error;
	unsigned i = 0;

	if (!(flags & MSG_ERRQUEUE) && xts_getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
		return -1;
	if (error)
		return finish(-error);
	while (i < count) {
		ssize_t bytes = xts_recvmsg(number, &messages[i].msg_hdr, flags & ~MSG_WAITFORONE);

		if (bytes < 0)
			return i ? (int)i : -1;
		messages[i++].msg_len = (unsigned)bytes;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (deadline_ns != FOREVER && now_ns() >= deadline_ns)
			break;
	}
	return (int)i;
}

static void tell_left(uint64_t deadline_ns, struct timespec *timeout)
{
	uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;

	timeout->tv_sec = (time_t)(left / NS_PER_S);
	timeout->tv_nsec = (long)(left % NS_PER_S);
}

/* As in the kernel, the timeout is checked only after each message, and the remaining time is written back if a message
 * came. */
int xts_recvmmsg(int number, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	uint64_t deadline_ns = FOREVER;
	ssize_t r;
	int result;

	if (flags & FLAGS_OF_KERNEL)
		return finish(-EINVAL);
	if (timeout && argument_is_bad(timeout, sizeof *timeout))
		return finish(-EFAULT);
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= (long)NS_PER_S))
		return finish(-EINVAL);
	if (timeout)
		deadline_ns = now_ns() + (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec;
	if (count > MESSAGES_MAX)
		count = MESSAGES_MAX;
	if (argument_is_bad(messages, count * sizeof *messages))
		return finish(-EFAULT);
	if (!(flags & MSG_ERRQUEUE) && at_once(number, recv_on, messages, count, flags, deadline_ns, &r))
		result = r < 0 ? (int)finish_of(number, (int)r) : (int)r;
	else
		result = recv_on_stream(number, messages, count, flags, deadline_ns);
	if (timeout && result > 0)
		tell_left(deadline_ns, timeout);
	return result;
}
