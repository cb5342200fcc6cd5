/* The socket options of multicast: what they ask for, whether it is allowed, and what it has changed (multicast.h). */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "connection/sockopt.h"
#include "datagrams/datagram_socket.h"
#include "datagrams/multicast.h"
#include "datagrams/multicast_values.h"

bool multicast_is_option(int level, int option)
{
	if (level == IPPROTO_IP)
		return member_option(level, option) || option == IP_MULTICAST_ALL || option == IP_MULTICAST_IF ||
		       option == IP_PKTINFO;
	return level == IPPROTO_IPV6 && (member_option(level, option) || option == IPV6_MULTICAST_ALL ||
					 option == IPV6_MULTICAST_IF || option == IPV6_RECVPKTINFO);
}

/* --- reading memberships back from the kernel --------------------------------------------------------------------- */

/* Is the socket a member on this interface, and with how many sources? */
static bool ask_kernel(const struct connection *c, const struct xts_endpoint *group, uint32_t interface,
		       uint32_t *sources)
{
	struct group_filter m = { .gf_interface = interface };
	socklen_t bytes = (socklen_t)GROUP_FILTER_SIZE(0);
	struct xts_endpoint address = *group;

	address.scope_id = 0;
	(void)endpoint_to_sockaddr(&address, &m.gf_group);
	if (getsockopt(c->tcp.fd, group->ip_version == 4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_MSFILTER, &m, &bytes))
		return false;
	*sources = m.gf_numsrc;
	return true;
}

static bool same_group(const struct membership *m, const struct xts_endpoint *group)
{
	return m->address.ip_version == group->ip_version &&
	       !memcmp(m->address.address, group->address, sizeof group->address);
}

static struct membership *find(struct connection *c, const struct xts_endpoint *group, uint32_t interface)
{
	const struct list *head = &c->datagrams->multicast->memberships, *node;

	for (node = head->next; node != head; node = node->next) {
		struct membership *m = list_entry(node, struct membership, of_socket);

		if (m->address.scope_id == interface && same_group(m, group))
			return m;
	}
	return NULL;
}

/* Changes what the tenant is charged for, from before to after. */
static void charge(struct connection *c, uint32_t before, uint32_t after)
{
	if (after > before)
		tenant_take_anyway(c->tenant, XTS_USE_GROUPS, after - before);
	else
		tenant_give(c->tenant, XTS_USE_GROUPS, before - after);
}

/* Adds a membership that the kernel has to the list. False: no memory. */
static bool remember(struct connection *c, const struct xts_endpoint *group, uint32_t interface, uint32_t sources)
{
	struct membership *m = calloc(1, sizeof *m);

	if (!m)
		return false;
	m->address = *group;
	m->address.port = 0;
	m->address.scope_id = interface;
	m->sources = sources;
	if (!(m->group = group_take(c->tenant, &m->address))) {
		free(m);
		return false;
	}
	charge(c, 0, 1 + sources);
	tenant_take_anyway(c->tenant, XTS_USE_SOCKET_BYTES, MEMBERSHIP_BYTES);
	list_append(&c->datagrams->multicast->memberships, &m->of_socket);
	return true;
}

/* Reads back one interface. True: the socket is a member there. */
static bool look_at(struct connection *c, const struct xts_endpoint *group, uint32_t interface, bool *no_memory)
{
	struct membership *m = find(c, group, interface);
	uint32_t sources = 0;

	if (!ask_kernel(c, group, interface, &sources)) {
		if (m)
			multicast_forget(c->datagrams->multicast, m);
		return false;
	}
	if (m) {
		charge(c, m->sources, sources);
		m->sources = sources;
	} else if (!remember(c, group, interface, sources)) {
		*no_memory = true;
	}
	return true;
}

