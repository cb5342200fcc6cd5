/*
 * The decision about a socket: at bind() as a server (decide_server.c), at connect() as a client (decide_client.c), at
 * listen() where nothing was bound. The rules are asked, an XTS socket is made and given the options so far; whatever
 * prevents that is the reason for which the socket stays with the kernel, or, in a strict process, the call's error.
 */
#include "decide.h"

#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>

#include "undecided_options.h"
#include "report.h"
#include "fallback_notice.h"

#define PLACE_MARK 0x58545350 /* no timeout that anybody would set (in ms): 17 days */
#define PLACES_MAX 256        /* descriptors that are looked at when a program starts */

/* The error of a call in a strict process; 0: a rule says so, or it never could be offloaded, and the socket may
 * stay. */
static int strict_error(enum xts_reason reason)
{
	switch (reason) {
	case XTS_REASON_NO_ENDPOINT:
	case XTS_REASON_PROXY_DOWN:
		return ENETDOWN;
	case XTS_REASON_LIMIT:
		return ENOBUFS;
	case XTS_REASON_NO_QUEUE:
		return EUSERS;
	case XTS_REASON_OPTION:
	case XTS_REASON_RAW:
	case XTS_REASON_FASTOPEN:
		return EOPNOTSUPP;
	case XTS_REASON_ADDRESS:
		return EADDRNOTAVAIL;
	case XTS_REASON_REFUSED:
		return EACCES;
	default:
		return 0;
	}
}

int decide_stay(int fd, enum xts_reason reason)
{
	struct descriptor was = descriptor_get(fd);
	int pushed = was.kind == DESCRIPTOR_UNDECIDED ? note_push_error(was.number) : 0;
	int error = pushed ? pushed : preload.strict ? strict_error(reason) : 0;

	if (pushed)
		preload_refused(); /* the program's data would go without the protocol */
	notice_fallback(fd, reason, error);
	if (error) {
		preload_log("descriptor %d: refused (%s): %s", fd, xts_reason_name(reason), strerror(error));
		errno = error;
		return -1;
	}
	atomic_fetch_add_explicit(&preload.stayed[reason], 1, memory_order_relaxed);
	if (was.kind == DESCRIPTOR_UNDECIDED || was.kind == DESCRIPTOR_OFFLOADED)
		descriptor_become(fd, was, (struct descriptor){.kind = DESCRIPTOR_STAYED, .reason = (uint16_t)reason});
	else
		descriptor_set(fd, (struct descriptor){.kind = DESCRIPTOR_STAYED, .reason = (uint16_t)reason});
	report_counters();
	preload_log("descriptor %d: stays with the kernel (%s)", fd, xts_reason_name(reason));
	return 0;
}

int decide_number_option(int fd, int option)
{
	int value = -1;
	socklen_t length = sizeof value;

	return real()->getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

static bool is_tcp(int fd)
{
	int domain = decide_number_option(fd, SO_DOMAIN);

	return (domain == AF_INET || domain == AF_INET6) && decide_number_option(fd, SO_PROTOCOL) == IPPROTO_TCP;
}

struct descriptor decide_unknown(int fd)
{
	int before = errno;

	if (preload.rules && (unsigned)fd < DESCRIPTORS_MAX && is_tcp(fd)) {
		report_start();
		decide_stay(fd, XTS_REASON_INHERITED);
	}
	errno = before;
	return descriptor_get(fd);
}

/* --- making the XTS socket ---------------------------------------------------------------------------------------- */

/* New sockets of this thread come to the endpoint that a rule names. *before: what to go back to. The first endpoint
 * that is named is the one that `xts status` tells. */
static int use_endpoint(const char *endpoint, int *before)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int stack = XTS(xts_stack_at(endpoint));

	if (stack == -1)
		return -1;
	*before = XTS(xts_stack_use(stack));
	if (!atomic_flag_test_and_set(&told))
		report_endpoint(endpoint);
	return *before == -1 ? -1 : 0;
}

static enum xts_reason reason_of_failure(int error)
{
	struct xts_info info = {.size = sizeof info};

	if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
		return XTS_REASON_LIMIT;
	if (error == EUSERS)
		return XTS_REASON_NO_QUEUE;
	if (error == EACCES || error == EPERM)
		return XTS_REASON_REFUSED;
	if (XTS(xts_get_info(&info)) < 0 && (info.link_error == ENOENT || info.link_error == ECONNREFUSED))
		return XTS_REASON_NO_ENDPOINT;
	if (info.link_error == EPROTONOSUPPORT || info.link_error == EOPNOTSUPP)
		return XTS_REASON_REFUSED;
	return XTS_REASON_PROXY_DOWN;
}

/* Has the program bound it to the loopback device (SO_BINDTODEVICE)? That is this host's own, and the kernel's
 * business. */
