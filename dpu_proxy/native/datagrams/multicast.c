/* Datagram sockets and multicast: policy, and which datagrams a socket gets (multicast.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "datagrams/datagram_record.h"
#include "datagrams/datagram_socket.h"
#include "datagrams/multicast.h"
#include "tenants/policy.h"

static struct multicast *make(struct connection *c)
{
	struct multicast *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	pthread_mutex_init(&m->mutex, NULL);
	atomic_store(&m->users, 1);
	list_init(&m->memberships);
	list_init(&m->of_tenant);
	m->tenant = tenant_hold(c->tenant);
	m->fd = c->tcp.fd;
	m->ipv6 = c->tcp.ip_version == 6;
	c->datagrams->multicast = m;
	return m;
}

int multicast_begin(struct connection *c)
{
	struct multicast *m = make(c);

	if (!m)
		return ENOMEM;
	m->all = !m->ipv6; /* the kernel's defaults */
	m->all6 = m->ipv6;
	return groups_enter(m);
}

int multicast_arrives(struct connection *c, const struct datagram_side *s)
{
	struct multicast *m = make(c);
	int error;

	if (!m)
		return -ENOMEM;
	m->all = s->all;
	m->all6 = s->all6;
	m->pktinfo = s->pktinfo;
	m->pktinfo6 = s->pktinfo6;
	error = -groups_enter(m);
	for (uint32_t i = 0; !error && i < s->groups.count; i++) {
		const struct datagram_group *g = &s->groups.groups[i];
		struct xts_endpoint group = { .ip_version = g->ip_version, .scope_id = g->interface };

		memcpy(group.address, g->address, sizeof group.address);
		error = multicast_recall(c, &group);
	}
	return error;
}

int multicast_describe(struct multicast *m, struct datagram_side *s)
{
	const struct list *head = &m->memberships;
	int error = 0;

	s->all = m->all;
	s->all6 = m->all6;
	s->pktinfo = m->pktinfo;
	s->pktinfo6 = m->pktinfo6;
	pthread_mutex_lock(&m->mutex);
	for (const struct list *node = head->next; !error && node != head; node = node->next) {
		const struct membership *one = list_entry(node, struct membership, of_socket);
		struct datagram_group group = { .ip_version = one->address.ip_version,
						.interface = one->address.scope_id };

		memcpy(group.address, one->address.address, sizeof group.address);
		error = datagram_groups_list.append(&s->groups, &group);
	}
	pthread_mutex_unlock(&m->mutex);
	return error;
}

static bool has(const struct multicast *m, const struct membership *one)
{
	for (const struct list *node = m->memberships.next; node != &m->memberships; node = node->next) {
		const struct membership *other = list_entry(node, struct membership, of_socket);

		if (other->address.ip_version == one->address.ip_version &&
		    other->address.scope_id == one->address.scope_id &&
		    !memcmp(other->address.address, one->address.address, sizeof one->address.address))
			return true;
	}
	return false;
}

struct multicast *multicast_join(struct multicast *own, struct multicast *common)
{
	pthread_mutex_lock(&common->mutex);
	while (!list_empty(&own->memberships)) {
		struct membership *one = list_entry(own->memberships.next, struct membership, of_socket);

		if (has(common, one)) {
			multicast_forget(own, one);
			continue;
		}
		list_remove(&one->of_socket);
		list_append(&common->memberships, &one->of_socket);
	}
	pthread_mutex_unlock(&common->mutex);
	multicast_release(own);
	return multicast_hold(common);
}

struct multicast *multicast_hold(struct multicast *m)
{
	atomic_fetch_add(&m->users, 1);
	return m;
}

void multicast_release(struct multicast *m)
{
	if (!m || atomic_fetch_sub(&m->users, 1) != 1)
		return;
	while (!list_empty(&m->memberships)) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the freed one is not in the list */
		multicast_forget(m, list_entry(m->memberships.next, struct membership, of_socket));
	}
	groups_leave(m);
	xts_tenant_release(m->tenant);
	pthread_mutex_destroy(&m->mutex);
	free(m);
}