/* Brings the list of memberships up to date for a group. 0 or -errno. */
static int read_back(struct connection *c, const struct request *r)
{
	const struct xts_worker_config *config = &c->worker->config;
	bool no_memory = false, found = false;

	if (r->group.scope_id) {
		(void)look_at(c, &r->group, r->group.scope_id, &no_memory);
		return no_memory ? -ENOMEM : 0;
	}
	for (uint32_t i = 0; i < config->interface_count; i++)
		found = look_at(c, &r->group, config->interfaces[i].index, &no_memory) || found;
	if (r->joins && !found && !find(c, &r->group, 0))
		no_memory = !remember(c, &r->group, 0, 0);
	if (r->leaves && !found) { /* else it may still be a member on an interface that we do not know */
		struct membership *m = find(c, &r->group, 0);

		if (m)
			multicast_forget(c->datagrams->multicast, m);
	}
	return no_memory ? -ENOMEM : 0;
}

int multicast_recall(struct connection *c, const struct xts_endpoint *group)
{
	struct multicast *m = c->datagrams->multicast;
	bool no_memory = false;

	pthread_mutex_lock(&m->mutex);
	if (group->scope_id)
		(void)look_at(c, group, group->scope_id, &no_memory);
	else if (!find(c, group, 0))
		no_memory = !remember(c, group, 0, 0);
	pthread_mutex_unlock(&m->mutex);
	return no_memory ? -ENOMEM : 0;
}

/* --- joining, leaving, filters ------------------------------------------------------------------------------------ */

/* May the kernel be asked for this? 0 or -errno. */
static int check(struct connection *c, const struct request *r)
{
	uint32_t more = (r->joins ? 1u : 0u) + r->sources;

	if (!r->joins && !r->sources)
		return 0;
	if (r->joins && !endpoint_is_multicast(&r->group))
		return -EINVAL;
	if (r->joins && !multicast_may_join(c, &r->group, r->interface))
		return -EACCES;
	if (tenant_left(c->tenant, XTS_USE_SOCKET_BYTES) < MEMBERSHIP_BYTES ||
	    !tenant_take(c->tenant, XTS_USE_GROUPS, more)) {
		c->worker->stats.refused_limit++;
		return -command_refuse(c->channel, XTS_REFUSED_GROUPS);
	}
	tenant_give(c->tenant, XTS_USE_GROUPS, more); /* read_back() charges what the kernel has actually done */
	return 0;
}

static void leave(struct connection *c, const struct xts_endpoint *group)
{
	struct group_req m = { .gr_interface = group->scope_id };
	struct xts_endpoint address = *group;

	address.scope_id = 0;
	(void)endpoint_to_sockaddr(&address, &m.gr_group);
	(void)setsockopt(c->tcp.fd, group->ip_version == 4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_LEAVE_GROUP, &m, sizeof m);
}

/* Checks an interface that was named by an address or chosen by a route, which is known only after the join. */
static int check_interface(struct connection *c, const struct xts_endpoint *group)
{
	struct membership *m = find(c, group, LOOPBACK_INTERFACE);

	if (!m || multicast_may_join(c, group, LOOPBACK_INTERFACE))
		return 0;
	multicast_forget(c->datagrams->multicast, m);
	return -EACCES;
}

static int set_member(struct connection *c, const struct member_option *member, int level, int option,
		      const void *value, uint32_t bytes)
{
	struct request r;
	int error = request_read(&r, member, level, value, bytes);

	if (!error)
		error = check(c, &r);
	if (error)
		return error;
	if (setsockopt(c->tcp.fd, level, option, value, (socklen_t)bytes)) {
		error = errno;
		if (error == ENOBUFS && r.group.ip_version == 4)
			(void)command_refuse(c->channel, XTS_REFUSED_DEVICE_GROUPS);
		return -error;
	}
	error = read_back(c, &r);
	if (!error && r.joins)
		error = check_interface(c, &r.group);
	if (error) /* bind() and the tenant's other sockets would not know of a membership that is not in the list */
		leave(c, &r.group);
	return error;
}

/* --- the other options -------------------------------------------------------------------------------------------- */

/* Is it an address of the device's loopback interface? All of 127.0.0.0/8 are, and others may be. */
static bool is_of_loopback(const struct xts_worker_config *config, const void *ipv4)
{
	static const uint8_t none[4];

	if (*(const uint8_t *)ipv4 == 127)
		return true;
	for (uint32_t i = 0; i < config->interface_count; i++) {
		const struct xts_interface *one = &config->interfaces[i];

		for (uint32_t n = 0; one->index == LOOPBACK_INTERFACE && n < XTS_INTERFACE_IPV4; n++)
			if (!memcmp(one->ipv4[n], ipv4, sizeof none) && memcmp(ipv4, none, sizeof none))
				return true;
	}
	return false;
}

