/*
 * The decision about a socket: at bind() as a server, at connect() as a client, at listen() where nothing was bound. The
 * rules are asked, an XTS socket is made and given the options so far; whatever prevents that is the reason for which the
 * socket stays with the kernel, or, in a strict process, the call's error.
 *
 * What was offloaded at bind() and is then connected to where a rule keeps clients with the kernel goes back:
 * the kernel's socket has been kept unused, with its options, for that.
 */
#include "preload.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "note.h"
#include "report.h"

#define BIND_TRIES 100

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static const char *const reason_names[] = {
	[XTS_REASON_NONE] = "NONE",
#define REASON_NAME(number, name, text) [number] = #name,
	XTS_REASONS(REASON_NAME)
#undef REASON_NAME
};

/* What a strict process is told, or 0: a rule, or what never could be ours, may stay. */
static int strict_error(enum xts_reason reason)
{
	switch (reason) {
	case XTS_REASON_NO_ENDPOINT:
	case XTS_REASON_PROXY_DOWN:
		return ENETDOWN;
	case XTS_REASON_LIMIT:
		return ENOBUFS;
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
	int error = preload.strict ? strict_error(reason) : 0;
	struct descriptor was = descriptor_get(fd);

	if (error) {
		preload_log("descriptor %d: refused (%s): %s", fd, reason_names[reason], strerror(error));
		return error;
	}
	atomic_fetch_add_explicit(&preload.stayed[reason], 1, memory_order_relaxed);
	if (was.kind == DESCRIPTOR_UNDECIDED || was.kind == DESCRIPTOR_OFFLOADED)
		descriptor_become(fd, was, (struct descriptor){.kind = DESCRIPTOR_STAYED, .reason = (uint16_t)reason});
	else
		descriptor_set(fd, (struct descriptor){.kind = DESCRIPTOR_STAYED, .reason = (uint16_t)reason});
	report_counters();
	preload_log("descriptor %d: stays with the kernel (%s)", fd, reason_names[reason]);
	return 0;
}

static int number_option(int fd, int option)
{
	int value = -1;
	socklen_t length = sizeof value;

	return real()->getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

static bool is_tcp(int fd)
{
	int domain = number_option(fd, SO_DOMAIN);

	return (domain == AF_INET || domain == AF_INET6) && number_option(fd, SO_PROTOCOL) == IPPROTO_TCP;
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

/* --- making the XTS socket ------------------------------------------------------------------------------------------- */

/* One channel a process: the first endpoint a rule names is the process's. */
static bool endpoint_agrees(const char *endpoint)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const char *chosen;
	bool agrees = true;

	pthread_mutex_lock(&lock);
	if (endpoint && !chosen) {
		struct xts_options options = {.size = sizeof options, .endpoint = endpoint};

		agrees = XTS(xts_configure(&options)) == 0;
		if (agrees)
			chosen = endpoint;
	} else if (endpoint) {
		agrees = strcmp(endpoint, chosen) == 0;
	}
	pthread_mutex_unlock(&lock);
	return agrees;
}

static enum xts_reason reason_of_failure(int error)
{
	struct xts_info info = {.size = sizeof info};

	if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
		return XTS_REASON_LIMIT;
	if (error == EACCES || error == EPERM)
		return XTS_REASON_REFUSED;
	if (XTS(xts_get_info(&info)) < 0 && (info.link_error == ENOENT || info.link_error == ECONNREFUSED))
		return XTS_REASON_NO_ENDPOINT;
	if (info.link_error == EPROTONOSUPPORT || info.link_error == EOPNOTSUPP)
		return XTS_REASON_REFUSED;
	return XTS_REASON_PROXY_DOWN;
}

/* An XTS socket with fd's family, mode and options, or the reason why there is none. */
static enum xts_reason make_socket(int fd, struct descriptor d, const char *endpoint, int *out)
{
	int status = real()->fcntl(fd, F_GETFL), domain = number_option(fd, SO_DOMAIN), one = 0, s;
	socklen_t length = sizeof one;

	if (!endpoint_agrees(endpoint))
		return XTS_REASON_NO_ENDPOINT;
	if (real()->getsockopt(fd, IPPROTO_TCP, 30 /* TCP_FASTOPEN_CONNECT */, &one, &length) == 0 && one)
		return XTS_REASON_FASTOPEN;
	s = XTS(xts_socket(domain, SOCK_STREAM | (status & O_NONBLOCK ? SOCK_NONBLOCK : 0), IPPROTO_TCP));
	if (s < 0)
		return reason_of_failure(errno);
	if (note_replay(d.number, s) < 0) {
		enum xts_reason reason = errno == ENETDOWN ? XTS_REASON_PROXY_DOWN : XTS_REASON_OPTION;

		(void)XTS(xts_close(s));
		return reason;
	}
	*out = s;
	return XTS_REASON_NONE;
}

/* fd stands for s from now on. false: another thread was faster. */
static bool publish(int fd, struct descriptor was, int s, uint8_t flags)
{
	struct descriptor d = {.kind = DESCRIPTOR_OFFLOADED, .flags = flags, .number = (uint32_t)s};

	if (!descriptor_become(fd, was, d)) {
		(void)XTS(xts_close(s));
		return false;
	}
	atomic_fetch_add_explicit(&preload.offloaded, 1, memory_order_relaxed);
	report_counters();
	epoll_descriptor_offloaded(fd, d);
	preload_log("descriptor %d: offloaded", fd);
	return true;
}

/* --- addresses --------------------------------------------------------------------------------------------------------- */

/* Is this an address of the socket's family that the kernel would look at further? Else it shall say what is wrong. */
static bool is_address_of(int fd, const struct sockaddr *address, socklen_t length)
{
	if (!address || length > sizeof(struct sockaddr_storage))
		return false;
	if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET)
		return number_option(fd, SO_DOMAIN) == AF_INET;
	return length >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6 &&
	       number_option(fd, SO_DOMAIN) == AF_INET6;
}

static bool is_wildcard(const struct sockaddr *address)
{
	union address a;

	memcpy(&a, address, address->sa_family == AF_INET ? sizeof a.v4 : sizeof a.v6);
	if (address->sa_family == AF_INET)
		return a.v4.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&a.v6.sin6_addr);
}

