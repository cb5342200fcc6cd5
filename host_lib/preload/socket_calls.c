/* socket(), bind(), connect(), listen(), accept() and shutdown(); close() is in descriptor_calls.c. */
#include "preload.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include "core/arguments.h"
#include "undecided_options.h"
#include "undecided_wait.h"
#include "process_page.h"
#include "rules_in_force.h"
#include "fallback_notice.h"

#ifndef IPPROTO_MPTCP /* not in the headers of every distribution we build on */
#define IPPROTO_MPTCP 262
#endif

static bool may_be(enum xts_role first, enum xts_role last)
{
	const struct xts_rule_group *rules = rules_now();

	for (enum xts_role role = first; rules && role <= last; role++)
		if (xts_rules_may_offload(rules, role))
			return true;
	return false;
}

static bool is_datagram(int type, int protocol)
{
	return type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP);
}

/* MPTCP is offloaded as TCP, which the kernel makes of it too where the peer does not speak it. */
static bool is_stream(int type, int protocol)
{
	return type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP);
}

static void new_socket(int fd, int type, int protocol)
{
	int before = errno;
	INSIDE;

	preload_start();
	report_start();
	type &= ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	if ((unsigned)fd >= DESCRIPTORS_MAX)
		atomic_fetch_add_explicit(&preload.stayed[XTS_REASON_LIMIT], 1, memory_order_relaxed);
	else if (is_datagram(type, protocol) && may_be(XTS_ROLE_UDP_SENDER, XTS_ROLE_UDP_CONNECT))
		descriptor_set(fd, (struct descriptor){ .kind = DESCRIPTOR_UNDECIDED, .flags = DESCRIPTOR_DATAGRAM });
	else if (is_stream(type, protocol) && may_be(XTS_ROLE_TCP_SERVER, XTS_ROLE_TCP_CLIENT))
		descriptor_set(fd, (struct descriptor){ .kind = DESCRIPTOR_UNDECIDED });
	else if (is_stream(type, protocol))
		decide_stay(fd, XTS_REASON_RULE);
	else {
		if (type != SOCK_STREAM)
			atomic_fetch_add_explicit(&preload.not_streams, 1, memory_order_relaxed);
		decide_stay(fd, XTS_REASON_PROTOCOL);
	}
	errno = before;
}

EXPORT int socket(int domain, int type, int protocol)
{
	int fd = real()->socket(domain, type, protocol);

	if (fd < 0)
		return fd;
	descriptor_forget_stale(fd);
	if (domain == AF_INET || domain == AF_INET6)
		new_socket(fd, type, protocol);
	return fd;
}

EXPORT int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	struct descriptor d = descriptor_get(fd);
	int r;

	INSIDE;
	if (d.kind == DESCRIPTOR_UNDECIDED)
		return d.flags & DESCRIPTOR_DATAGRAM ? decide_datagram_bind(fd, d, address, length) :
						       decide_bind(fd, d, address, length);
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->bind(fd, address, length);
	r = XTS(xts_bind((int)d.number, address, length));
	notice_refusal(fd, r);
	return r;
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct descriptor d = descriptor_get(fd);

	if (d.kind == DESCRIPTOR_UNDECIDED || d.kind == DESCRIPTOR_OFFLOADED) {
		int r;

		xts_cancellation_point();
		r = d.flags & DESCRIPTOR_DATAGRAM ?
			    CALL_AGAIN(decide_datagram_connect(fd, descriptor_get(fd), address, length)) :
			    CALL_AGAIN(decide_connect(fd, descriptor_get(fd), address, length));

		if (r == DECIDE_KERNEL)
			return real()->connect(fd, address, length);
		notice_refusal(fd, r);
		return r;
	}
	if (d.kind == DESCRIPTOR_KERNEL && length >= sizeof address->sa_family &&
	    xts_argument_is_readable(address, length) &&
	    (address->sa_family == AF_INET || address->sa_family == AF_INET6))
		decide_unknown(fd);
	return real()->connect(fd, address, length);
}
int __connect(int fd, const struct sockaddr *address, socklen_t length) __attribute__((alias("connect"))) EXPORT;

EXPORT int listen(int fd, int backlog)
{
	struct descriptor d = descriptor_get(fd);

	INSIDE;
	if (d.flags & DESCRIPTOR_DATAGRAM)
		return d.kind == DESCRIPTOR_OFFLOADED ? XTS(xts_listen((int)d.number, backlog)) :
							real()->listen(fd, backlog);
	if (d.kind == DESCRIPTOR_UNDECIDED || d.kind == DESCRIPTOR_OFFLOADED) {
		int r = decide_listen(fd, d, backlog);

		notice_refusal(fd, r);
		return r;
	}
	if (d.kind == DESCRIPTOR_KERNEL)
		decide_unknown(fd);
	return real()->listen(fd, backlog);
}

/* --- accept ------------------------------------------------------------------------------------------------------- */

/* Accepted by the kernel: from a kernel listener, or from the kernel socket of an offloaded one. */
static int accept_kernel(int listener, struct descriptor d, struct sockaddr *address, socklen_t *length, int flags)
{
	enum xts_reason reason = d.kind == DESCRIPTOR_OFFLOADED ? XTS_REASON_LOCAL : d.reason;
	int fd = real()->accept4(listener, address, length, flags), before = errno;
	struct sockaddr_storage peer;
	socklen_t peer_length = sizeof peer;
	INSIDE;

	if (fd >= 0) {
		descriptor_forget_stale(fd);
		decide_stay(fd, reason);
		if (report_wants(fd) && real()->getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0)
			report_accepted(fd, listener, NULL, (struct sockaddr *)&peer);
	}
	errno = before;
	return fd;
}

