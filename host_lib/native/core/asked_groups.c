/*
 * Groups in the list of what a program has asked of a socket: what leaving one undoes. The same membership can be
 * written in several forms: with an interface's address or its index, as IP_ADD_MEMBERSHIP or MCAST_JOIN_GROUP.
 *
 * What leaves a group undoes all that the list has of it, if it surely means the same interface. If that is not sure,
 * since one names an address and the other an index, nothing is taken out, and leaving is asked again as well: the
 * order of the list then gives the same result.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "core/asked.h"
#include "core/call.h"

/* What an option does with a group. */
enum verb { JOINS, FILTERS, LEAVES, JOINS_SOURCE, LEAVES_SOURCE, BLOCKS_SOURCE, UNBLOCKS_SOURCE };

struct group_option {
	int level, option;
	enum verb verb;
	enum { MREQ, MREQ_SOURCE, MREQ6, GROUP_REQ, GROUP_SOURCE_REQ, MSFILTER, GROUP_FILTER } form;
};

#define EITHER (-1) /* IPPROTO_IP or IPPROTO_IPV6 */

static const struct group_option options[] = {
	{ IPPROTO_IP, IP_ADD_MEMBERSHIP, JOINS, MREQ },
	{ IPPROTO_IP, IP_DROP_MEMBERSHIP, LEAVES, MREQ },
	{ IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, JOINS_SOURCE, MREQ_SOURCE },
	{ IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, LEAVES_SOURCE, MREQ_SOURCE },
	{ IPPROTO_IP, IP_BLOCK_SOURCE, BLOCKS_SOURCE, MREQ_SOURCE },
	{ IPPROTO_IP, IP_UNBLOCK_SOURCE, UNBLOCKS_SOURCE, MREQ_SOURCE },
	{ IPPROTO_IP, IP_MSFILTER, FILTERS, MSFILTER },
	{ IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, JOINS, MREQ6 },
	{ IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, LEAVES, MREQ6 },
	{ EITHER, MCAST_JOIN_GROUP, JOINS, GROUP_REQ },
	{ EITHER, MCAST_LEAVE_GROUP, LEAVES, GROUP_REQ },
	{ EITHER, MCAST_JOIN_SOURCE_GROUP, JOINS_SOURCE, GROUP_SOURCE_REQ },
	{ EITHER, MCAST_LEAVE_SOURCE_GROUP, LEAVES_SOURCE, GROUP_SOURCE_REQ },
	{ EITHER, MCAST_BLOCK_SOURCE, BLOCKS_SOURCE, GROUP_SOURCE_REQ },
	{ EITHER, MCAST_UNBLOCK_SOURCE, UNBLOCKS_SOURCE, GROUP_SOURCE_REQ },
	{ EITHER, MCAST_MSFILTER, FILTERS, GROUP_FILTER },
};

/* A group, an interface and a source in one form. What an option does not have is zero. */
struct membership {
	enum verb verb;
	uint8_t group[16], source[16];
	uint32_t index;   /* of the interface */
	uint32_t address; /* of the interface; counts only without an index */
};

static const struct group_option *find(uint8_t type, int level, int option)
{
	if (type != XTS_CMD_SETSOCKOPT || (level != IPPROTO_IP && level != IPPROTO_IPV6))
		return NULL;
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if ((options[i].level == level || options[i].level == EITHER) && options[i].option == option)
			return &options[i];
	return NULL;
}

