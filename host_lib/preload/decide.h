/* What decide_server.c, decide_client.c and decide_datagram.c share. */
#ifndef XTS_PRELOAD_DECIDE_H
#define XTS_PRELOAD_DECIDE_H

#include <netinet/in.h>

#include "preload.h"
#include "decision/decision.h"

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static inline uint16_t *port_of(union address *a)
{
	return a->any.sa_family == AF_INET ? &a->v4.sin_port : &a->v6.sin6_port;
}

/* Does this address have the socket's family, and would the kernel accept its form? Otherwise the kernel reports the
 * error. */
bool decide_takes_address(int fd, const struct sockaddr *address, socklen_t length);
/* The kernel socket's own address; false: it has no port yet. */
bool decide_bound_to(int fd, union address *local);
/* An option of the kernel socket's at SOL_SOCKET, or -1. */
int decide_number_option(int fd, int option);
/* Decides (decision/decision.h). True: there is an XTS socket, with fd's family, mode and options. */
bool decide_make(int fd, struct descriptor d, enum xts_role role, const struct sockaddr *local,
		 const struct sockaddr *peer, struct xts_decision *out);
/* This step has failed with the decision's XTS socket, with errno. */
void decide_failed(struct xts_decision *decision, enum xts_decision_step step);
/* decide_stay() with the decision's reason. */
int decide_stay_by(int fd, const struct xts_decision *decision);
/* fd stands for s from now on. False: another thread has decided it first, and s is closed. */
bool decide_publish(int fd, struct descriptor was, int s, uint8_t flags);
/* Binds the decision's XTS socket; if that fails, the decision has failed. If the proxy refuses, a notice is
 * written. */
void decide_bind_made(int fd, struct xts_decision *decision, const struct sockaddr *address, socklen_t length);
/* The result of bind() if no XTS socket was made: the socket stays with the kernel, and is bound there; or the
 * error. */
int decide_bind_not_made(int fd, const struct xts_decision *decision, const struct sockaddr *address, socklen_t length);

/* Gives a socket that was offloaded at bind() and is not connected back to the kernel, at the same address. False: too
 * late. */
bool decide_give_back(int fd, struct descriptor d, enum xts_reason reason);

#endif
