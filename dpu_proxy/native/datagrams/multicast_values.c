/* Reads the values of the options about memberships (multicast_values.h). */
#include "datagrams/multicast_values.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "datagrams/multicast.h"
#include "wire/endpoint.h"

/* The struct in which an option names its group. */
enum form {
	FORM_MREQ,    /* struct ip_mreq, or ip_mreqn */
	FORM_SOURCE4, /* struct ip_mreq_source */
	FORM_MREQ6,   /* struct ipv6_mreq */
	FORM_GROUP,   /* struct group_req */
	FORM_SOURCE,  /* struct group_source_req */
	FORM_FILTER4, /* struct ip_msfilter */
	FORM_FILTER,  /* struct group_filter */
};

#define LEVEL_BOTH (-1) /* options that both families have */

static const struct member_option {
	int level, option;
	enum form form;
	bool joins;  /* may make the socket a member */
	bool leaves; /* ends a membership */
} options[] = {
	{ IPPROTO_IP, IP_ADD_MEMBERSHIP, FORM_MREQ, true, false },
	{ IPPROTO_IP, IP_DROP_MEMBERSHIP, FORM_MREQ, false, true },
	{ IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, FORM_SOURCE4, true, false },
	{ IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, FORM_SOURCE4, false, false },
	{ IPPROTO_IP, IP_BLOCK_SOURCE, FORM_SOURCE4, false, false },
	{ IPPROTO_IP, IP_UNBLOCK_SOURCE, FORM_SOURCE4, false, false },
	{ IPPROTO_IP, IP_MSFILTER, FORM_FILTER4, false, false },
	{ IPPROTO_IPV6, IPV6_JOIN_GROUP, FORM_MREQ6, true, false },
	{ IPPROTO_IPV6, IPV6_LEAVE_GROUP, FORM_MREQ6, false, true },
	{ LEVEL_BOTH, MCAST_JOIN_GROUP, FORM_GROUP, true, false },
	{ LEVEL_BOTH, MCAST_LEAVE_GROUP, FORM_GROUP, false, true },
	{ LEVEL_BOTH, MCAST_JOIN_SOURCE_GROUP, FORM_SOURCE, true, false },
	{ LEVEL_BOTH, MCAST_LEAVE_SOURCE_GROUP, FORM_SOURCE, false, false },
	{ LEVEL_BOTH, MCAST_BLOCK_SOURCE, FORM_SOURCE, false, false },
	{ LEVEL_BOTH, MCAST_UNBLOCK_SOURCE, FORM_SOURCE, false, false },
	{ LEVEL_BOTH, MCAST_MSFILTER, FORM_FILTER, false, false },
};

const struct member_option *member_option(int level, int option)
{
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
		if (options[i].option == option && (options[i].level == level || options[i].level == LEVEL_BOTH))
			return &options[i];
	return NULL;
}

static void set_group4(struct request *r, const void *address)
{
	r->group.ip_version = 4;
	memcpy(r->group.address, address, 4);
}

/* The interface by one of its addresses. */
static void set_interface4(struct request *r, const void *address)
{
	if (*(const uint8_t *)address == 127)
		r->interface = LOOPBACK_INTERFACE;
}

/* Sets the group, which has to be of the level's address family. */
static int set_group(struct request *r, enum form form, int level, const struct sockaddr_storage *address,
		     uint32_t interface)
{
	struct xts_endpoint group = xts_endpoint_of(address);

	if (level == IPPROTO_IP && group.ip_version != 4)
		return form == FORM_GROUP ? -EINVAL : -EADDRNOTAVAIL;
	if (level == IPPROTO_IPV6 && group.ip_version != 6)
		return -EADDRNOTAVAIL;
	r->group = group;
	r->group.scope_id = r->interface = interface;
	return 0;
}

static int read_mreq(struct request *r, const void *value, uint32_t bytes)
{
	struct ip_mreqn m = { 0 };

	if (bytes < sizeof(struct ip_mreq))
		return -EINVAL;
	memcpy(&m, value, bytes < sizeof m ? sizeof(struct ip_mreq) : sizeof m);
	set_group4(r, &m.imr_multiaddr);
	set_interface4(r, &m.imr_address);
	if (m.imr_ifindex)
		r->group.scope_id = r->interface = (uint32_t)m.imr_ifindex;
	return 0;
}

static int read_source4(struct request *r, const void *value, uint32_t bytes)
{
	struct ip_mreq_source m;

	if (bytes != sizeof m)
		return -EINVAL;
	memcpy(&m, value, sizeof m);
	set_group4(r, &m.imr_multiaddr);
	set_interface4(r, &m.imr_interface);
	r->sources = 1;
	return 0;
}

static int read_mreq6(struct request *r, const void *value, uint32_t bytes)
{
	struct ipv6_mreq m;

	if (bytes < sizeof m)
		return -EINVAL;
	memcpy(&m, value, sizeof m);
	r->group.ip_version = 6;
	memcpy(r->group.address, &m.ipv6mr_multiaddr, sizeof r->group.address);
	r->group.scope_id = r->interface = m.ipv6mr_interface;
	return 0;
}

static int read_group(struct request *r, int level, const void *value, uint32_t bytes)
{
	struct group_req m;

	if (bytes < sizeof m)
		return -EINVAL;
	memcpy(&m, value, sizeof m);
	return set_group(r, FORM_GROUP, level, &m.gr_group, m.gr_interface);
}

static int read_source(struct request *r, int level, const void *value, uint32_t bytes)
{
	struct group_source_req m;

	if (bytes < sizeof m)
		return -EINVAL;
	memcpy(&m, value, sizeof m);
	if (m.gsr_source.ss_family != m.gsr_group.ss_family)
		return -EADDRNOTAVAIL;
	r->sources = 1;
	return set_group(r, FORM_SOURCE, level, &m.gsr_group, m.gsr_interface);
}

static int read_filter4(struct request *r, const void *value, uint32_t bytes)
{
	struct ip_msfilter m;

	if (bytes < IP_MSFILTER_SIZE(0))
		return -EINVAL;
	memcpy(&m, value, IP_MSFILTER_SIZE(0));
	set_group4(r, &m.imsf_multiaddr);
	set_interface4(r, &m.imsf_interface);
	r->sources = (bytes - (uint32_t)IP_MSFILTER_SIZE(0)) / (uint32_t)sizeof(struct in_addr);
	return 0;
}

static int read_filter(struct request *r, int level, const void *value, uint32_t bytes)
{
	struct group_filter m;

	if (bytes < GROUP_FILTER_SIZE(0))
		return -EINVAL;
	memcpy(&m, value, GROUP_FILTER_SIZE(0));
	r->sources = (bytes - (uint32_t)GROUP_FILTER_SIZE(0)) / (uint32_t)sizeof(struct sockaddr_storage);
	return set_group(r, FORM_FILTER, level, &m.gf_group, m.gf_interface);
}

int request_read(struct request *r, const struct member_option *option, int level, const void *value, uint32_t bytes)
{
	*r = (struct request){ .joins = option->joins, .leaves = option->leaves };
	switch (option->form) {
	case FORM_MREQ:
		return read_mreq(r, value, bytes);
	case FORM_SOURCE4:
		return read_source4(r, value, bytes);
	case FORM_MREQ6:
		return read_mreq6(r, value, bytes);
	case FORM_GROUP:
		return read_group(r, level, value, bytes);
	case FORM_SOURCE:
		return read_source(r, level, value, bytes);
	case FORM_FILTER4:
		return read_filter4(r, value, bytes);
	default:
		return read_filter(r, level, value, bytes);
	}
}