static void set_address(uint8_t out[16], const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		memcpy(out, &((const struct sockaddr_in *)address)->sin_addr, 4);
	else
		memcpy(out, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
}

/* Reads what is common to all forms. A value that is shorter than its form, which the kernel takes of ip_mreqn, reads
 * as if zeros followed. */
static struct membership read_value(const struct group_option *option, const uint8_t *value, uint32_t length)
{
	union {
		struct ip_mreqn mreq;
		struct ip_mreq_source source;
		struct ipv6_mreq mreq6;
		struct group_req group;
		struct group_source_req group_source;
		struct ip_msfilter filter;
		struct group_filter group_filter;
	} v;
	struct membership m = { .verb = option->verb };

	memset(&v, 0, sizeof v);
	memcpy(&v, value, length < sizeof v ? length : sizeof v);
	switch (option->form) {
	case MREQ:
		memcpy(m.group, &v.mreq.imr_multiaddr, 4);
		m.address = v.mreq.imr_address.s_addr;
		m.index = length >= sizeof v.mreq ? (uint32_t)v.mreq.imr_ifindex : 0;
		break;
	case MREQ_SOURCE:
		memcpy(m.group, &v.source.imr_multiaddr, 4);
		memcpy(m.source, &v.source.imr_sourceaddr, 4);
		m.address = v.source.imr_interface.s_addr;
		break;
	case MREQ6:
		memcpy(m.group, &v.mreq6.ipv6mr_multiaddr, 16);
		m.index = v.mreq6.ipv6mr_interface;
		break;
	case MSFILTER:
		memcpy(m.group, &v.filter.imsf_multiaddr, 4);
		m.address = v.filter.imsf_interface.s_addr;
		break;
	case GROUP_FILTER:
		set_address(m.group, &v.group_filter.gf_group);
		m.index = v.group_filter.gf_interface;
		break;
	case GROUP_REQ:
		set_address(m.group, &v.group.gr_group);
		m.index = v.group.gr_interface;
		break;
	default:
		set_address(m.group, &v.group_source.gsr_group);
		set_address(m.source, &v.group_source.gsr_source);
		m.index = v.group_source.gsr_interface;
	}
	if (m.index)
		m.address = 0;
	return m;
}

/* The entry's membership. False: it is about another group, or about none. */
static bool is_of_the_group(const struct asked *e, const struct membership *m, struct membership *out)
{
	const struct group_option *option = find(e->type, e->level, e->option);

	if (!option)
		return false;
	*out = read_value(option, e->value, e->length);
	return memcmp(out->group, m->group, sizeof m->group) == 0;
}

static bool same_interface(const struct membership *a, const struct membership *b)
{
	return a->index == b->index && a->address == b->address;
}

/* Do all entries about the group name the same interface as m, or all the same one while m names none? Then m means
 * that one. */
static bool is_sure(const struct asked *list, const struct membership *m)
{
	struct membership first = { 0 }, its;
	bool named = m->index || m->address, any = false;

	for (const struct asked *e = list; e; e = e->next) {
		if (!is_of_the_group(e, m, &its))
			continue;
		if (named ? !same_interface(&its, m) : any && !same_interface(&its, &first))
			return false;
		first = its;
		any = true;
	}
	return any;
}

static bool same_source(const struct membership *a, const struct membership *b)
{
	return memcmp(a->source, b->source, sizeof a->source) == 0;
}

/* Who leaves the last source of a group that was joined for its sources leaves the group, however it was joined at
 * first: ip_mc_source() of the kernel. */
static bool leaves_the_group(const struct asked *list, const struct membership *m)
{
	struct membership its;

	if (m->verb != LEAVES_SOURCE)
		return m->verb == LEAVES;
	for (const struct asked *e = list; e; e = e->next)
		if (is_of_the_group(e, m, &its) && its.verb == JOINS_SOURCE && !same_source(&its, m))
			return false;
	return true;
}

/* After an option that sets all sources the list does not tell which ones there are. */
static bool sets_all_sources(const struct asked *list, const struct membership *m)
{
	struct membership its;

	for (const struct asked *e = list; e; e = e->next)
		if (is_of_the_group(e, m, &its) && its.verb == FILTERS)
			return true;
	return false;
}

/* Is the entry undone by m, which is about the same group on the same interface? */
static bool is_undone(const struct membership *its, const struct membership *m)
{
	switch (m->verb) {
	case FILTERS:
		return its->verb == FILTERS || its->verb == BLOCKS_SOURCE || its->verb == UNBLOCKS_SOURCE;
	case LEAVES_SOURCE:
		return its->verb == JOINS_SOURCE && same_source(its, m);
	case UNBLOCKS_SOURCE:
		return its->verb == BLOCKS_SOURCE && same_source(its, m);
	default:
		return false;
	}
}

bool asked_is_of_group(const struct call *call)
{
	return find(call->type, call->level, call->option);
}

bool asked_group_undoes(struct asked **list, const struct call *call)
{
	struct membership m = read_value(find(call->type, call->level, call->option), call->value, call->length), its;
	bool undone = false, all;

	if (m.verb == JOINS || m.verb == JOINS_SOURCE || m.verb == BLOCKS_SOURCE || !is_sure(*list, &m))
		return false;
	if (m.verb != LEAVES && m.verb != FILTERS && sets_all_sources(*list, &m))
		return false;
	all = leaves_the_group(*list, &m);
	for (struct asked *e; (e = *list);) {
		if (!is_of_the_group(e, &m, &its) || !(all || is_undone(&its, &m))) {
			list = &e->next;
			continue;
		}
		undone = true;
		*list = e->next;
		free(e);
	}
	return undone && m.verb != FILTERS;
}
