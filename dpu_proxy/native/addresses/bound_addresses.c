/* Which tenant, and which of its users, is bound where. bound_addresses.h has the theory of operation. */
#include "addresses/bound_addresses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "addresses/socket_address.h"
#include "channel/channel.h"
#include "worker/common_lock.h"

#define BUCKETS 1024u

struct bound_address {
	struct list by_port;
	struct xts_tenant *tenant; /* a reference */
	uint32_t uid;
	bool reuse; /* it had SO_REUSEADDR when it was bound */
	bool listens;
	enum bound_protocol protocol;
	struct xts_endpoint local;
	uint32_t holders;
};

static struct {
	pthread_mutex_t mutex;
	bool ready;
	struct list by_port[BUCKETS];
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct list *bucket(uint16_t port)
{
	if (!table.ready) {
		for (uint32_t i = 0; i < BUCKETS; i++)
			list_init(&table.by_port[i]);
		table.ready = true;
	}
	return &table.by_port[port % BUCKETS];
}

/* May these two, of which the second comes later, not both have the address? */
static bool excludes(const struct bound_address *first, const struct bound_address *second)
{
	if (first->tenant != second->tenant)
		return true;
	return first->uid != second->uid && !(first->reuse && second->reuse && !first->listens);
}

/* Does somebody have this address, or one that includes it or is included in it, who excludes this one? */
static bool is_anothers(const struct bound_address *b)
{
	const struct list *head = bucket(b->local.port), *node;

	if (!b->local.port)
		return false; /* a socket that is bound and has no port yet (IP_BIND_ADDRESS_NO_PORT) takes none away */
	if (endpoint_is_multicast(&b->local))
		return false; /* each socket that has joined the group gets a copy: sharing takes nothing away */
	for (node = head->next; node != head; node = node->next) {
		const struct bound_address *other = list_entry(node, struct bound_address, by_port);

		if (other != b && other->protocol == b->protocol && other->local.port == b->local.port &&
		    excludes(other, b) && !endpoint_is_multicast(&other->local) &&
		    endpoint_overlaps(&other->local, &b->local))
			return true;
	}
	return false;
}

static bool has_reuse(int fd)
{
	int on = 0;
	socklen_t length = sizeof on;

	return !getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, &length) && on;
}

struct bound_address *bound_address_take(const struct connection *c, enum bound_protocol protocol,
					 const struct xts_endpoint *local, int *error)
{
	struct bound_address *b = calloc(1, sizeof *b);

	if (!b) {
		*error = ENOMEM;
		return NULL;
	}
	b->protocol = protocol;
	b->local = *local;
	b->holders = 1;
	b->tenant = c->tenant;
	b->uid = c->channel->owner.uid;
	b->reuse = has_reuse(c->tcp.fd);
	common_lock(&table.mutex);
	if (is_anothers(b)) {
		common_unlock(&table.mutex);
		free(b);
		*error = EADDRINUSE;
		return NULL;
	}
	(void)tenant_hold(b->tenant);
	list_append(bucket(local->port), &b->by_port);
	common_unlock(&table.mutex);
	*error = 0;
	return b;
}

int bound_address_listens(struct bound_address *b)
{
	bool anothers;

	if (!b)
		return 0;
	common_lock(&table.mutex);
	anothers = is_anothers(b);
	if (!anothers)
		b->listens = true;
	common_unlock(&table.mutex);
	return anothers ? EADDRINUSE : 0;
}

struct bound_address *bound_address_hold(struct bound_address *b)
{
	if (!b)
		return NULL;
	common_lock(&table.mutex);
	b->holders++;
	common_unlock(&table.mutex);
	return b;
}

void bound_address_release(struct bound_address *b)
{
	bool last;

	if (!b)
		return;
	common_lock(&table.mutex);
	last = --b->holders == 0;
	if (last)
		list_remove(&b->by_port);
	common_unlock(&table.mutex);
	if (!last)
		return;
	xts_tenant_release(b->tenant);
	free(b);
}
