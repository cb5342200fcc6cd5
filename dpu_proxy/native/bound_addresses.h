/*
 * Names: the addresses and ports of the device that sockets of hosts are bound to, and whose they are.
 *
 * All sockets of the proxy are of one user for the kernel, so that SO_REUSEPORT and SO_REUSEADDR would let one tenant bind where another
 * has bound, and take half of its connections. A name belongs to a tenant here while any of its sockets is bound to it; only that
 * tenant's may share it. One table for the process, under a mutex: sockets are bound seldom, and those that just connect never come here.
 */
#ifndef XTS_BOUND_ADDRESSES_H
#define XTS_BOUND_ADDRESSES_H

#include <stdbool.h>

#include "wire.h"
#include "tenant.h"

struct name;

/* The name for one socket of the tenant's, to be released once; NULL with *error (positive): EADDRINUSE, it is another tenant's; ENOMEM. */
struct name *name_take(struct xts_tenant *t, const struct xts_endpoint *local, int *error);
/* For another descriptor of the same socket. */
struct name *name_hold(struct name *name);
void name_release(struct name *name);

#endif
