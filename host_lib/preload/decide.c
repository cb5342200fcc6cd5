/*
 * Carrying out the decision about a socket (decision/decision.h): at bind() as a server (decide_server.c), at connect()
 * as a client (decide_client.c), at listen() if it was not bound. Either an XTS socket gets the options set so far and
 * stands for the descriptor from then on; or the descriptor stays with the kernel, with a reason; or, in a strict
 * process, the call fails.
 */
#include "decide.h"

#include <netinet/tcp.h>
#include <string.h>

#include "core/arguments.h"
#include "undecided_options.h"
#include "undecided_wait.h"
#include "once_per_run.h"
#include "process_page.h"
#include "rules_in_force.h"
#include "fallback_notice.h"

#define PLACE_MARK 0x58545350 /* set as a timeout that no program sets (in ms): 17 days */
#define PLACES_MAX 256        /* how many descriptors are looked at when a program starts */

/* explanation: as in struct xts_decision. */
static int stay(int fd, struct descriptor was, enum xts_reason reason, const char *explanation)
{
	const struct descriptor d = { .kind = DESCRIPTOR_STAYED, .reason = (uint16_t)reason };
	int pushed = was.kind == DESCRIPTOR_UNDECIDED ? note_push_error(was.number) : 0;
	int elsewhere = was.kind == DESCRIPTOR_UNDECIDED ? note_interface_error(was.number) : 0;
	int error = pushed ? pushed : preload.strict ? xts_reason_error(reason) : elsewhere;

	if (pushed)
		preload_refused(); /* without the protocol, the program's data would be sent in plain */
	notice_fallback(fd, reason, error, explanation);
	if (error) {
		atomic_fetch_add_explicit(&preload.failed_calls, 1, memory_order_relaxed);
		preload_log("descriptor %d: refused (%s): %s", fd, xts_reason_name(reason), strerror(error));
		errno = error;
		return -1;
	}
	if (was.kind != DESCRIPTOR_UNDECIDED && was.kind != DESCRIPTOR_OFFLOADED)
		descriptor_set(fd, d);
	else if (!descriptor_become(fd, was, d))
		return 0; /* another thread has decided it */
	atomic_fetch_add_explicit(&preload.stayed[reason], 1, memory_order_relaxed);
	report_counters();
	preload_log("descriptor %d: stays with the kernel (%s)%s%s", fd, xts_reason_name(reason),
		    explanation[0] ? ": " : "", explanation);
	return 0;
}

int decide_stay(int fd, enum xts_reason reason)
{
	if (xts_reason_error(reason) && rules_may_offload_streams())
		run_count_refused(reason);
	return stay(fd, descriptor_get(fd), reason, "");
}

void decide_stay_undecided(int fd, struct descriptor was)
{
	(void)stay(fd, was, XTS_REASON_RULE, "");
}

int decide_stay_by(int fd, const struct xts_decision *decision)
{
	if (decision->reason != XTS_REASON_RULE)
		run_count_refused(decision->reason);
	return stay(fd, descriptor_get(fd), decision->reason, decision->explanation);
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

void decide_failed(struct xts_decision *decision, enum xts_decision_step step)
{
	int error = errno;

	(void)XTS(xts_close(decision->s));
	xts_decision_failed(decision, step, error);
}

/* Repeats on the decision's XTS socket what the program has done so far. */
static void replay(uint32_t number, struct xts_decision *decision)
{
	struct note_failed_option option;
	int s = decision->s, error;

	if (note_replay(number, s, &option) == 0)
		return;
	error = errno;
	if (option.failed && XTS(xts_decision_option_failed(decision, option.level, option.option, error)) == 0) {
		(void)XTS(xts_close(s));
		return;
	}
	errno = error;
	decide_failed(decision, XTS_STEP_OPTIONS);
}

bool decide_make(int fd, struct descriptor d, enum xts_role role, const struct sockaddr *local,
		 const struct sockaddr *peer, struct xts_decision *out)
{
	static atomic_flag reported = ATOMIC_FLAG_INIT;
	int domain = decide_number_option(fd, SO_DOMAIN), status = real()->fcntl(fd, F_GETFL);
	const struct xts_undecided undecided = { .rules = rules_now(),
						 .fd = fd,
						 .family = domain,
						 .type = (d.flags & DESCRIPTOR_DATAGRAM ? SOCK_DGRAM : SOCK_STREAM) |
							 (status & O_NONBLOCK ? SOCK_NONBLOCK : 0) };

	*out = (struct xts_decision){ .reason = XTS_REASON_PROXY_DOWN, .s = -1 };
	(void)XTS(xts_decide(&undecided, role, local, peer, out));
	report_decision(fd, out->line, local, peer);
	if (out->s >= 0 && out->endpoint && !atomic_flag_test_and_set(&reported))
		report_endpoint(out->endpoint); /* `xts status` shows the first one that is used */
	if (out->s >= 0)
		replay(d.number, out);
	return out->s >= 0;
}

/*
 * A kernel UDP socket can send without being connected: a system call that bypasses the interposer could send on it,
 * over this host's network. So each descriptor of an offloaded datagram socket is replaced by a placeholder.
 */
static void put_placeholder(int fd, struct descriptor d, void *offloaded)
{
	int placeholder, flags;

	if (d.number != ((const struct descriptor *)offloaded)->number)
		return;
	placeholder = decide_placeholder();
	flags = real()->fcntl(fd, F_GETFD);
	if (placeholder < 0)
		return; /* no descriptor is left, and the program needs them more */
	if (flags >= 0)
		real()->dup3(placeholder, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	real()->close(placeholder);
}

bool decide_publish(int fd, struct descriptor was, int s, uint8_t flags)
{
	struct descriptor d = { .kind = DESCRIPTOR_OFFLOADED, .flags = flags, .number = (uint32_t)s };

	if (note_push_error(was.number))
		d.flags |= DESCRIPTOR_PUSHED;
	if (!descriptor_become(fd, was, d)) {
		(void)XTS(xts_close(s));
		return false;
	}
	streams_follow(s);
	if (!flags)
		decide_mark_place(fd);
	atomic_fetch_add_explicit(&preload.offloaded, 1, memory_order_relaxed);
	run_count_offloaded();
	report_counters();
	epoll_descriptor_offloaded(fd, d);
	if (flags & DESCRIPTOR_DATAGRAM) {
		undecided_wake(fd);
		descriptor_each(DESCRIPTOR_OFFLOADED, put_placeholder, &d);
	}
	preload_log("descriptor %d: offloaded", fd);
	return true;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

bool decide_takes_address(int fd, const struct sockaddr *address, socklen_t length)
{
	if (xts_argument_address(address, length))
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

/* --- places: for programs that were started past the interposer --------------------------------------------------- */

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

static int new_place(void)
{
	int fd = real()->socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0)
		fd = real()->socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	if (fd >= 0)
		decide_mark_place(fd);
	return fd;
}

/* The placeholders are duplicates of one socket: they are never used, and a duplicate costs a sixth of a new socket.
 * The one that is kept must not be the program's last descriptor: accept() needs that itself. */
int decide_placeholder(void)
{
	static _Atomic int original = -1;
	int fd = original, kept, expected = -1;

	if (fd >= 0)
		return real()->fcntl(fd, F_DUPFD_CLOEXEC, 0);
	fd = new_place();
	kept = fd < 0 ? -1 : real()->fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (kept < 0)
		return fd;
	kept = descriptor_own(kept);
	if (!atomic_compare_exchange_strong(&original, &expected, kept)) {
		descriptor_disown(kept);
		real()->close(kept);
	}
	return fd;
}
