/* Servers: bind() and listen(). */
#include "decide.h"

#include <string.h>

#include "process_page.h"
#include "rules_in_force.h"
#include "fallback_notice.h"

void decide_bind_made(int fd, struct xts_decision *decision, const struct sockaddr *address, socklen_t length)
{
	if (XTS(xts_bind(decision->s, address, length)) == 0)
		return;
	notice_refusal(fd, -1);
	decide_failed(decision, XTS_STEP_BIND);
}

int decide_bind_not_made(int fd, const struct xts_decision *decision, const struct sockaddr *address, socklen_t length)
{
	int error = decision->error;

	if (decision->reason == XTS_REASON_ADDRESS && (preload.strict || real()->bind(fd, address, length) < 0))
		error = EADDRNOTAVAIL; /* the address is not one of this host either */
	if (error) {
		errno = error;
		return -1;
	}
	if (decision->reason == XTS_REASON_ADDRESS)
		return decide_stay_by(fd, decision);
	return decide_stay_by(fd, decision) < 0 ? -1 : real()->bind(fd, address, length);
}

/* Binds the kernel socket too, to the port of the XTS socket. Returns DESCRIPTOR_ALSO_LOCAL, or 0. */
static uint8_t bind_kernel_too(int fd, int s, unsigned rule_line)
{
	union address bound = { 0 };
	socklen_t length = sizeof bound;

	if (XTS(xts_getsockname(s, &bound.any, &length)) < 0)
		return 0;
	report_decision(fd, rule_line, &bound.any, NULL);
	if (!xts_decide_also_local(rules_now(), &bound.any))
		return 0;
	if (real()->bind(fd, &bound.any, length) == 0)
		return DESCRIPTOR_ALSO_LOCAL;
	preload_log("descriptor %d: port %u is taken on this host: connections from the host itself are not served: %s",
		    fd, ntohs(*port_of(&bound)), strerror(errno));
	return 0;
}

int decide_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	struct xts_decision decision;
	union address local;

	if (!decide_takes_address(fd, address, length) || decide_bound_to(fd, &local))
		return real()->bind(fd, address, length);
	if (decide_make(fd, d, XTS_ROLE_TCP_SERVER, address, NULL, &decision))
		decide_bind_made(fd, &decision, address, length);
	if (decision.reason == XTS_REASON_RULE)
		return real()->bind(fd, address, length); /* it is decided at listen() or, as a client, at connect() */
	if (decision.reason || decision.error)
		return decide_bind_not_made(fd, &decision, address, length);
	if (!decide_publish(fd, d, decision.s, DESCRIPTOR_BOUND | bind_kernel_too(fd, decision.s, decision.line))) {
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
		/* from now on, epoll sets with this descriptor watch the kernel socket too */
		epoll_descriptor_offloaded(fd, listens);
	return 0;
}

/* listen() without bind(): on all addresses, at a port that the proxy chooses. */
static int listen_unbound(int fd, struct descriptor d, int backlog)
{
	union address any = { 0 };
	struct xts_decision decision;

	any.any.sa_family = (sa_family_t)decide_number_option(fd, SO_DOMAIN);
	if (decide_make(fd, d, XTS_ROLE_TCP_SERVER, NULL, NULL, &decision))
		decide_bind_made(fd, &decision, &any.any, any.any.sa_family == AF_INET ? sizeof any.v4 : sizeof any.v6);
	if (decision.error) {
		errno = decision.error;
		return -1;
	}
	if (decision.reason)
		return decide_stay_by(fd, &decision) < 0 ? -1 : real()->listen(fd, backlog);
	if (!decide_publish(fd, d, decision.s, bind_kernel_too(fd, decision.s, decision.line)))
		return -1;
	return listen_offloaded(fd, descriptor_get(fd), backlog);
}

int decide_listen(int fd, struct descriptor d, int backlog)
{
	union address local;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return listen_offloaded(fd, d, backlog);
	if (!decide_bound_to(fd, &local))
		return listen_unbound(fd, d, backlog);
	return decide_stay(fd, XTS_REASON_RULE) < 0 ? -1 : real()->listen(fd, backlog); /* as for bind() */
}