static uint16_t *port_of(union address *a)
{
	return a->any.sa_family == AF_INET ? &a->v4.sin_port : &a->v6.sin6_port;
}

/* The kernel socket's own address; false: it has no port yet. */
static bool bound_to(int fd, union address *local)
{
	socklen_t length = sizeof *local;

	memset(local, 0, sizeof *local);
	return real()->getsockname(fd, &local->any, &length) == 0 && *port_of(local) != 0;
}

/* --- servers --------------------------------------------------------------------------------------------------------------- */

/* A listener on the wildcard address is for this host's own loopback too, unless the rules offload that as well. */
static bool wants_local(const union address *bound)
{
	union address loopback = *bound;

	if (loopback.any.sa_family == AF_INET)
		loopback.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		loopback.v6.sin6_addr = in6addr_loopback;
	return !xts_rules_ask(preload.rules, XTS_ROLE_TCP_SERVER, &loopback.any, NULL).offload;
}

/* Binds the kernel's socket beside the XTS one, to the port that one has got. */
static bool bind_beside(int fd, int s, unsigned rule_line)
{
	union address bound = {0};
	socklen_t length = sizeof bound;

	if (XTS(xts_getsockname(s, &bound.any, &length)) < 0)
		return false;
	report_decision(fd, rule_line, &bound.any, NULL);
	if (!is_wildcard(&bound.any) || !wants_local(&bound))
		return false;
	if (real()->bind(fd, &bound.any, length) == 0)
		return true;
	preload_log("descriptor %d: port %u is taken on this host: connections from the host itself are not served: %s", fd,
		    ntohs(*port_of(&bound)), strerror(errno));
	return false;
}

static int stay_and_bind(int fd, enum xts_reason reason, const struct sockaddr *address, socklen_t length)
{
	int error = decide_stay(fd, reason);

	if (error) {
		errno = error;
		return -1;
	}
	return real()->bind(fd, address, length);
}

