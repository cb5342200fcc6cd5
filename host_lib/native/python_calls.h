/*
 * What the Python package calls: the functions of xts.h in a form that is short to call from Python.
 *
 * Theory of operation
 *
 * - Results below 0 are -errno. (errno itself would be too late: Python may run a signal handler, which may make calls
 *   of its own, between the return of a call and the look at errno.)
 * - Calls that may wait take timeout_ms: -1 for a blocking socket (the library waits by itself), 0 for a non-blocking
 *   one, else the socket is non-blocking and the wait happens here. A wait that has timed out returns -EAGAIN.
 * - A call interrupted by a signal returns XTS_PY_INTERRUPTED - the time left, so that Python can run its signal
 *   handlers and call again with that time (PEP 475). -4095 to -1 stay free for -errno.
 * - A receive call on a socket with a callback returns XTS_PY_UNDECIDED - the time left, so that Python asks the
 *   callback first.
 */
#ifndef XTS_PYTHON_CALLS_H
#define XTS_PYTHON_CALLS_H

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "notice.h"

#include "xts_private.h"
#include "xts.h"

#define XTS_PY_INTERRUPTED (-8192)
#define XTS_PY_UNDECIDED (-(INT64_C(1) << 48))
#define XTS_PY_EVENTS_MAX 1024

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
	if (errno == XTS_UNDECIDED)
		return XTS_PY_UNDECIDED - xts_py_left_ms(wait);
	if (errno != EAGAIN || wait->timeout_ms <= 0)
		return -errno;
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

/* --- pushed protocols --------------------------------------------------------------------------------------------- */

static inline ssize_t xts_py_ulp_handshake(int s, int64_t timeout_ms)
{
	XTS_PY_WAITING(ssize_t, s, POLLOUT, timeout_ms, xts_ulp_handshake(s));
}

/* SIOC_PUSH_ULP and similar requests. EAGAIN: data sent earlier has not left yet; no event says when it has
 * (push_ulp.c). */
static inline ssize_t xts_py_push(int s, unsigned long request, void *info, int64_t timeout_ms)
{
	struct xts_py_wait wait = { timeout_ms, timeout_ms > 0 ? xts_py_now_ns() + timeout_ms * 1000000 : 0 };

	while (xts_ioctl(s, request, info) < 0) {
		int64_t left_ms = xts_py_left_ms(&wait);

		if (errno == EINTR)
			return (ssize_t)xts_py_interrupted(&wait);
		if (errno != EAGAIN || left_ms <= 0)
			return -errno;
		if (poll(NULL, 0, left_ms < 5 ? (int)left_ms : 5) < 0)
			return (ssize_t)xts_py_interrupted(&wait);
	}
	return 0;
}

/* What came with the data of a PDU, in one struct, which is quicker to read than a msghdr. */
#define XTS_PY_CONTROL_MAX 16
struct xts_py_pdu {
	int flags; /* MSG_EOR, MSG_TRUNC */
	int level, type;
	unsigned control_bytes; /* 0: there is none */
	unsigned char control[XTS_PY_CONTROL_MAX];
};

static inline void xts_py_take_control(struct xts_py_pdu *pdu, struct msghdr *message)
{
	const struct cmsghdr *head = CMSG_FIRSTHDR(message);

	pdu->flags = message->msg_flags;
	pdu->control_bytes = 0;
	if (!head || head->cmsg_len < CMSG_LEN(0) || head->cmsg_len > CMSG_LEN(XTS_PY_CONTROL_MAX))
		return;
	pdu->level = head->cmsg_level;
	pdu->type = head->cmsg_type;
	pdu->control_bytes = (unsigned)(head->cmsg_len - CMSG_LEN(0));
	memcpy(pdu->control, CMSG_DATA(head), pdu->control_bytes);
}

static inline ssize_t xts_py_recv_pdu(int s, void *data, size_t bytes, struct xts_py_pdu *pdu, int64_t timeout_ms)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(XTS_PY_CONTROL_MAX)];
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control };
	ssize_t got;

	message.msg_controllen = sizeof(control);
	got = xts_py_recvmsg(s, &message, 0, timeout_ms);
	if (got >= 0)
		xts_py_take_control(pdu, &message);
	return got;
}

