/* Calls for Python that may wait on one socket, with a timeout. python_calls.h has the theory of operation. */
#ifndef XTS_PYTHON_WAITS_H
#define XTS_PYTHON_WAITS_H

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>

#include "xts_private.h"
#include "xts.h"

#define XTS_PY_INTERRUPTED (-8192)
#define XTS_PY_PACKET_ASKS (-(INT64_C(1) << 48))

static inline int xts_py_result(int result)
{
	return result < 0 ? -errno : result;
}

struct xts_py_wait {
	int64_t timeout_ms;  /* as passed in */
	int64_t deadline_ns; /* 0: the wait has not begun */
};

static inline int64_t xts_py_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Milliseconds left, rounded up, so that no wait ends early. */
static inline int64_t xts_py_left_ms(const struct xts_py_wait *wait)
{
	int64_t left_ns;

	if (wait->timeout_ms <= 0 || !wait->deadline_ns)
		return wait->timeout_ms;
	left_ns = wait->deadline_ns - xts_py_now_ns();
	return left_ns > 0 ? (left_ns + 999999) / 1000000 : 0;
}

static inline int64_t xts_py_interrupted(const struct xts_py_wait *wait)
{
	return XTS_PY_INTERRUPTED - xts_py_left_ms(wait);
}

/* Waits for events on a socket. Returns the events, -EAGAIN at the deadline, -errno, or the result for an interrupted
 * call. */
static inline int64_t xts_py_wait_for(struct xts_py_wait *wait, int s, int events)
{
	struct pollfd fd = { .fd = s, .events = (short)events };

	if (wait->timeout_ms > 0 && !wait->deadline_ns)
		wait->deadline_ns = xts_py_now_ns() + wait->timeout_ms * 1000000;
	for (;;) {
		int64_t left_ms = xts_py_left_ms(wait);
		int ready = xts_poll(&fd, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);

		if (ready > 0)
			return fd.revents;
		if (ready < 0)
			return errno == EINTR ? xts_py_interrupted(wait) : -errno;
		if (left_ms <= INT_MAX)
			return -EAGAIN;
	}
}

/* The call failed with errno. Returns 0 if it shall be made again, else the result for Python. */
static inline int64_t xts_py_failed(struct xts_py_wait *wait, int s, int events)
{
	int64_t ready;

	if (errno == EINTR)
		return xts_py_interrupted(wait);
	if (errno == XTS_PACKET_ASKS)
		return XTS_PY_PACKET_ASKS - xts_py_left_ms(wait);
	if (errno != EAGAIN || wait->timeout_ms <= 0)
		return -errno;
	/* Late, and ready all the time for something else than this call takes: MSG_ERRQUEUE. */
	if (wait->deadline_ns && !xts_py_left_ms(wait))
		return -EAGAIN;
	ready = xts_py_wait_for(wait, s, events);
	return ready < 0 ? ready : 0;
}

#define XTS_PY_WAITING(type, s, events, timeout_ms, call) \
	do { \
		struct xts_py_wait wait = { timeout_ms, 0 }; \
\
		for (;;) { \
			int64_t result = (call); \
\
			if (result >= 0) \
				return (type)result; \
			result = xts_py_failed(&wait, s, events); \
			if (result) \
				return (type)result; \
		} \
	} while (0)

static inline ssize_t xts_py_accept(int s, void *address, socklen_t *length, int64_t timeout_ms)
{
	socklen_t room = *length;

	XTS_PY_WAITING(ssize_t, s, POLLIN, timeout_ms, (*length = room, xts_accept4(s, address, length, 0)));
}

static inline ssize_t xts_py_send(int s, const void *data, size_t bytes, int flags, int64_t timeout_ms)
{
	XTS_PY_WAITING(ssize_t, s, POLLOUT, timeout_ms, xts_send(s, data, bytes, flags));
}

static inline ssize_t xts_py_sendto(int s, const void *data, size_t bytes, int flags, const void *address,
				    socklen_t length, int64_t timeout_ms)
{
	XTS_PY_WAITING(ssize_t, s, POLLOUT, timeout_ms, xts_sendto(s, data, bytes, flags, address, length));
}

static inline ssize_t xts_py_sendmsg(int s, const struct msghdr *message, int flags, int64_t timeout_ms)
{
	XTS_PY_WAITING(ssize_t, s, POLLOUT, timeout_ms, xts_sendmsg(s, message, flags));
}

static inline ssize_t xts_py_recv(int s, void *data, size_t bytes, int flags, int64_t timeout_ms)
{
	XTS_PY_WAITING(ssize_t, s, POLLIN, timeout_ms, xts_recv(s, data, bytes, flags));
}

static inline ssize_t xts_py_recvfrom(int s, void *data, size_t bytes, int flags, void *address, socklen_t *length,
				      int64_t timeout_ms)
{
	socklen_t room = *length;

	XTS_PY_WAITING(ssize_t, s, POLLIN, timeout_ms,
		       (*length = room, xts_recvfrom(s, data, bytes, flags, address, length)));
}

static inline ssize_t xts_py_recvmsg(int s, struct msghdr *message, int flags, int64_t timeout_ms)
{
	struct msghdr room = *message;

	XTS_PY_WAITING(ssize_t, s, POLLIN, timeout_ms, (*message = room, xts_recvmsg(s, message, flags)));
}

/* Waits for events on one socket; timeout_ms -1: forever. */
static inline ssize_t xts_py_poll(int s, int events, int64_t timeout_ms)
{
	struct xts_py_wait wait = { timeout_ms, 0 };

	return (ssize_t)xts_py_wait_for(&wait, s, events);
}

#endif
