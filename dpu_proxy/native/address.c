/* Endpoints of the wire as socket addresses of the kernel, and those of a socket. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "channel.h"
#include "endpoint.h"

unsigned endpoint_to_sockaddr(const struct xts_endpoint *endpoint, struct sockaddr_storage *address)
{
	struct sockaddr_in *in = (struct sockaddr_in *)address;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof *address);
	switch (endpoint->ip_version) {
	case 4:
		in->sin_family = AF_INET;
		in->sin_port = htons(endpoint->port);
		memcpy(&in->sin_addr, endpoint->address, 4);
		return sizeof *in;
	case 6:
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(endpoint->port);
		in6->sin6_scope_id = endpoint->scope_id;
		memcpy(&in6->sin6_addr, endpoint->address, 16);
		return sizeof *in6;
	default:
		return 0;
	}
}

void socket_local(int fd, struct xts_endpoint *endpoint)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof address;

	address.ss_family = AF_UNSPEC;
	(void)getsockname(fd, (struct sockaddr *)&address, &length);
	*endpoint = xts_endpoint_of(&address);
}

void socket_peer(int fd, struct xts_endpoint *endpoint)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof address;

	address.ss_family = AF_UNSPEC;
	(void)getpeername(fd, (struct sockaddr *)&address, &length);
	*endpoint = xts_endpoint_of(&address);
}
