/*
 * Which groups the sockets of each tenant have joined, and which of its sockets want all of them (multicast.h).
 *
 * All workers share the table, under one mutex, but it is consulted for each datagram to a group. So a worker caches
 * the last answers, each with the table's number of changes at that time. An answer is valid while that number is the
 * same.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "common/keyed_hash.h"
#include "datagrams/multicast.h"
#include "worker/common_lock.h"

#define BUCKETS 1024u
#define ANSWERS 64u

struct group {
	struct list by_address;
	struct xts_tenant *tenant; /* a reference */
	struct xts_endpoint address;
	uint32_t members;
};

/* The sockets of a tenant. */
struct sockets {
	struct list by_tenant;
	struct xts_tenant *tenant;
	struct list list;
	bool filters; /* one of them has joined a group at some time */
};

static struct {
	pthread_mutex_t mutex;
	_Atomic uint64_t changes; /* number of changes to which tenant has joined which group */
	bool ready;
	uint64_t factor;
	struct list by_address[BUCKETS]; /* struct group */
	struct list by_tenant[BUCKETS];  /* struct sockets */
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changes = 1 };

/* The last answers that this worker got. If a tenant is gone and another one has the same memory address, the answer
 * stays the same until the table changes. */
static _Thread_local struct {
	const struct xts_tenant *tenant;
	struct xts_endpoint address;
	uint64_t changes; /* 0: nothing yet */
	bool joined;
} answers[ANSWERS];

/* --- options of sockets, with the mutex held ---------------------------------------------------------------------- */

static int set(const struct multicast *m, int level, int option, int value)
{
	return setsockopt(m->fd, level, option, &value, sizeof value) ? errno : 0;
}

/* PKTINFO is set first, so that every datagram that comes because of ALL has its interface. */
static int apply(struct multicast *m)
{
	bool filters = atomic_load(&m->filters), all = filters && m->all, all6 = filters && m->all6;
	int error = 0;

	if (m->ipv6)
		error = set(m, IPPROTO_IPV6, IPV6_RECVPKTINFO, m->pktinfo6 || all || all6);
	if (!error)
		error = set(m, IPPROTO_IP, IP_PKTINFO, m->pktinfo || (!m->ipv6 && all));
	if (!error)
		error = set(m, IPPROTO_IP, IP_MULTICAST_ALL, all);
	if (!error && m->ipv6)
		error = set(m, IPPROTO_IPV6, IPV6_MULTICAST_ALL, all6);
	return error;
}

int groups_set_option(struct multicast *m, atomic_bool *option, bool value)
{
	int error;

	common_lock(&table.mutex);
	*option = value;
	error = apply(m);
	common_unlock(&table.mutex);
	return -error;
}

/* --- sockets of tenants ------------------------------------------------------------------------------------------- */

static void make_ready(void)
{
	if (table.ready)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		list_init(&table.by_address[i]);
		list_init(&table.by_tenant[i]);
	}
	table.factor = keyed_hash_factor();
	table.ready = true;
}

static struct sockets *sockets_of(const struct xts_tenant *t)
{
	const struct list *head = &table.by_tenant[t->id % BUCKETS], *node;

	for (node = head->next; node != head; node = node->next) {
		struct sockets *s = list_entry(node, struct sockets, by_tenant);

		if (s->tenant == t)
			return s;
	}
	return NULL;
}

static struct sockets *make_sockets(struct xts_tenant *t)
{
	struct sockets *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->tenant = t; /* the sockets have references */
	list_init(&s->list);
	list_append(&table.by_tenant[t->id % BUCKETS], &s->by_tenant);
	return s;
}

int groups_enter(struct multicast *m)
{
	struct sockets *s;
	int error = ENOMEM;

	common_lock(&table.mutex);
	make_ready();
	s = sockets_of(m->tenant);
	if (!s)
		s = make_sockets(m->tenant);
	if (s) {
		atomic_store(&m->filters, s->filters);
		list_append(&s->list, &m->of_tenant);
		error = apply(m);
	}
	common_unlock(&table.mutex);
	return error;
}

