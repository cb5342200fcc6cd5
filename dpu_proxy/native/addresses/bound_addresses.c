/* Which tenant is bound where. bound_addresses.h has the theory of operation. */
#include "addresses/bound_addresses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "channel/channel.h"
#include "worker/common_lock.h"

#define BUCKETS 1024u

struct bound_address {
	struct list by_port;
	struct xts_tenant *tenant; /* a reference */
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

/* Does another tenant have this address, or one that includes it or is included in it? */
static bool is_anothers(const struct xts_tenant *t, enum bound_protocol protocol, const struct xts_endpoint *local)
{
	const struct list *head = bucket(local->port), *node;

	if (!local->port)
		return false; /* a socket that is bound and has no port yet (IP_BIND_ADDRESS_NO_PORT) takes none away */
	if (endpoint_is_multicast(local))
		return false; /* each socket that has joined the group gets a copy: sharing takes nothing away */
	for (node = head->next; node != head; node = node->next) {
		const struct bound_address *b = list_entry(node, struct bound_address, by_port);

		if (b->tenant != t && b->protocol == protocol && b->local.port == local->port &&
		    !endpoint_is_multicast(&b->local) && endpoint_overlaps(&b->local, local))
			return true;
	}
	return false;
}

struct bound_address *bound_address_take(struct xts_tenant *t, enum bound_protocol protocol,
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
	common_lock(&table.mutex);
	if (is_anothers(t, protocol, local)) {
		common_unlock(&table.mutex);
		free(b);
		*error = EADDRINUSE;
		return NULL;
	}
	b->tenant = tenant_hold(t);
	list_append(bucket(local->port), &b->by_port);
	common_unlock(&table.mutex);
	*error = 0;
	return b;
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