/* level 0: no control data. */
static inline ssize_t xts_py_send_pdu(int s, const void *data, size_t bytes, int level, int type, const void *control,
				      size_t control_bytes, int flags, int64_t timeout_ms)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(XTS_PY_CONTROL_MAX)];
	} room = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (control_bytes > XTS_PY_CONTROL_MAX)
		return -EINVAL;
	if (level) {
		room.head.cmsg_level = level;
		room.head.cmsg_type = type;
		room.head.cmsg_len = CMSG_LEN(control_bytes);
		memcpy(CMSG_DATA(&room.head), control, control_bytes);
		message.msg_control = &room;
		message.msg_controllen = CMSG_SPACE(control_bytes);
	}
	return xts_py_sendmsg(s, &message, flags, timeout_ms);
}

/* --- calls that do not wait, or whose wait is not ours to bound --------------------------------------------------- */

static inline int xts_py_result(int result)
{
	return result < 0 ? -errno : result;
}

static inline int xts_py_socket(int domain, int type, int protocol)
{
	return xts_py_result(xts_socket(domain, type, protocol));
}

static inline int xts_py_close(int s)
{
	return xts_py_result(xts_close(s));
}

static inline int xts_py_getsockopt(int s, int level, int option, void *value, socklen_t *length)
{
	return xts_py_result(xts_getsockopt(s, level, option, value, length));
}

static inline int xts_py_getsockopt_int(int s, int level, int option, int *value)
{
	socklen_t length = sizeof(*value);

	*value = 0;
	return xts_py_result(xts_getsockopt(s, level, option, value, &length));
}

static inline int xts_py_setsockopt(int s, int level, int option, const void *value, socklen_t length)
{
	return xts_py_result(xts_setsockopt(s, level, option, value, length));
}

static inline int xts_py_setsockopt_int(int s, int level, int option, int value)
{
	return xts_py_result(xts_setsockopt(s, level, option, &value, sizeof(value)));
}

static inline int xts_py_set_nodelay(int s)
{
	return xts_py_result(xts_set_nodelay(s));
}

static inline int xts_py_bind(int s, const void *address, socklen_t length)
{
	return xts_py_result(xts_bind(s, address, length));
}

static inline int xts_py_connect(int s, const void *address, socklen_t length)
{
	return xts_py_result(xts_connect(s, address, length));
}

static inline int xts_py_ulp_connect(int s, const void *address, socklen_t length, const struct xts_ulp_push *pushes,
				     unsigned count)
{
	return xts_py_result(xts_ulp_connect(s, address, length, pushes, count));
}

static inline int xts_py_listen(int s, int backlog)
{
	return xts_py_result(xts_listen(s, backlog));
}

static inline int xts_py_getsockname(int s, void *address, socklen_t *length)
{
	return xts_py_result(xts_getsockname(s, address, length));
}

static inline int xts_py_getpeername(int s, void *address, socklen_t *length)
{
	return xts_py_result(xts_getpeername(s, address, length));
}

static inline int xts_py_ask_reader(int s, int on)
{
	return xts_py_result(xts_ask_reader(s, on));
}

static inline int xts_py_undecided(int s, const struct xts_packet **out)
{
	return xts_py_result(xts_undecided(s, out));
}

static inline int xts_py_shutdown(int s, int how)
{
	return xts_py_result(xts_shutdown(s, how));
}

static inline int xts_py_fileno(int s)
{
	return xts_py_result(xts_fileno(s));
}

static inline int xts_py_wake_sleepers_of(int s, int fd)
{
	return xts_py_result(xts_wake_sleepers_of(s, fd));
}

/* Gives s, a listener or a bound socket, to every process that gets a descriptor of the kernel's socket `on`. */
static inline int xts_py_give(int s, int on)
{
	int carrier = xts_pass(s, on);

	if (carrier < 0)
		return xts_py_result(carrier);
	close(carrier);
	return 0;
}

/* The descriptor to send to another program in place of s, and to close after that. kernel_fd: for a listener, its
 * counterpart in this host's kernel. */
static inline int xts_py_pass(int s, int kernel_fd)
{
	return xts_py_result(xts_pass(s, kernel_fd));
}

/* The socket that a received descriptor stands for, 0: none. *again: this process already had that socket. */
static inline int xts_py_take_passed(int fd, int *again)
{
	struct xts_exec_socket got;
	int r = xts_py_result(xts_take_passed(fd, true, &got));

	*again = r == 1 && got.again;
	return r == 1 ? got.number : r;
}

