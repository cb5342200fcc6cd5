/* Conversion of addresses, in both directions; see socket_address.h. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "addresses/socket_address.h"
#include "channel/channel.h"
#include "wire/endpoint.h"

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

struct xts_endpoint endpoint_plain(const struct xts_endpoint *endpoint)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	struct xts_endpoint out = *endpoint;

	if (endpoint->ip_version != 6 || memcmp(endpoint->address, mapped, sizeof mapped) != 0)
		return out;
	out.ip_version = 4;
	memset(out.address, 0, sizeof out.address);
	memcpy(out.address, endpoint->address + sizeof mapped, 4);
	return out;
}

bool endpoint_is_unspecified(const struct xts_endpoint *endpoint)
{
	static const uint8_t zero[16];
	struct xts_endpoint one = endpoint_plain(endpoint);

	return memcmp(one.address, zero, one.ip_version == 4 ? 4 : 16) == 0;
}

bool endpoint_is_multicast(const struct xts_endpoint *endpoint)
{
	struct xts_endpoint one = endpoint_plain(endpoint);

	return one.ip_version == 4 ? (one.address[0] & 0xf0) == 0xe0 : one.ip_version == 6 && one.address[0] == 0xff;
}

bool endpoint_overlaps(const struct xts_endpoint *a, const struct xts_endpoint *b)
{
	struct xts_endpoint one = endpoint_plain(a), other = endpoint_plain(b);

	if (endpoint_is_unspecified(a) || endpoint_is_unspecified(b))
		return true; /* also for :: and an IPv4 address, unless IPV6_V6ONLY is set */
	return one.ip_version == other.ip_version && !memcmp(one.address, other.address, one.ip_version == 4 ? 4 : 16);
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