int decide_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	struct xts_verdict verdict;
	enum xts_reason reason;
	union address local;
	int s = -1, error;

	if (!is_address_of(fd, address, length) || bound_to(fd, &local))
		return real()->bind(fd, address, length);
	verdict = xts_rules_ask(preload.rules, XTS_ROLE_TCP_SERVER, address, NULL);
	report_decision(fd, verdict.line, address, NULL);
	if (!verdict.offload)
		return real()->bind(fd, address, length); /* decided at listen() or, as a client, at connect() */
	reason = make_socket(fd, d, verdict.endpoint, &s);
	if (reason)
		return stay_and_bind(fd, reason, address, length);
	if (XTS(xts_bind(s, address, length)) < 0) {
		error = errno;
		(void)XTS(xts_close(s));
		if (error == ENETDOWN || error == ECONNRESET)
			return stay_and_bind(fd, XTS_REASON_PROXY_DOWN, address, length);
		if (error == EADDRNOTAVAIL && !preload.strict && real()->bind(fd, address, length) == 0)
			return decide_stay(fd, XTS_REASON_ADDRESS);
		errno = error;
		return -1;
	}
	if (!publish(fd, d, s, DESCRIPTOR_BOUND | (bind_beside(fd, s, verdict.line) ? DESCRIPTOR_ALSO_LOCAL : 0))) {
		errno = EINVAL; /* another thread has bound it */
		return -1;
	}
	return 0;
}

static int listen_offloaded(int fd, struct descriptor d, int backlog)
{
	struct descriptor listens = d;
	int s = (int)d.number;

	if (!(d.flags & DESCRIPTOR_LISTENS) && XTS(xts_share_listener(s)) < 0)
		return -1;
	if (XTS(xts_listen(s, backlog)) < 0)
		return -1;
	if (d.flags & DESCRIPTOR_ALSO_LOCAL && real()->listen(fd, backlog) < 0)
		listens.flags &= (uint8_t)~DESCRIPTOR_ALSO_LOCAL;
	listens.flags = (uint8_t)((listens.flags | DESCRIPTOR_LISTENS) & ~DESCRIPTOR_BOUND);
	if (listens.flags != d.flags && descriptor_become(fd, d, listens))
		epoll_descriptor_offloaded(fd, listens); /* sets that have it watch the kernel's half too from now on */
	return 0;
}

/* Without bind(): at a port of the proxy's choice on all addresses. */
static int listen_unbound(int fd, struct descriptor d, int backlog)
{
	union address any = {0};
	struct xts_verdict verdict;
	enum xts_reason reason;
	int s = -1, error;

	any.any.sa_family = (sa_family_t)number_option(fd, SO_DOMAIN);
	verdict = xts_rules_ask(preload.rules, XTS_ROLE_TCP_SERVER, &any.any, NULL);
	report_decision(fd, verdict.line, NULL, NULL);
	reason = verdict.offload ? make_socket(fd, d, verdict.endpoint, &s) : XTS_REASON_RULE;
	if (!reason) {
		socklen_t length = any.any.sa_family == AF_INET ? sizeof any.v4 : sizeof any.v6;

		if (XTS(xts_bind(s, &any.any, length)) == 0) {
			if (!publish(fd, d, s, bind_beside(fd, s, verdict.line) ? DESCRIPTOR_ALSO_LOCAL : 0))
				return -1;
			return listen_offloaded(fd, descriptor_get(fd), backlog);
		}
		reason = XTS_REASON_PROXY_DOWN;
		(void)XTS(xts_close(s));
	}
	error = decide_stay(fd, reason);
	if (error) {
		errno = error;
		return -1;
	}
	return real()->listen(fd, backlog);
}

int decide_listen(int fd, struct descriptor d, int backlog)
{
	union address local;
	int error;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return listen_offloaded(fd, d, backlog);
	if (!bound_to(fd, &local))
		return listen_unbound(fd, d, backlog);
	error = decide_stay(fd, XTS_REASON_RULE); /* as bind() was told */
	if (error) {
		errno = error;
		return -1;
	}
	return real()->listen(fd, backlog);
}

/* --- clients ----------------------------------------------------------------------------------------------------------------- */