static inline int xts_py_fcntl(int s, int command, int argument)
{
	return xts_py_result(xts_fcntl(s, command, argument));
}

static inline int xts_py_ioctl(int s, unsigned long request, void *argument)
{
	return xts_py_result(xts_ioctl(s, request, argument));
}

static inline int xts_py_ioctl_int(int s, unsigned long request, int argument)
{
	return xts_py_result(xts_ioctl(s, request, argument));
}

/* The errno of the fault, 0 for none; -errno if it is not available. */
static inline int xts_py_ulp_error(int s, unsigned *fault, char *text, size_t bytes)
{
	return xts_py_result(xts_ulp_error(s, fault, text, bytes));
}

static inline ssize_t xts_py_ulp_tell(int s, int send, unsigned layer, unsigned item, void *value, size_t bytes)
{
	ssize_t got = xts_ulp_tell(s, send, layer, item, value, bytes);

	return got < 0 ? -errno : got;
}

static inline int xts_py_ulps(struct xts_ulp_offer *offers, unsigned max)
{
	return xts_py_result(xts_ulps(offers, max));
}

static inline int xts_py_configure(const struct xts_options *options)
{
	return xts_py_result(xts_configure(options));
}

static inline int xts_py_stack_create(const char *endpoint)
{
	return xts_py_result(xts_stack_create(endpoint));
}

static inline int xts_py_stack_at(const char *endpoint)
{
	return xts_py_result(xts_stack_at(endpoint));
}

/* 0, or -errno; *before is what the thread used before. XTS_STACK_OF_SETTING is no errno, but is below 0 too. */
static inline int xts_py_stack_use(int stack, int *before)
{
	int r = xts_stack_use(stack);

	if (r == -1)
		return -errno;
	*before = r;
	return 0;
}

static inline int xts_py_stack_release(int stack)
{
	return xts_py_result(xts_stack_release(stack));
}

static inline int xts_py_stack_of(int s)
{
	return xts_py_result(xts_stack_of(s));
}

/* From now on the kernel sends this process the signal when its parent ends: 0 or -errno. */
static inline int xts_py_end_with_parent(int number)
{
	return prctl(PR_SET_PDEATHSIG, (unsigned long)number, 0ul, 0ul, 0ul) ? -errno : 0;
}

/* The reason for the -code that the calling thread's last call returned; NULL: the errno alone says it. */
static inline const char *xts_py_reason_of(int code)
{
	return xts_reason_of(code, false);
}

static inline int xts_py_state(int s)
{
	int state = xts_state(s);

	return state < 0 ? -errno : state;
}

static inline void xts_py_notice(const char *text)
{
	xts_notice("%s", text);
}

static inline int xts_py_get_info(struct xts_info *info)
{
	info->size = sizeof(*info);
	return xts_py_result(xts_get_info(info));
}

/* --- polling many sockets: events as pairs (socket number, events), which convert faster than structs ------------- */

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

static inline ssize_t xts_py_epoll_wait(void *ectx, int32_t *pairs, int maxevents, int64_t timeout_ms)
{
	struct xts_py_wait wait = { timeout_ms, timeout_ms > 0 ? xts_py_now_ns() + timeout_ms * 1000000 : 0 };
	struct epoll_event events[XTS_PY_EVENTS_MAX];
	int count;

	if (maxevents > XTS_PY_EVENTS_MAX)
		maxevents = XTS_PY_EVENTS_MAX;
	for (;;) {
		int64_t left_ms = xts_py_left_ms(&wait);

		count = xts_epoll_wait(ectx, events, maxevents, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
		if (count < 0)
			return errno == EINTR ? (ssize_t)xts_py_interrupted(&wait) : -errno;
		if (count || left_ms <= INT_MAX)
			return xts_py_pairs(events, count, pairs);
	}
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
	struct epoll_event events[XTS_PY_EVENTS_MAX];
	int count;

	if (maxevents > XTS_PY_EVENTS_MAX)
		maxevents = XTS_PY_EVENTS_MAX;
	count = xts_epoll(ectx, events, maxevents);
	return count < 0 ? -errno : xts_py_pairs(events, count, pairs);
}

#endif
