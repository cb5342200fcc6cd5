/* Kernel or offloaded: see decision.h. */
#include "decision/decision.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* --- reasons ------------------------------------------------------------------------------------------------------ */

int xts_reason_error(unsigned reason)
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

bool xts_reason_is_noticed(unsigned reason)
{
	return reason == XTS_REASON_NO_ENDPOINT || reason == XTS_REASON_PROXY_DOWN || reason == XTS_REASON_LIMIT ||
	       reason == XTS_REASON_REFUSED || reason == XTS_REASON_NO_QUEUE;
}

static bool is_channel_lost(int error)
{
	return error == ENETDOWN || error == ECONNRESET;
}

/* Why no XTS socket could be made on the stack that the calling thread uses now. */
static enum xts_reason reason_of_no_socket(int error, struct xts_decision *out)
{
	struct xts_info info = { .size = sizeof info };
	const char *why = xts_reason_of(error, false);
	bool attached;

	if (why)
		snprintf(out->explanation, sizeof out->explanation, "%s", why);
	attached = xts_get_info(&info) == 0;
	if (!attached)
		memcpy(out->explanation, info.attach_error, sizeof out->explanation);
	if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
		return XTS_REASON_LIMIT;
	if (error == EUSERS)
		return XTS_REASON_NO_QUEUE;
	if (error == EPROTONOSUPPORT && attached)
		return XTS_REASON_PROTOCOL; /* the proxy has no support for datagram sockets */
	if (error == EACCES || error == EPERM)
		return XTS_REASON_REFUSED;
	if (!attached && (info.link_error == ENOENT || info.link_error == ECONNREFUSED))
		return XTS_REASON_NO_ENDPOINT;
	if (info.link_error == EPROTONOSUPPORT || info.link_error == EOPNOTSUPP)
		return XTS_REASON_REFUSED;
	return XTS_REASON_PROXY_DOWN;
}

static bool is_client(enum xts_role role)
{
	return role == XTS_ROLE_TCP_CLIENT || role == XTS_ROLE_UDP_CONNECT || role == XTS_ROLE_UDP_SENDER;
}

void xts_decision_failed(struct xts_decision *decision, enum xts_decision_step step, int error)
{
	decision->s = -1;
	if (is_channel_lost(error))
		decision->reason = XTS_REASON_PROXY_DOWN;
	else if (step == XTS_STEP_OPTIONS)
		decision->reason = XTS_REASON_OPTION;
	else if (is_client(decision->role) || error == EADDRNOTAVAIL)
		decision->reason = XTS_REASON_ADDRESS; /* it may be an address of this host */
	else
		decision->error = error;
}

/* --- the kernel's socket ------------------------------------------------------------------------------------------ */

/* Has the program bound it to the loopback device (SO_BINDTODEVICE)? That is a device of this host, so the socket stays
 * with the kernel. */
static bool is_at_loopback(int fd)
{
	char name[IFNAMSIZ] = "";
	socklen_t length = sizeof name;

	if (kernel_calls.getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) < 0)
		return false;
	return length && !strcmp(name, "lo");
}

static bool is_fast_open(int fd)
{
	int one = 0;
	socklen_t length = sizeof one;

	return kernel_calls.getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, &length) == 0 && one;
}

/* --- deciding ----------------------------------------------------------------------------------------------------- */

/* Makes a socket at the endpoint that a rule names, or at the process's own. 0 or the reason. */
static enum xts_reason make(const struct xts_undecided *socket, struct xts_decision *out)
{
	int stack, before = XTS_STACK_OF_SETTING;
	enum xts_reason reason = XTS_REASON_NONE;

	if (out->endpoint) {
		stack = xts_stack_at(out->endpoint);
		before = stack == -1 ? -1 : xts_stack_use(stack);
		if (before == -1)
			return XTS_REASON_LIMIT;
	}
	out->s = xts_socket(socket->family, socket->type, 0);
	if (out->s < 0)
		reason = reason_of_no_socket(errno, out);
	if (out->endpoint)
		xts_stack_use(before);
	return reason;
}

int xts_decide(const struct xts_undecided *socket, enum xts_role role, const struct sockaddr *local,
	       const struct sockaddr *peer, struct xts_decision *out)
{
	const union address wildcard = { .any.sa_family = (sa_family_t)socket->family };
	struct xts_verdict verdict;

	if (!local && role == XTS_ROLE_TCP_SERVER)
		local = &wildcard.any;
	verdict = xts_rules_ask(socket->rules, role, local, peer);
	*out = (struct xts_decision){ .role = role, .line = verdict.line, .endpoint = verdict.endpoint, .s = -1 };
	if (!verdict.offload || is_at_loopback(socket->fd))
		out->reason = XTS_REASON_RULE;
	else if ((role == XTS_ROLE_TCP_CLIENT || role == XTS_ROLE_TCP_SERVER) && is_fast_open(socket->fd))
		out->reason = XTS_REASON_FASTOPEN;
	else
		out->reason = make(socket, out);
	return 0;
}

bool xts_decide_also_local(const struct xts_rule_group *rules, const struct sockaddr *bound)
{
	union address loopback;

	memset(&loopback, 0, sizeof loopback);
	if (bound->sa_family == AF_INET) {
		memcpy(&loopback, bound, sizeof loopback.v4);
		if (loopback.v4.sin_addr.s_addr != htonl(INADDR_ANY))
			return false;
		loopback.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		memcpy(&loopback, bound, sizeof loopback.v6);
		if (!IN6_IS_ADDR_UNSPECIFIED(&loopback.v6.sin6_addr))
			return false;
		loopback.v6.sin6_addr = in6addr_loopback;
	}
	return !xts_rules_ask(rules, XTS_ROLE_TCP_SERVER, &loopback.any, NULL).offload;
}
