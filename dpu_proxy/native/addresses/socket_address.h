/* Converts addresses of the wire (struct xts_endpoint) to socket addresses of the kernel, and reads a socket's own. */
#ifndef XTS_SOCKET_ADDRESS_H
#define XTS_SOCKET_ADDRESS_H

#include <stdbool.h>

#include "wire/wire.h"

struct sockaddr_storage;

/* Returns the length of the socket address, or 0 when the endpoint has no address. */
unsigned endpoint_to_sockaddr(const struct xts_endpoint *endpoint, struct sockaddr_storage *address);
/* Is it 0.0.0.0, :: or ::ffff:0.0.0.0? */
bool endpoint_is_unspecified(const struct xts_endpoint *endpoint);
bool endpoint_is_multicast(const struct xts_endpoint *endpoint);
/* An IPv4-mapped address as IPv4. */
struct xts_endpoint endpoint_plain(const struct xts_endpoint *endpoint);
/* Would sockets bound to these addresses, with the same port, conflict? */
bool endpoint_overlaps(const struct xts_endpoint *a, const struct xts_endpoint *b);
/* The socket's own address, and its peer's address. The endpoint is empty if there is none. */
void socket_local(int fd, struct xts_endpoint *endpoint);
void socket_peer(int fd, struct xts_endpoint *endpoint);

#endif
