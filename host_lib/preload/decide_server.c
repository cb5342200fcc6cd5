/* Servers: bind() and listen(). */
#include "decide.h"

#include <string.h>

#include "report.h"
#include "fallback_notice.h"

static bool is_wildcard(const struct sockaddr *address)
{
	union address a;

	memcpy(&a, address, address->sa_family == AF_INET ? sizeof a.v4 : sizeof a.v6);
	if (address->sa_family == AF_INET)
		return a.v4.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&a.v6.sin6_addr);
}

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

/* Binds the kernel's socket too, to the port that the XTS socket has got. */
static bool bind_kernel_too(int fd, int s, unsigned rule_line)
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

int decide_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	struct xts_verdict verdict;
	enum xts_reason reason;
	union address local;
	int s = -1, error;

	if (!decide_takes_address(fd, address, length) || decide_bound_to(fd, &local))
		return real()->bind(fd, address, length);
	verdict = xts_rules_ask(preload.rules, XTS_ROLE_TCP_SERVER, address, NULL);
	report_decision(fd, verdict.line, address, NULL);
	if (!verdict.offload)
		return real()->bind(fd, address, length); /* decided at listen() or, as a client, at connect() */
	reason = decide_make(fd, d, verdict.endpoint, &s);
	if (reason)
		return decide_stay(fd, reason) < 0 ? -1 : real()->bind(fd, address, length);
	if (XTS(xts_bind(s, address, length)) < 0) {
		error = errno;
		notice_refusal(fd, -1);
		(void)XTS(xts_close(s));
		if (error == ENETDOWN || error == ECONNRESET)
			return decide_stay(fd, XTS_REASON_PROXY_DOWN) < 0 ? -1 : real()->bind(fd, address, length);
		if (error == EADDRNOTAVAIL && !preload.strict && real()->bind(fd, address, length) == 0)
			return decide_stay(fd, XTS_REASON_ADDRESS);
		errno = error;
		return -1;
	}
	if (!decide_publish(fd, d, s, DESCRIPTOR_BOUND | (bind_kernel_too(fd, s, verdict.line) ? DESCRIPTOR_ALSO_LOCAL : 0))) {
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
	if (d.flags & DESCRIPTOR_PUSHED && d.flags & DESCRIPTOR_ALSO_LOCAL)
		preload_log("descriptor %d: a protocol is pushed: connections from the host itself are not served", fd);
	if (d.flags & DESCRIPTOR_ALSO_LOCAL && (d.flags & DESCRIPTOR_PUSHED || real()->listen(fd, backlog) < 0))
		listens.flags &= (uint8_t)~DESCRIPTOR_ALSO_LOCAL;
	listens.flags = (uint8_t)((listens.flags | DESCRIPTOR_LISTENS) & ~DESCRIPTOR_BOUND);
	if (!(listens.flags & DESCRIPTOR_ALSO_LOCAL))
		decide_mark_place(fd);
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
	int s = -1;

	any.any.sa_family = (sa_family_t)decide_number_option(fd, SO_DOMAIN);
	verdict = xts_rules_ask(preload.rules, XTS_ROLE_TCP_SERVER, &any.any, NULL);
	report_decision(fd, verdict.line, NULL, NULL);
	reason = verdict.offload ? decide_make(fd, d, verdict.endpoint, &s) : XTS_REASON_RULE;
	if (!reason) {
		socklen_t length = any.any.sa_family == AF_INET ? sizeof any.v4 : sizeof any.v6;

		if (XTS(xts_bind(s, &any.any, length)) == 0) {
			if (!decide_publish(fd, d, s, bind_kernel_too(fd, s, verdict.line) ? DESCRIPTOR_ALSO_LOCAL : 0))
				return -1;
			return listen_offloaded(fd, descriptor_get(fd), backlog);
		}
		reason = XTS_REASON_PROXY_DOWN;
		(void)XTS(xts_close(s));
	}
	return decide_stay(fd, reason) < 0 ? -1 : real()->listen(fd, backlog);
}

int decide_listen(int fd, struct descriptor d, int backlog)
{
	union address local;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return listen_offloaded(fd, d, backlog);
	if (!decide_bound_to(fd, &local))
		return listen_unbound(fd, d, backlog);
	return decide_stay(fd, XTS_REASON_RULE) < 0 ? -1 : real()->listen(fd, backlog); /* as bind() was told */
}