void multicast_forget(struct multicast *of, struct membership *m)
{
	tenant_give(of->tenant, XTS_USE_GROUPS, 1 + m->sources);
	tenant_give(of->tenant, XTS_USE_SOCKET_BYTES, MEMBERSHIP_BYTES);
	group_release(m->group);
	list_remove(&m->of_socket);
	free(m);
}

/* --- policy ------------------------------------------------------------------------------------------------------- */

static uint16_t port_of(const struct connection *c)
{
	struct xts_endpoint local;

	socket_local(c->tcp.fd, &local);
	return local.port;
}

/* Do the rules allow this action? Port 0: is there a port for which they do? */
static bool allowed(struct connection *c, enum xts_policy_action action, struct xts_endpoint address, uint16_t port)
{
	const struct xts_worker_config *config = &c->worker->config;
	bool otherwise = action == XTS_POLICY_CONNECT ? config->policy_default_allow : config->policy_listen_allow;

	address.port = port;
	address.scope_id = 0;
	if (!port && xts_policy_allows_some_port(config->rules, config->rule_count, otherwise, (uint8_t)action,
						 c->tenant->id, c->channel->queue_id, &address))
		return true;
	return command_allowed(c->channel, action, &address);
}

static struct xts_endpoint loopback_of(uint8_t ip_version)
{
	struct xts_endpoint address = { .ip_version = ip_version };

	if (ip_version == 4) {
		address.address[0] = 127;
		address.address[3] = 1;
	} else {
		address.address[15] = 1;
	}
	return address;
}

bool multicast_may_use(struct connection *c, enum xts_policy_action action, uint32_t interface, uint8_t ip_version,
		       uint16_t port)
{
	return interface != LOOPBACK_INTERFACE || allowed(c, action, loopback_of(ip_version), port);
}

bool multicast_may_join(struct connection *c, const struct xts_endpoint *group, uint32_t interface)
{
	uint16_t port = port_of(c);

	return allowed(c, XTS_POLICY_LISTEN, *group, port) &&
	       multicast_may_use(c, XTS_POLICY_LISTEN, interface, group->ip_version, port);
}

bool multicast_may_bind(struct connection *c, uint16_t port)
{
	struct multicast *of = c->datagrams->multicast;
	const struct list *head = &of->memberships, *node;
	bool may = true;

	if (!port)
		return true; /* an interface that hosts cannot choose */
	pthread_mutex_lock(&of->mutex);
	for (node = head->next; may && node != head; node = node->next) {
		const struct membership *m = list_entry(node, struct membership, of_socket);

		may = allowed(c, XTS_POLICY_LISTEN, m->address, port) &&
		      multicast_may_use(c, XTS_POLICY_LISTEN, m->address.scope_id, m->address.ip_version, port);
	}
	pthread_mutex_unlock(&of->mutex);
	return may;
}

bool multicast_may_send(struct connection *c, const struct xts_endpoint *to, uint32_t interface)
{
	return !endpoint_is_multicast(to) ||
	       multicast_may_use(c, XTS_POLICY_CONNECT, interface ? interface : to->scope_id, to->ip_version, to->port);
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

bool multicast_passes(struct connection *c, struct xts_datagram *d)
{
	struct multicast *m = c->datagrams->multicast;
	struct xts_endpoint to = d->pktinfo;

	if (!(d->controls & 1u << XTS_DATAGRAM_PKTINFO))
		return true;
	if (!(m->ipv6 ? m->pktinfo6 || m->pktinfo : m->pktinfo)) {
		d->controls &= ~(1u << XTS_DATAGRAM_PKTINFO | 1u << XTS_DATAGRAM_SPEC_DST);
		d->pktinfo = (struct xts_endpoint){ 0 };
	}
	/* Without an interface, the datagram came before the option was on: to a member, or to the socket's own
	 * address. */
	if (!atomic_load_explicit(&m->filters, memory_order_relaxed) || !to.scope_id || !endpoint_is_multicast(&to))
		return true;
	to = endpoint_plain(&to);
	if (group_is_taken(c->tenant, &to))
		return true;
	to.scope_id = 0; /* check for a group joined on an interface that was not listed */
	return group_is_taken(c->tenant, &to);
}
