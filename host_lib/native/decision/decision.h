/*
 * Kernel or offloaded: the decision about a TCP or UDP socket, for the interposer (libxts-preload) and for
 * xts_socket.install().
 *
 * Theory of operation
 *
 * The program has a socket of the kernel's. It is *undecided* until the call from which on its port has to be known:
 *
 *     bind()      as a server. What the rules do not offload stays undecided: it may become a client.
 *     connect()   as a client, with the address it is bound to, if any.
 *     listen()    as a server on the wildcard address, if it is not bound. If it is, bind() has been told: it stays.
 *
 * A datagram socket is decided by bind() as a receiver, by connect(), or by the first datagram that it sends to an
 * address; what was bound without a port, and not offloaded, stays undecided. Once decided it stays where it is.
 *
 * xts_decide() asks the rules and makes an XTS socket at the endpoint that the rule names. Then the caller does with it
 * what the program has done with the kernel's: it sets options, pushes protocols, binds it. If that fails it closes the
 * XTS socket and calls xts_decision_failed(). In the end the program's socket is offloaded (reason NONE), or it stays
 * with the kernel for the reason, or the program's call fails with the error. A *strict* process has it fail for most
 * reasons, too: xts_reason_error().
 *
 * How one of them is put in the other's place is the caller's.
 */
#ifndef XTS_DECISION_H
#define XTS_DECISION_H

#include "core/reason.h"
#include "rules/rules.h"

#pragma GCC visibility push(default)

struct xts_undecided {
	const struct xts_rule_group *rules;
	int fd;           /* the kernel's socket, for its options */
	int family, type; /* of the XTS socket: SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM, and SOCK_NONBLOCK */
};

enum xts_decision_step {
	XTS_STEP_OPTIONS, /* also protocols that were pushed */
	XTS_STEP_BIND,
};

struct xts_decision {
	enum xts_role role;
	unsigned line;          /* of the rule that decided; 0: none */
	const char *endpoint;   /* that it names; NULL: none */
	int s;                  /* the XTS socket; -1: there is none */
	int error;              /* errno of the program's call, whatever becomes of the socket; else 0 */
	enum xts_reason reason; /* if s is -1 and there is no error: why it stays with the kernel */
	char attach_error[256]; /* what the endpoint has said to that, else empty */
};

/* local: what it is bound to, or a server is to be bound to; NULL: to nothing. peer: a client's, else NULL. Returns
 * 0. */
int xts_decide(const struct xts_undecided *socket, enum xts_role role, const struct sockaddr *local,
	       const struct sockaddr *peer, struct xts_decision *out);
/* This has failed with the XTS socket, and the caller has closed it. */
void xts_decision_failed(struct xts_decision *decision, enum xts_decision_step step, int error);
/* Is an offloaded listener that is bound here for this host's own loopback, too? One on the wildcard address is,
 * unless the rules offload loopback as well. */
bool xts_decide_also_local(const struct xts_rule_group *rules, const struct sockaddr *bound);

/* What a call fails with in a strict process, where its socket would stay with the kernel for this reason; 0: it may
 * stay, for a rule says so or it is none that can be offloaded. */
int xts_reason_error(unsigned reason);
/* Is it none of the program's doing, but of the way to the proxy? Then somebody should hear of it. */
bool xts_reason_is_noticed(unsigned reason);

#pragma GCC visibility pop

#endif
