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
 * - A receive call on a socket with a callback returns XTS_PY_PACKET_ASKS - the time left, so that Python asks the
 *   callback first.
 *
 * Here are the calls that do not wait, or whose wait is not ours to bound. python_waits.h has those that wait on one
 * socket, python_pdus.h those of pushed protocols, python_epoll.h those that poll many sockets.
 */
#ifndef XTS_PYTHON_CALLS_H
#define XTS_PYTHON_CALLS_H

#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/notice.h"
#include "python_epoll.h"
#include "python_pdus.h"
#include "python_waits.h"

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
	return xts_py_result(xts_packet_asks(s, out));
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
	return xts_py_result(xts_give(s, on));
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
static inline int xts_py_ulp_error(int s, unsigned *protocol, unsigned *fault, char *text, size_t bytes)
{
	return xts_py_result(xts_ulp_error_of(s, protocol, fault, text, bytes));
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

#endif