static int stay_and_connect(int fd, enum xts_reason reason, const struct sockaddr *address, socklen_t length)
{
	int error = decide_stay(fd, reason);

	if (error) {
		errno = error;
		return -1;
	}
	return real()->connect(fd, address, length);
}

/* Where the proxy is on this very host, the address is free when it has closed its socket. */
static void bind_when_free(int fd, const union address *local, socklen_t length)
{
	const struct timespec moment = {.tv_nsec = 1000000};

	for (int i = 0; i < BIND_TRIES && real()->bind(fd, &local->any, length) < 0 && errno == EADDRINUSE; i++)
		nanosleep(&moment, NULL);
}

/* Bound and offloaded, but not connected: back to the kernel, at the same address. false: it is too late for that. */
static bool give_back(int fd, struct descriptor d)
{
	struct pollfd state = {.fd = (int)d.number, .events = POLLOUT};
	union address local = {0};
	socklen_t length = sizeof local;

	if (d.flags & DESCRIPTOR_LISTENS || !descriptor_is_last(d))
		return false;
	if (XTS(xts_poll(&state, 1, 0)) < 0 || !(state.revents & POLLHUP))
		return false; /* connecting, or connected */
	if (XTS(xts_getsockname((int)d.number, &local.any, &length)) < 0)
		return false;
	epoll_descriptor_given_back(fd, d);
	decide_stay(fd, XTS_REASON_RULE);
	descriptor_release(d);
	if (d.flags & DESCRIPTOR_BOUND && !(d.flags & DESCRIPTOR_ALSO_LOCAL))
		bind_when_free(fd, &local, length);
	return true;
}

static int connect_offloaded(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	union address local = {0};
	socklen_t local_length = sizeof local;
	struct descriptor connected = d;

	if (is_address_of(fd, address, length)) {
		bool bound = d.flags & DESCRIPTOR_BOUND &&
			     XTS(xts_getsockname((int)d.number, &local.any, &local_length)) == 0;

		if (!xts_rules_ask(preload.rules, XTS_ROLE_TCP_CLIENT, bound ? &local.any : NULL, address).offload &&
		    give_back(fd, d))
			return real()->connect(fd, address, length);
	}
	if (d.flags & DESCRIPTOR_BOUND && address && address->sa_family != AF_UNSPEC) {
		connected.flags &= (uint8_t)~DESCRIPTOR_BOUND;
		descriptor_become(fd, d, connected);
		report_decision(fd, 0, NULL, address);
	}
	return XTS(xts_connect((int)d.number, address, length));
}

int decide_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	struct xts_verdict verdict;
	enum xts_reason reason;
	union address local;
	bool bound;
	int s = -1;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return connect_offloaded(fd, d, address, length);
	if (!is_address_of(fd, address, length))
		return real()->connect(fd, address, length);
	bound = bound_to(fd, &local);
	verdict = xts_rules_ask(preload.rules, XTS_ROLE_TCP_CLIENT, bound ? &local.any : NULL, address);
	report_decision(fd, verdict.line, bound ? &local.any : NULL, address);
	reason = verdict.offload ? make_socket(fd, d, verdict.endpoint, &s) : XTS_REASON_RULE;
	if (!reason && bound) {
		socklen_t local_length = local.any.sa_family == AF_INET ? sizeof local.v4 : sizeof local.v6;

		/* It was bound on this host. The kernel's socket keeps that, unused. */
		if (XTS(xts_bind(s, &local.any, local_length)) < 0) {
			reason = errno == ENETDOWN ? XTS_REASON_PROXY_DOWN : XTS_REASON_ADDRESS;
			(void)XTS(xts_close(s));
		}
	}
	if (reason)
		return stay_and_connect(fd, reason, address, length);
	if (!publish(fd, d, s, 0))
		return decide_connect(fd, descriptor_get(fd), address, length);
	return XTS(xts_connect(s, address, length));
}

/* --- placeholders ------------------------------------------------------------------------------------------------------------ */

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
		fd = descriptor_own(fd);
		if (!atomic_compare_exchange_strong(&original, &expected, fd)) {
			descriptor_disown(fd);
			real()->close(fd);
			fd = expected;
		}
	}
	return real()->fcntl(fd, F_DUPFD_CLOEXEC, 0);
}
