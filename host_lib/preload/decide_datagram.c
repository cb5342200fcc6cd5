/*
 * Datagram sockets: bind() as a receiver, connect() as a client, and the first datagram that is sent to an address.
 *
 * A bind() without a port does not make the socket a receiver: if no rule offloads it, it stays undecided, as a client
 * whose peer is not known yet. If it was not bound to an address either, it is not bound again on the device: it gets a
 * port there when it connects or sends.
 *
 * Once decided, a datagram socket stays where it is.
 */
#include "decide.h"

#include <string.h>

#include "core/arguments.h"
#include "fallback_notice.h"
#include "process_page.h"

/* An address whose form the kernel would accept. An AF_INET6 socket can also send to AF_INET addresses. */
static bool takes_peer(int fd, const struct sockaddr *address, socklen_t length)
{
	if (decide_takes_address(fd, address, length))
		return true;
	return length >= sizeof(struct sockaddr_in) && !xts_argument_address(address, length) &&
	       address->sa_family == AF_INET && decide_number_option(fd, SO_DOMAIN) == AF_INET6;
}

static bool is_wildcard(const union address *a)
{
	return a->any.sa_family == AF_INET ? a->v4.sin_addr.s_addr == htonl(INADDR_ANY) :
					     IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr);
}

/* True also if it is bound to an address alone, which is what connect() to AF_UNSPEC leaves of a bind() without a
 * port. */
static bool is_bound(int fd, union address *local)
{
	return decide_bound_to(fd, local) || !is_wildcard(local);
}

int decide_datagram_bind(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	struct xts_decision decision;
	union address local, wanted;

	if (!decide_takes_address(fd, address, length) || decide_bound_to(fd, &local))
		return real()->bind(fd, address, length);
	memset(&wanted, 0, sizeof wanted);
	memcpy(&wanted, address, length < sizeof wanted ? length : sizeof wanted);
	if (decide_make(fd, d, XTS_ROLE_UDP_RECEIVER, address, NULL, &decision))
		decide_bind_made(fd, &decision, address, length);
	if (decision.reason == XTS_REASON_RULE && !*port_of(&wanted))
		return real()->bind(fd, address, length);
	if (decision.reason || decision.error)
		return decide_bind_not_made(fd, &decision, address, length);
	if (!decide_publish(fd, d, decision.s, DESCRIPTOR_DATAGRAM)) {
		errno = EINVAL; /* another thread has bound it */
		return -1;
	}
	return 0;
}

/* Decides it as a client. 0: it is offloaded; DECIDE_KERNEL; or -1 and errno. */
static int decide_by_peer(int fd, struct descriptor d, enum xts_role role, const struct sockaddr *peer)
{
	struct xts_decision decision;
	union address local;
	bool bound = is_bound(fd, &local);

	if (decide_make(fd, d, role, bound ? &local.any : NULL, peer, &decision) && bound && !is_wildcard(&local)) {
		socklen_t length = local.any.sa_family == AF_INET ? sizeof local.v4 : sizeof local.v6;

		if (XTS(xts_bind(decision.s, &local.any, length)) < 0)
			decide_failed(&decision, XTS_STEP_BIND);
	}
	if (decision.s < 0)
		return decide_stay_by(fd, &decision) < 0 ? -1 : DECIDE_KERNEL;
	if (!decide_publish(fd, d, decision.s, DESCRIPTOR_DATAGRAM))
		/* another thread has decided it first */
		return descriptor_get(fd).kind == DESCRIPTOR_OFFLOADED ? 0 : DECIDE_KERNEL;
	return 0;
}

int decide_datagram_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	int r = 0, s;

	if (d.kind == DESCRIPTOR_UNDECIDED)
		r = takes_peer(fd, address, length) ? decide_by_peer(fd, d, XTS_ROLE_UDP_CONNECT, address) :
						      DECIDE_KERNEL;
	if (r)
		return r;
	s = descriptor_offloaded(fd);
	if (s < 0) {
		errno = EBADF;
		return -1;
	}
	return XTS(xts_connect(s, address, length));
}

int decide_datagram_send(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	INSIDE;
	struct sockaddr_in v4;

	if (argument_forgets_family(&v4, address, length) && decide_number_option(fd, SO_DOMAIN) == AF_INET) {
		address = (const struct sockaddr *)&v4;
		length = sizeof v4;
	}
	if (!takes_peer(fd, address, length))
		return 0;
	return decide_by_peer(fd, d, XTS_ROLE_UDP_SENDER, address) < 0 ? -1 : 0;
}