void groups_use(struct multicast *m, int fd)
{
	common_lock(&table.mutex);
	m->fd = fd;
	common_unlock(&table.mutex);
}

void groups_leave(struct multicast *m)
{
	struct sockets *s;

	common_lock(&table.mutex);
	list_remove(&m->of_tenant);
	s = table.ready ? sockets_of(m->tenant) : NULL;
	if (s && list_empty(&s->list)) {
		list_remove(&s->by_tenant);
		free(s);
	}
	common_unlock(&table.mutex);
}

/* Called at the first join of a tenant: only once while it has sockets, so a host cannot trigger it again and again. */
static void begin_to_filter(struct xts_tenant *t)
{
	struct sockets *s = sockets_of(t);
	struct list *node;

	if (!s || s->filters)
		return;
	s->filters = true;
	for (node = s->list.next; node != &s->list; node = node->next) {
		struct multicast *m = list_entry(node, struct multicast, of_tenant);

		atomic_store(&m->filters, true);
		(void)apply(m); /* these options cannot fail for lack of a resource */
	}
}

/* --- groups of tenants -------------------------------------------------------------------------------------------- */

/* Hosts choose the groups. A search in a long bucket would delay all other tenants too, for it holds the mutex. */
static struct list *bucket(const struct xts_endpoint *address)
{
	uint64_t halves[2];

	_Static_assert(sizeof halves == sizeof address->address, "halves of an address");
	memcpy(halves, address->address, sizeof halves);
	halves[1] ^= keyed_hash(halves[0] ^ address->scope_id, table.factor);
	return &table.by_address[keyed_hash(halves[1], table.factor) % BUCKETS];
}

static bool is_same(const struct xts_endpoint *a, const struct xts_endpoint *b)
{
	return a->ip_version == b->ip_version && a->scope_id == b->scope_id &&
	       !memcmp(a->address, b->address, sizeof a->address);
}

static struct group *find(const struct xts_tenant *t, const struct xts_endpoint *address)
{
	const struct list *head, *node;

	if (!table.ready)
		return NULL;
	head = bucket(address);
	for (node = head->next; node != head; node = node->next) {
		struct group *g = list_entry(node, struct group, by_address);

		if (g->tenant == t && is_same(&g->address, address))
			return g;
	}
	return NULL;
}

struct group *group_take(struct xts_tenant *t, const struct xts_endpoint *address)
{
	struct group *g;

	common_lock(&table.mutex);
	g = find(t, address);
	if (g) {
		g->members++;
	} else if ((g = calloc(1, sizeof *g))) {
		g->tenant = tenant_hold(t);
		g->address = *address;
		g->members = 1;
		list_append(bucket(address), &g->by_address);
		atomic_fetch_add(&table.changes, 1);
		begin_to_filter(t);
	}
	common_unlock(&table.mutex);
	return g;
}

void group_release(struct group *g)
{
	bool last;

	if (!g)
		return;
	common_lock(&table.mutex);
	last = --g->members == 0;
	if (last) {
		list_remove(&g->by_address);
		atomic_fetch_add(&table.changes, 1);
	}
	common_unlock(&table.mutex);
	if (!last)
		return;
	xts_tenant_release(g->tenant);
	free(g);
}

bool group_is_taken(const struct xts_tenant *t, const struct xts_endpoint *address)
{
	const uint8_t *bytes = address->address; /* groups differ most in their last bytes, of IPv4 and of IPv6 */
	uint32_t at = (bytes[2] * 31u + bytes[3] + bytes[14] * 31u + bytes[15]) % ANSWERS;

	if (answers[at].changes == atomic_load(&table.changes) && answers[at].tenant == t &&
	    is_same(&answers[at].address, address))
		return answers[at].joined;
	common_lock(&table.mutex);
	answers[at].tenant = t;
	answers[at].address = *address;
	answers[at].changes = atomic_load(&table.changes);
	answers[at].joined = find(t, address);
	common_unlock(&table.mutex);
	return answers[at].joined;
}
