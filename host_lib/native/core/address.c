/* struct sockaddr to and from struct xts_endpoint, with the kernel's checks. */
#include <netinet/in.h>

#include "core/address.h"
#include "core/arguments.h"
#include "core/socket.h"

#define SIN6_BYTES_MIN 24 /* RFC 2133: the size without the scope */

static int read_v4(struct xts_endpoint *out, const struct sockaddr *address, socklen_t length, bool to_bind)
{
	struct sockaddr_in in;

	if (length < sizeof in)
		return -EINVAL;
	memcpy(&in, address, sizeof in);
	/* bind(2) takes AF_UNSPEC for the wildcard address, to support old programs. */
	if (in.sin_family != AF_INET && !(to_bind && in.sin_family == AF_UNSPEC && !in.sin_addr.s_addr))
		return -EAFNOSUPPORT;
	out->ip_version = 4;
	out->port = ntohs(in.sin_port);
	memcpy(out->address, &in.sin_addr, 4);
	return 0;
}

static int read_v6(struct xts_endpoint *out, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_in6 in = { 0 };

	if (length < SIN6_BYTES_MIN)
		return -EINVAL;
	memcpy(&in, address, length < sizeof in ? length : sizeof in);
	if (in.sin6_family != AF_INET6)
		return -EAFNOSUPPORT;
	out->ip_version = 6;
	out->port = ntohs(in.sin6_port);
	out->scope_id = in.sin6_scope_id;
	memcpy(out->address, &in.sin6_addr, 16);
	return 0;
}

int address_read(struct xts_endpoint *out, uint8_t family, const struct sockaddr *address, socklen_t length, bool to_bind)
{
	memset(out, 0, sizeof *out);
	if (length > sizeof(struct sockaddr_storage))
		return -EINVAL;
	if (argument_is_bad(address, length))
		return -EFAULT;
	return family == 4 ? read_v4(out, address, length, to_bind) : read_v6(out, address, length);
}

/* --- addresses that nothing can connect to ------------------------------------------------------------------------ */

static bool is_mapped(const struct xts_endpoint *e)
{
	struct in6_addr address;

	memcpy(&address, e->address, sizeof address);
	return e->ip_version == 6 && IN6_IS_ADDR_V4MAPPED(&address);
}

/* ip_route_connect(): fails for an address that is not unicast. (Only the device knows the broadcast addresses of its
 * networks.) */
static int check_v4(const uint8_t address[4])
{
	struct in_addr in;

	memcpy(&in, address, sizeof in);
	return IN_MULTICAST(ntohl(in.s_addr)) || in.s_addr == htonl(INADDR_BROADCAST) ? -ENETUNREACH : 0;
}

/* The checks of tcp_v6_connect(), in its order. */
static int check_v6(const struct xts_sock *s, const struct xts_endpoint *peer)
{
	struct in6_addr to, from;
	bool mapped = is_mapped(peer);

	memcpy(&to, peer->address, sizeof to);
	memcpy(&from, s->local.address, sizeof from);
	if (IN6_IS_ADDR_UNSPECIFIED(&to))
		return 0; /* the device's own loopback, of either version */
	if (IN6_IS_ADDR_MULTICAST(&to))
		return -ENETUNREACH;
	/* The address that the socket is bound to may say which interface. */
	if (IN6_IS_ADDR_LINKLOCAL(&to) && !peer->scope_id && !(s->bound_address && IN6_IS_ADDR_LINKLOCAL(&from)))
		return -EINVAL;
	if (mapped && (s->v6only || (s->bound_address && !is_mapped(&s->local))))
		return -ENETUNREACH;
	if (!mapped && s->bound_address && is_mapped(&s->local))
		return -EAFNOSUPPORT;
	return mapped ? check_v4(peer->address + 12) : 0;
}

int address_connectable(const struct xts_sock *s, const struct xts_endpoint *peer)
{
	return peer->ip_version == 4 ? check_v4(peer->address) : check_v6(s, peer);
}

/* --- addresses of datagrams --------------------------------------------------------------------------------------- */

bool address_is_v4(const struct xts_endpoint *e)
{
	return e->ip_version == 4 || is_mapped(e);
}

bool address_is_broadcast(const struct xts_endpoint *e)
{
	static const uint8_t all[4] = { 255, 255, 255, 255 };

	return address_is_v4(e) && memcmp(e->address + (e->ip_version == 4 ? 0 : 12), all, sizeof all) == 0;
}

int address_read_peer(struct xts_endpoint *out, const struct xts_sock *s, const struct sockaddr *address,
		      socklen_t length)
{
	struct xts_endpoint v4;
	int r;

	if (s->family == 6 && address && length >= sizeof address->sa_family && address->sa_family == AF_INET) {
		r = address_read(&v4, 4, address, length, false);
		if (r)
			return r;
		*out = (struct xts_endpoint){ .ip_version = 6, .port = v4.port, .address = { [10] = 0xff, [11] = 0xff } };
		memcpy(out->address + 12, v4.address, 4);
	} else {
		r = address_read(out, s->family, address, length, false);
		if (r)
			return r;
	}
	return s->v6only && is_mapped(out) ? -ENETUNREACH : 0;
}

socklen_t address_bytes(uint8_t family, const struct xts_endpoint *endpoint, void *address, socklen_t room)
{
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} out;
	socklen_t bytes;

	memset(&out, 0, sizeof out);
	if (family == 4) {
		out.v4.sin_family = AF_INET;
		out.v4.sin_port = htons(endpoint->port);
		memcpy(&out.v4.sin_addr, endpoint->address, 4);
		bytes = sizeof out.v4;
	} else {
		out.v6.sin6_family = AF_INET6;
		out.v6.sin6_port = htons(endpoint->port);
		out.v6.sin6_scope_id = endpoint->scope_id;
		if (endpoint->ip_version == 4) {
			out.v6.sin6_addr.s6_addr[10] = out.v6.sin6_addr.s6_addr[11] = 0xff;
			memcpy(out.v6.sin6_addr.s6_addr + 12, endpoint->address, 4);
		} else {
			memcpy(&out.v6.sin6_addr, endpoint->address, 16);
		}
		bytes = sizeof out.v6;
	}
	memcpy(address, &out, room < bytes ? room : bytes);
	return bytes;
}

int address_write(uint8_t family, const struct xts_endpoint *endpoint, struct sockaddr *address, socklen_t *length)
{
	int r = argument_name(address, length);

	if (r)
		return r;
	*length = address_bytes(family, endpoint, address, *length);
	return 0;
}
