/* Calls for Python that poll many sockets: events as pairs (socket number, events), which convert faster than structs.
 * python_calls.h has the theory of operation. */
#ifndef XTS_PYTHON_EPOLL_H
#define XTS_PYTHON_EPOLL_H

#include <stdlib.h>

#include "python_waits.h"

#define XTS_PY_EVENTS_MAX 1024 /* if the program does not say how many */

static inline int xts_py_epoll_ctl(void *ectx, int op, int s, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = s };

	return xts_py_result(xts_epoll_ctl(ectx, op, s, &event));
}

static inline int xts_py_pairs(const struct epoll_event *events, int count, int32_t *pairs)
{
	for (int i = 0; i < count; i++) {
		pairs[2 * i] = events[i].data.fd;
		pairs[2 * i + 1] = (int32_t)events[i].events;
	}
	return count;
}

/* The two calls below have `few`, of XTS_PY_EVENTS_MAX, and need more only if the program has room for more. NULL: no
 * memory. */
static inline struct epoll_event *xts_py_events(struct epoll_event *few, int maxevents)
{
	return maxevents > XTS_PY_EVENTS_MAX ? (struct epoll_event *)malloc((size_t)maxevents * sizeof *few) : few;
}

static inline ssize_t xts_py_epoll_wait_in(void *ectx, struct epoll_event *events, int32_t *pairs, int maxevents,
					   int64_t timeout_ms)
{
	struct xts_py_wait wait = { timeout_ms, timeout_ms > 0 ? xts_py_now_ns() + timeout_ms * 1000000 : 0 };
	int count;

	for (;;) {
		int64_t left_ms = xts_py_left_ms(&wait);

		count = xts_epoll_wait(ectx, events, maxevents, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
		if (count < 0)
			return errno == EINTR ? (ssize_t)xts_py_interrupted(&wait) : -errno;
		if (count || left_ms <= INT_MAX)
			return xts_py_pairs(events, count, pairs);
	}
}

static inline ssize_t xts_py_epoll_wait(void *ectx, int32_t *pairs, int maxevents, int64_t timeout_ms)
{
	struct epoll_event few[XTS_PY_EVENTS_MAX], *events = xts_py_events(few, maxevents);
	ssize_t r = events ? xts_py_epoll_wait_in(ectx, events, pairs, maxevents, timeout_ms) : -ENOMEM;

	if (events != few)
		free(events);
	return r;
}

/*
 * Waits for XTS sockets and the kernel's epoll set kernel_set together, for the selector of an event loop; timeout_ns
 * -1: forever. Writes the sockets' events first and the kernel descriptors' events after them; returns the number of
 * the former plus XTS_PY_KERNEL times the number of the latter. Returns 0 at the timeout, or after a signal. The data
 * of a socket in the context has to be ~number (xts_py_epoll_ctl_mixed), since select.epoll uses the descriptor as its
 * data.
 */
#define XTS_PY_KERNEL 65536

static inline int xts_py_epoll_ctl_mixed(void *ectx, int op, int s, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = ~s };

	return xts_py_result(xts_epoll_ctl(ectx, op, s, &event));
}

static inline ssize_t xts_py_epoll_wait_mixed(void *ectx, int kernel_set, int32_t *pairs, int64_t timeout_ns)
{
	struct epoll_event events[XTS_PY_EVENTS_MAX];
	uint64_t deadline_ns = timeout_ns < 0 ? XTS_FOREVER : timeout_ns ? xts_now_ns() + (uint64_t)timeout_ns : 0;
	int count, ours = 0, at = 0;

	count = xts_epoll_wait_mixed(ectx, kernel_set, NULL, events, XTS_PY_EVENTS_MAX, deadline_ns, NULL);
	if (count < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < count; i++)
		if (events[i].data.fd < 0) {
			pairs[at++] = ~events[i].data.fd;
			pairs[at++] = (int32_t)events[i].events;
			ours++;
		}
	for (int i = 0; i < count && ours < count; i++)
		if (events[i].data.fd >= 0) {
			pairs[at++] = events[i].data.fd;
			pairs[at++] = (int32_t)events[i].events;
		}
	return ours + (ssize_t)(count - ours) * XTS_PY_KERNEL;
}

static inline int xts_py_epoll_now(void *ectx, int32_t *pairs, int maxevents)
{
	struct epoll_event few[XTS_PY_EVENTS_MAX], *events = xts_py_events(few, maxevents);
	int count;

	if (!events)
		return -ENOMEM;
	count = xts_epoll(ectx, events, maxevents);
	count = count < 0 ? -errno : xts_py_pairs(events, count, pairs);
	if (events != few)
		free(events);
	return count;
}

#endif
