/*
 * The addresses and ports of the device that sockets of hosts are bound to, and the tenants they belong to.
 *
 * For the kernel all sockets of the proxy belong to one user. SO_REUSEPORT and SO_REUSEADDR would therefore let one
 * tenant bind where another has bound, and take half of its connections. An address belongs to a tenant while any of
 * its sockets is bound to it, and only sockets of that tenant may share it. There is one table for the process, under a
 * mutex: sockets are bound seldom, and those that only connect are not in it.
 *
 * Within a tenant the rule is the kernel's for its users (inet_csk_bind_conflict()): sockets of one user share an
 * address as the kernel lets the proxy's sockets share it. Sockets of different users share one only if each has
 * SO_REUSEADDR, and then only one of them may listen.
 */
#ifndef XTS_BOUND_ADDRESSES_H
#define XTS_BOUND_ADDRESSES_H

#include <stdbool.h>

#include "tenants/tenant.h"
#include "wire/wire.h"

struct bound_address;
struct connection;

/* Each protocol has its own ports. */
enum bound_protocol { BOUND_TCP, BOUND_UDP };

/* Takes an address and port for the socket of c; it has to be released once. NULL with *error (positive): EADDRINUSE:
 * another tenant, or another user, has it; ENOMEM. */
struct bound_address *bound_address_take(const struct connection *c, enum bound_protocol protocol,
					 const struct xts_endpoint *local, int *error);
/* The socket is about to listen; NULL: it is not bound yet. 0, or EADDRINUSE: a socket of another user listens there. */
int bound_address_listens(struct bound_address *bound);
/* Another reference, for another descriptor of the same socket. */
struct bound_address *bound_address_hold(struct bound_address *bound);
void bound_address_release(struct bound_address *bound);

#endif
