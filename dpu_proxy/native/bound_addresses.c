/* Which tenant is bound where. bound_addresses.h has the theory of operation. */
#include "bound_addresses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "common_lock.h"
#include "socket_address.h"

#define BUCKETS 1024u

struct name {
	struct list by_port;
	struct xts_tenant *tenant; /* a reference */
	enum name_protocol protocol;
	struct xts_endpoint local;
	uint32_t holders;
};

static struct {
	pthread_mutex_t mutex;
	bool ready;
	struct list by_port[BUCKETS];
} names = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct list *bucket(uint16_t port)
{
	if (!names.ready) {
		for (uint32_t i = 0; i < BUCKETS; i++)
			list_init(&names.by_port[i]);
		names.ready = true;
	}
	return &names.by_port[port % BUCKETS];
}

/* Does another tenant have this address, or one that includes it or is included in it? */
static bool is_anothers(const struct xts_tenant *t, enum name_protocol protocol, const struct xts_endpoint *local)
{
	const struct list *head = bucket(local->port), *node;

	if (!local->port)
		return false; /* a socket that is bound and has no port yet (IP_BIND_ADDRESS_NO_PORT) takes none away */
	if (endpoint_is_multicast(local))
		return false; /* each socket that has joined the group gets a copy: sharing takes nothing away */
	for (node = head->next; node != head; node = node->next) {
		const struct name *n = list_entry(node, struct name, by_port);

		if (n->tenant != t && n->protocol == protocol && n->local.port == local->port &&
		    !endpoint_is_multicast(&n->local) && endpoint_overlaps(&n->local, local))
			return true;
	}
	return false;
}

struct name *name_take(struct xts_tenant *t, enum name_protocol protocol, const struct xts_endpoint *local, int *error)
{
	struct name *n = calloc(1, sizeof *n);

	if (!n) {
		*error = ENOMEM;
		return NULL;
	}
	n->protocol = protocol;
	n->local = *local;
	n->holders = 1;
	common_lock(&names.mutex);
	if (is_anothers(t, protocol, local)) {
		common_unlock(&names.mutex);
		free(n);
		*error = EADDRINUSE;
		return NULL;
	}
	n->tenant = tenant_hold(t);
	list_append(bucket(local->port), &n->by_port);
	common_unlock(&names.mutex);
	*error = 0;
	return n;
}

struct name *name_hold(struct name *n)
{
	if (!n)
		return NULL;
	common_lock(&names.mutex);
	n->holders++;
	common_unlock(&names.mutex);
	return n;
}

void name_release(struct name *n)
{
	bool last;

	if (!n)
		return;
	common_lock(&names.mutex);
	last = --n->holders == 0;
	if (last)
		list_remove(&n->by_port);
	common_unlock(&names.mutex);
	if (!last)
		return;
	xts_tenant_release(n->tenant);
	free(n);
}
