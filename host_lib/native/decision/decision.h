/*
 * Kernel or offloaded: the decision about a TCP or UDP socket, for the interposer (libxts-preload) and for
 * xts_socket.install().
 *
 * Theory of operation
 *
 * The program has a kernel socket. It is *undecided* until the call that needs its port:
 *
 *     bind()      as a server. What the rules do not offload stays undecided: it may become a client.
 *     connect()   as a client, with the address it is bound to, if any.
 *     listen()    as a server on the wildcard address, if it is not bound. If it is, bind() has been told: it stays.
 *
 * A datagram socket is decided by bind() as a receiver, by connect(), or by the first datagram that it sends to an
 * address. One that is bound without a port, and not offloaded, stays undecided. Once a socket is decided, it stays
 * where it is.
 *
 * xts_decide() asks the rules and makes an XTS socket at the endpoint that the rule names. Then the caller repeats on
 * it what the program has done with the kernel socket: it sets options, pushes protocols, binds it. If that fails, it
 * closes the XTS socket and calls xts_decision_failed(). In the end the program's socket is offloaded (reason NONE), or
 * it stays with the kernel for the reason, or the program's call fails with the error. In a *strict* process the call
 * also fails for most reasons: xts_reason_error().
 *
 * The caller has its own way to put one socket in the other's place.
 */
#ifndef XTS_DECISION_H
#define XTS_DECISION_H

#include "core/reason.h"
#include "rules/rules.h"

#pragma GCC visibility push(default)

struct xts_undecided {
	const struct xts_rule_group *rules;
	int fd;           /* the kernel socket, for its options */
	int family, type; /* for the XTS socket: SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM, and SOCK_NONBLOCK */
};

enum xts_decision_step {
	XTS_STEP_OPTIONS, /* options, and protocols that were pushed */
	XTS_STEP_BIND,
};

struct xts_decision {
	enum xts_role role;
	unsigned line;          /* line of the rule that decided; 0: none */
	const char *endpoint;   /* endpoint that the rule names; NULL: none */
	int s;                  /* the XTS socket; -1: there is none */
	int error;              /* not 0: the program's call fails with this errno, wherever the socket is */
	enum xts_reason reason; /* if s is -1 and error is 0: why the socket stays with the kernel */
	/* more than the reason tells, and empty if nothing is known: what the endpoint said, or which option failed */
	char explanation[256];
};

/* local: the address that the socket is bound to, or that a server is being bound to; NULL: none. peer: the address
 * that a client connects to; else NULL. Returns 0. */
int xts_decide(const struct xts_undecided *socket, enum xts_role role, const struct sockaddr *local,
	       const struct sockaddr *peer, struct xts_decision *out);
/* This step has failed with the XTS socket, and the caller has closed the socket. */
void xts_decision_failed(struct xts_decision *decision, enum xts_decision_step step, int error);
/* As xts_decision_failed(), for an option that was set on the XTS socket, as the thread's last call. The socket is not
 * closed yet. Returns 0. */
int xts_decision_option_failed(struct xts_decision *decision, int level, int option, int error);
/* Does an offloaded listener with this bound address also need a kernel socket for this host's loopback? A listener on
 * the wildcard address does, unless the rules offload loopback as well. */
bool xts_decide_also_local(const struct xts_rule_group *rules, const struct sockaddr *bound);

/* The errno with which a call fails in a strict process, where its socket would stay with the kernel for this reason.
 * 0: it may stay, since a rule says so, or since it is not a socket that can be offloaded. */
int xts_reason_error(unsigned reason);
/* Is the reason a fault on the way to the proxy, and not the program's choice? Then the user should see it. */
bool xts_reason_is_noticed(unsigned reason);

#pragma GCC visibility pop

#endif
