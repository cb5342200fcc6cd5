/* The DSCP of a tenant, on its sockets: see mark.h. */
#include "tenants/mark.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "tenants/tenant.h"

#define ECN_BITS 3u
#define DSCP_SHIFT 2u

bool mark_is_set(const struct xts_tenant *t)
{
	return atomic_load_explicit(&t->mark, memory_order_relaxed) & TENANT_MARKS;
}

uint32_t marked(const struct xts_tenant *t, uint32_t traffic_class)
{
	uint32_t mark = atomic_load_explicit(&t->mark, memory_order_relaxed);

	return mark & TENANT_MARKS ? (mark & ~TENANT_MARKS) << DSCP_SHIFT | (traffic_class & ECN_BITS) : traffic_class;
}

/* A socket of IPv6 has both: its peer may be an IPv4 one. A kernel without one of them has no such packets either. */
void mark_socket(const struct xts_tenant *t, int fd, uint8_t ip_version)
{
	const int value = (int)marked(t, 0);

	if (!mark_is_set(t))
		return;
	(void)setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof value);
	if (ip_version == 6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
}

uint32_t mark_of(int fd, uint8_t ip_version)
{
	int value = 0;
	socklen_t length = sizeof value;

	if (getsockopt(fd, ip_version == 6 ? IPPROTO_IPV6 : IPPROTO_IP, ip_version == 6 ? IPV6_TCLASS : IP_TOS, &value,
		       &length))
		return 0;
	return (uint32_t)value & UINT8_MAX;
}

uint32_t mark_option(const struct xts_tenant *t, int level, int option, uint8_t *value, uint32_t bytes)
{
	int wanted = 0;

	if (!((level == IPPROTO_IP && option == IP_TOS) || (level == IPPROTO_IPV6 && option == IPV6_TCLASS)) ||
	    !mark_is_set(t))
		return bytes;
	if (bytes < sizeof wanted) { /* IP_TOS may be a byte */
		if (bytes)
			value[0] = (uint8_t)marked(t, value[0]);
		return bytes;
	}
	memcpy(&wanted, value, sizeof wanted);
	if (wanted < -1 || wanted > UINT8_MAX)
		return bytes; /* the kernel refuses it */
	wanted = (int)marked(t, wanted < 0 ? 0 : (uint32_t)wanted);
	memcpy(value, &wanted, sizeof wanted);
	return sizeof wanted;
}