/* IP_MULTICAST_IF, IPV6_MULTICAST_IF: the device's loopback only if the rules allow it. */
static int set_interface(struct connection *c, int level, int option, const void *value, uint32_t bytes)
{
	uint32_t interface = 0;
	struct ip_mreqn m = { 0 };

	if (level == IPPROTO_IPV6 && bytes >= sizeof interface) {
		memcpy(&interface, value, sizeof interface);
	} else if (level == IPPROTO_IP && bytes >= sizeof m) {
		memcpy(&m, value, sizeof m);
		interface = (uint32_t)m.imr_ifindex;
	} else if (level == IPPROTO_IP && bytes >= sizeof(struct ip_mreq)) {
		memcpy(&m, value, sizeof(struct ip_mreq));
	} else if (level == IPPROTO_IP && bytes >= sizeof m.imr_address) {
		memcpy(&m.imr_address, value, sizeof m.imr_address);
	}
	if (level == IPPROTO_IP && !interface && is_of_loopback(&c->worker->config, &m.imr_address))
		interface = LOOPBACK_INTERFACE;
	if (!multicast_may_use(c, XTS_POLICY_CONNECT, interface, level == IPPROTO_IP ? 4 : 6, 0))
		return -EACCES;
	return setsockopt(c->tcp.fd, level, option, value, (socklen_t)bytes) ? -errno : 0;
}

/* Reads the value of an option that is on or off, as the kernel does. */
static int read_switch(int level, const void *value, uint32_t bytes, int *on)
{
	uint8_t byte;

	if (bytes >= sizeof *on) {
		memcpy(on, value, sizeof *on);
		return 0;
	}
	if (level == IPPROTO_IPV6 || !bytes)
		return -EINVAL;
	memcpy(&byte, value, sizeof byte);
	*on = byte;
	return 0;
}

/* The options whose value in the kernel may differ from the host's. */
static atomic_bool *switch_of(struct multicast *m, int level, int option)
{
	if (level == IPPROTO_IP)
		return option == IP_MULTICAST_ALL ? &m->all : option == IP_PKTINFO ? &m->pktinfo : NULL;
	return option == IPV6_MULTICAST_ALL ? &m->all6 : option == IPV6_RECVPKTINFO ? &m->pktinfo6 : NULL;
}

static bool level_is_of_another_family(const struct connection *c, int level)
{
	return level == IPPROTO_IPV6 && c->tcp.ip_version == 4;
}

int multicast_set(struct connection *c, int level, int option, const void *value, uint32_t bytes)
{
	const struct member_option *member = member_option(level, option);
	atomic_bool *one = switch_of(c->datagrams->multicast, level, option);
	int on, error;

	if (level_is_of_another_family(c, level))
		return -ENOPROTOOPT;
	if (member) {
		pthread_mutex_lock(&c->datagrams->multicast->mutex);
		error = set_member(c, member, level, option, value, bytes);
		pthread_mutex_unlock(&c->datagrams->multicast->mutex);
		return error;
	}
	if (!one)
		return set_interface(c, level, option, value, bytes);
	error = read_switch(level, value, bytes, &on);
	if (!error && level == IPPROTO_IP && option == IP_MULTICAST_ALL && on != 0 && on != 1)
		error = -EINVAL;
	return error ? error : groups_set_option(c->datagrams->multicast, one, on);
}

int multicast_get(struct connection *c, int level, int option, void *value, uint32_t *bytes)
{
	const atomic_bool *one = switch_of(c->datagrams->multicast, level, option);
	int on, error = xts_sockopt_get(c->tcp.fd, level, option, value, bytes);

	if (error || !one || !*bytes)
		return error;
	on = *one;
	if (*bytes >= sizeof on)
		memcpy(value, &on, sizeof on);
	else
		*(uint8_t *)value = (uint8_t)on;
	return 0;
}
