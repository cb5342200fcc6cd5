/*
 * Clients: connect(). A socket may have been offloaded at bind(), and then connect to an address for which a rule
 * leaves clients to the kernel. Such a socket goes back to the kernel: its kernel socket was kept unused, with its
 * options, for that.
 */
#include "decide.h"

#include <time.h>

#include "by_instruction.h"
#include "core/arguments.h"
#include "process_page.h"
#include "rules_in_force.h"

#define BIND_TRIES 100 /* a millisecond each */

/* If the proxy is on this host, the address is free only after the proxy has closed its socket. */
static void bind_when_free(int fd, const union address *local, socklen_t length)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	for (int i = 0; i < BIND_TRIES && real()->bind(fd, &local->any, length) < 0 && errno == EADDRINUSE; i++)
		nanosleep(&moment, NULL);
}

bool decide_give_back(int fd, struct descriptor d, enum xts_reason reason)
{
	union address local = { 0 };
	socklen_t length = sizeof local;

	if (d.flags & DESCRIPTOR_LISTENS || !descriptor_is_last(d))
		return false;
	if (XTS(xts_is_unconnected((int)d.number)) != 1)
		return false;
	if (XTS(xts_getsockname((int)d.number, &local.any, &length)) < 0)
		return false;
	epoll_descriptor_given_back(fd, d);
	decide_unmark_place(fd, (int)d.number);
	decide_stay(fd, reason);
	descriptor_release(d);
	if (d.flags & DESCRIPTOR_BOUND && !(d.flags & DESCRIPTOR_ALSO_LOCAL))
		bind_when_free(fd, &local, length);
	return true;
}

static int connect_offloaded(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	union address local = { 0 };
	socklen_t local_length = sizeof local;
	struct descriptor connected = d;
	int r;

	if (decide_takes_address(fd, address, length)) {
		bool bound = d.flags & DESCRIPTOR_BOUND &&
			     XTS(xts_getsockname((int)d.number, &local.any, &local_length)) == 0;

		bool stays = xts_rules_ask(rules_now(), XTS_ROLE_TCP_CLIENT, bound ? &local.any : NULL, address).offload;

		if (!stays && bound && d.flags & DESCRIPTOR_PUSHED)
			return push_refuse(fd, XTS_REASON_RULE);
		if (!stays && decide_give_back(fd, d, XTS_REASON_RULE))
			return DECIDE_KERNEL;
	}
	if (d.flags & DESCRIPTOR_BOUND && length >= sizeof address->sa_family &&
	    !xts_argument_address(address, length) && address->sa_family != AF_UNSPEC) {
		connected.flags &= (uint8_t)~DESCRIPTOR_BOUND;
		descriptor_become(fd, d, connected);
		decide_mark_place(fd);
		report_decision(fd, 0, NULL, address);
	}
	r = XTS(xts_connect((int)d.number, address, length));
	instruction_connects(fd, d);
	return r;
}

int decide_connect(int fd, struct descriptor d, const struct sockaddr *address, socklen_t length)
{
	struct xts_decision decision;
	union address local;
	bool bound;

	if (d.kind == DESCRIPTOR_OFFLOADED)
		return connect_offloaded(fd, d, address, length);
	if (!decide_takes_address(fd, address, length))
		return DECIDE_KERNEL;
	bound = decide_bound_to(fd, &local);
	if (decide_make(fd, d, XTS_ROLE_TCP_CLIENT, bound ? &local.any : NULL, address, &decision) && bound) {
		socklen_t local_length = local.any.sa_family == AF_INET ? sizeof local.v4 : sizeof local.v6;

		/* The socket was bound on this host. The kernel socket keeps the address, unused. */
		if (XTS(xts_bind(decision.s, &local.any, local_length)) < 0)
			decide_failed(&decision, XTS_STEP_BIND);
	}
	if (decision.s < 0)
		return decide_stay_by(fd, &decision) < 0 ? -1 : DECIDE_KERNEL;
	if (!decide_publish(fd, d, decision.s, 0))
		return decide_connect(fd, descriptor_get(fd), address, length);
	return XTS(xts_connect(decision.s, address, length));
}
