/*
 * The addresses and ports of the device that sockets of hosts are bound to, and the tenants they belong to. One such
 * address and port is a *name* here.
 *
 * For the kernel all sockets of the proxy belong to one user. SO_REUSEPORT and SO_REUSEADDR would therefore let one
 * tenant bind where another has bound, and take half of its connections. A name belongs to a tenant while any of its
 * sockets is bound to it, and only sockets of that tenant may share it. There is one table for the process, under a
 * mutex: sockets are bound seldom, and those that only connect are not in it.
 */
#ifndef XTS_BOUND_ADDRESSES_H
#define XTS_BOUND_ADDRESSES_H

#include <stdbool.h>

#include "wire.h"
#include "tenant.h"

struct name;

/* Each protocol has its own ports. */
enum name_protocol { NAME_TCP, NAME_UDP };

/* Takes a name for one socket of the tenant; it has to be released once. NULL with *error (positive): EADDRINUSE:
 * another tenant has it; ENOMEM. */
struct name *name_take(struct xts_tenant *t, enum name_protocol protocol, const struct xts_endpoint *local, int *error);
/* Another reference, for another descriptor of the same socket. */
struct name *name_hold(struct name *name);
void name_release(struct name *name);

#endif