static void report_offloaded(int fd, int listener, int number)
{
	struct sockaddr_storage local, peer;
	socklen_t local_length = sizeof local, peer_length = sizeof peer;

	if (report_wants(fd) && XTS(xts_getsockname(number, (struct sockaddr *)&local, &local_length)) == 0 &&
	    XTS(xts_getpeername(number, (struct sockaddr *)&peer, &peer_length)) == 0)
		report_accepted(fd, listener, (struct sockaddr *)&local, (struct sockaddr *)&peer);
}

/* The kernel, too, reserves the descriptor first: if there is none, the connection stays in the queue. */
static int accept_offloaded(int listener, int s, struct sockaddr *address, socklen_t *length, int flags)
{
	int fd = decide_placeholder(), number;

	if (fd < 0)
		return -1;
	number = XTS(xts_accept4(s, address, length, flags));
	if (number < 0) {
		int before = errno;

		real()->close(fd);
		errno = before;
		return -1;
	}
	if (!(flags & SOCK_CLOEXEC))
		real()->fcntl(fd, F_SETFD, 0);
	descriptor_forget_stale(fd);
	descriptor_set(fd, (struct descriptor){ .kind = DESCRIPTOR_OFFLOADED, .number = (uint32_t)number });
	stream_follow(fd);
	atomic_fetch_add_explicit(&preload.offloaded, 1, memory_order_relaxed);
	report_offloaded(fd, listener, number);
	report_counters();
	return fd;
}

static bool has_timeout(int s)
{
	struct timeval timeout = { 0 };
	socklen_t length = sizeof timeout;

	(void)XTS(xts_getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &timeout, &length));
	return timeout.tv_sec || timeout.tv_usec;
}

/* Accepts from both queues; they take turns in coming first, so that neither starves. */
static int accept_either(int fd, struct descriptor d, struct sockaddr *address, socklen_t *length, int flags)
{
	static _Atomic unsigned turn;
	int status = XTS(xts_fcntl((int)d.number, F_GETFL));
	struct pollfd ours = { .fd = (int)d.number, .events = POLLIN }, theirs = { .fd = fd, .events = POLLIN };

	for (;;) {
		bool kernel_first = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) & 1;

		for (int i = 0; i < 2; i++) {
			int taken;

			if (kernel_first == (i == 0)) {
				struct pollfd now = theirs;

				if (real()->poll(&now, 1, 0) != 1)
					continue;
				taken = accept_kernel(fd, d, address, length, flags);
			} else {
				struct pollfd now = ours;

				if (XTS(xts_poll(&now, 1, 0)) != 1)
					continue;
				taken = accept_offloaded(fd, (int)d.number, address, length, flags);
			}
			if (taken >= 0 || errno != EAGAIN)
				return taken;
		}
		if (status & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		if (XTS(xts_poll_mixed(&ours, 1, &theirs, 1, XTS_FOREVER, NULL)) < 0) {
			if (errno == EINTR && !has_timeout((int)d.number))
				errno = ERESTART;
			return -1;
		}
	}
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	struct descriptor d = descriptor_get(fd);

	if (d.kind == DESCRIPTOR_OFFLOADED) {
		xts_cancellation_point();
		if (d.flags & DESCRIPTOR_ALSO_LOCAL && !(d.flags & DESCRIPTOR_DATAGRAM))
			return CALL_AGAIN(accept_either(fd, d, address, length, flags));
		return CALL_AGAIN(accept_offloaded(fd, (int)d.number, address, length, flags));
	}
	if (d.kind == DESCRIPTOR_KERNEL)
		d = decide_unknown(fd);
	if (d.kind == DESCRIPTOR_STAYED)
		return accept_kernel(fd, d, address, length, flags);
	return real()->accept4(fd, address, length, flags);
}

EXPORT int accept(int fd, struct sockaddr *address, socklen_t *length)
{
	return accept4(fd, address, length, 0);
}

/* --- names, shutdown ---------------------------------------------------------------------------------------------- */

EXPORT int getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
	int s = descriptor_offloaded(fd);

	return s < 0 ? real()->getsockname(fd, address, length) : XTS(xts_getsockname(s, address, length));
}

EXPORT int getpeername(int fd, struct sockaddr *address, socklen_t *length)
{
	int s = descriptor_offloaded(fd);

	return s < 0 ? real()->getpeername(fd, address, length) : XTS(xts_getpeername(s, address, length));
}

/* The kernel's datagram socket is not connected: shutdown() fails with ENOTCONN, and shuts it down all the same. So the
 * XTS socket that replaces it has to be shut down too. */
static int shutdown_undecided(int fd, struct descriptor d, int how)
{
	INSIDE;
	int r = real()->shutdown(fd, how), error = errno, noted;
	uint32_t number = 0;

	if (r < 0 && error != ENOTCONN)
		return r;
	noted = option_note(fd, d, &number);
	if (noted == 0)
		return shutdown(fd, how); /* again, now that it is decided */
	if (noted < 0)
		return -1;
	note_shutdown(number, how);
	errno = error;
	return r;
}

EXPORT int shutdown(int fd, int how)
{
	struct descriptor d = descriptor_get(fd);

	if (is_undecided_datagram(d))
		return shutdown_undecided(fd, d, how);
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->shutdown(fd, how);
	if (d.flags & DESCRIPTOR_LISTENS && d.flags & DESCRIPTOR_ALSO_LOCAL)
		real()->shutdown(fd, how);
	return XTS(xts_shutdown((int)d.number, how));
}
