/* Conversion of the kernel's socket addresses into endpoints of the wire. */
#ifndef XTS_ENDPOINT_H
#define XTS_ENDPOINT_H

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/wire.h"

/* address may be unaligned, but must be complete. If it is NULL, or neither IPv4 nor IPv6, the result is an empty
 * endpoint. */
static inline struct xts_endpoint xts_endpoint_of(const void *address)
{
	struct xts_endpoint out = { 0 };
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	sa_family_t family = AF_UNSPEC;

	if (address)
		memcpy(&family, address, sizeof family);
	if (family == AF_INET) {
		memcpy(&in, address, sizeof in);
		out.ip_version = 4;
		out.port = ntohs(in.sin_port);
		memcpy(out.address, &in.sin_addr, 4);
	} else if (family == AF_INET6) {
		memcpy(&in6, address, sizeof in6);
		out.ip_version = 6;
		out.port = ntohs(in6.sin6_port);
		out.scope_id = in6.sin6_scope_id;
		memcpy(out.address, &in6.sin6_addr, 16);
	}
	return out;
}

#endif