static bool is_at_loopback(int fd)
{
	char name[IFNAMSIZ] = "";
	socklen_t length = sizeof name;

	return real()->getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0 && length && !strcmp(name, "lo");
}

enum xts_reason decide_make(int fd, struct descriptor d, const char *endpoint, int *out)
{
	int status = real()->fcntl(fd, F_GETFL), domain = decide_number_option(fd, SO_DOMAIN), one = 0, before = 0, s;
	enum xts_reason reason = XTS_REASON_NONE;
	socklen_t length = sizeof one;

	if (d.number && is_at_loopback(fd))
		return XTS_REASON_RULE;
	if (real()->getsockopt(fd, IPPROTO_TCP, 30 /* TCP_FASTOPEN_CONNECT */, &one, &length) == 0 && one)
		return XTS_REASON_FASTOPEN;
	if (endpoint && use_endpoint(endpoint, &before) < 0)
		return XTS_REASON_LIMIT;
	s = XTS(xts_socket(domain, SOCK_STREAM | (status & O_NONBLOCK ? SOCK_NONBLOCK : 0), IPPROTO_TCP));
	if (s < 0)
		reason = reason_of_failure(errno);
	if (endpoint)
		(void)XTS(xts_stack_use(before));
	if (s < 0)
		return reason;
	if (note_replay(d.number, s) < 0) {
		reason = errno == ENETDOWN ? XTS_REASON_PROXY_DOWN : XTS_REASON_OPTION;
		(void)XTS(xts_close(s));
		return reason;
	}
	*out = s;
	return XTS_REASON_NONE;
}

bool decide_publish(int fd, struct descriptor was, int s, uint8_t flags)
{
	struct descriptor d = {.kind = DESCRIPTOR_OFFLOADED, .flags = flags, .number = (uint32_t)s};

	if (note_push_error(was.number))
		d.flags |= DESCRIPTOR_PUSHED;
	if (!descriptor_become(fd, was, d)) {
		(void)XTS(xts_close(s));
		return false;
	}
	if (!flags)
		decide_mark_place(fd);
	atomic_fetch_add_explicit(&preload.offloaded, 1, memory_order_relaxed);
	report_counters();
	epoll_descriptor_offloaded(fd, d);
	preload_log("descriptor %d: offloaded", fd);
	return true;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

bool decide_takes_address(int fd, const struct sockaddr *address, socklen_t length)
{
	if (!address || length > sizeof(struct sockaddr_storage))
		return false;
	if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET)
		return decide_number_option(fd, SO_DOMAIN) == AF_INET;
	return length >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6 &&
	       decide_number_option(fd, SO_DOMAIN) == AF_INET6;
}

bool decide_bound_to(int fd, union address *local)
{
	socklen_t length = sizeof *local;

	memset(local, 0, sizeof *local);
	return real()->getsockname(fd, &local->any, &length) == 0 && *port_of(local) != 0;
}

/* --- places: what programs see that were started past us ---------------------------------------------------------- */

void decide_mark_place(int fd)
{
	int before = errno, mark = PLACE_MARK;

	(void)real()->setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &mark, sizeof mark);
	errno = before;
}

static bool is_place(int fd)
{
	int mark = 0;
	socklen_t length = sizeof mark;

	return real()->getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &mark, &length) == 0 && mark == PLACE_MARK;
}

void decide_unmark_place(int fd, int s)
{
	int before = errno, timeout = 0;
	socklen_t length = sizeof timeout;

	if (is_place(fd)) {
		if (XTS(xts_getsockopt(s, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &length)) < 0)
			timeout = 0;
		(void)real()->setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
	}
	errno = before;
}

void decide_lost_places(void)
{
	int before = errno;

	for (int fd = 0; fd < PLACES_MAX; fd++) {
		if (descriptor_get(fd).kind != DESCRIPTOR_KERNEL || !is_place(fd))
			continue;
		report_start();
		(void)decide_stay(fd, XTS_REASON_LOST);
	}
	errno = before;
}

/* --- placeholders ------------------------------------------------------------------------------------------------- */

/* Copies of one socket: they are never used, and a copy costs a sixth of a socket. */
int decide_placeholder(void)
{
	static _Atomic int original = -1;
	int fd = original, expected = -1;

	if (fd < 0) {
		fd = real()->socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
		if (fd < 0)
			fd = real()->socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
		if (fd < 0)
			return -1;
		decide_mark_place(fd);
		fd = descriptor_own(fd);
		if (!atomic_compare_exchange_strong(&original, &expected, fd)) {
			descriptor_disown(fd);
			real()->close(fd);
			fd = expected;
		}
	}
	return real()->fcntl(fd, F_DUPFD_CLOEXEC, 0);
}
