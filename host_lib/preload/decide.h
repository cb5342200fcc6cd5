/* What the decisions about servers (decide_server.c) and clients (decide_client.c) share. */
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

/* Is this an address of the socket's family that the kernel would accept so far? Otherwise the
 * kernel reports the error. */
bool decide_takes_address(int fd, const struct sockaddr *address, socklen_t length);
/* The kernel socket's own address; false: it has no port yet. */
bool decide_bound_to(int fd, union address *local);
/* An option of the kernel socket's at SOL_SOCKET, or -1. */
int decide_number_option(int fd, int option);
/* Decides (decision/decision.h). true: with an XTS socket that has fd's family, mode and options. */
bool decide_make(int fd, struct descriptor d, enum xts_role role, const struct sockaddr *local,
		 const struct sockaddr *peer, struct xts_decision *out);
/* This has failed with the decision's XTS socket, for errno. */
void decide_failed(struct xts_decision *decision, enum xts_decision_step step);
/* decide_stay() for the decision's reason. */
int decide_stay_by(int fd, const struct xts_decision *decision);
/* fd stands for s from now on. false: another thread was faster, and s is closed. */
bool decide_publish(int fd, struct descriptor was, int s, uint8_t flags);
/* Binds the decision's XTS socket, or it has failed. A refusal of the proxy is reported by a notice. */
void decide_bind_made(int fd, struct xts_decision *decision, const struct sockaddr *address, socklen_t length);
/* What bind() returns where the decision has a reason, or an error: it stays with the kernel, and is bound there. */
int decide_bind_not_made(int fd, const struct xts_decision *decision, const struct sockaddr *address, socklen_t length);

/* What was offloaded at bind() and is not connected goes back to the kernel, at the same address. false: it is too
 * late for that. */
bool decide_give_back(int fd, struct descriptor d, enum xts_reason reason);

#endif
