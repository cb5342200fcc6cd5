/*
 * Connections that a listener with pushed protocols has accepted, until it announces them: their handshakes
 * come first (PROTOCOL.md).
 *
 * Such a connection is in state CONNECTING. It is in its listener's channel, counts as a connection there, and is on
 * one of the listener's two lists. Their length is limited: more connections wait in the kernel's backlog. When its
 * handshake is done it waits for a post credit of the listener, or, if the listener is shared, goes to another member.
 * When the handshake fails, or the listener is closed, the connection is closed and never announced.
 *
 * A listener's connections are limited (ACCEPTING_MAX), and so are the handshakes of a tenant, over all its listeners
 * (limits.handshakes). Peers that connect and never do their handshake could use up these limits for as long as a
 * handshake may last. So at a limit the next connection replaces another one, the first of these that exists: the
 * oldest of its own source, if that has a quarter of the room; the oldest that has sent nothing; the oldest of any
 * source that has a quarter; the oldest, if it has had the time that a first byte may take. Sources are IPv4 addresses
 * and IPv6 networks (/64), counted by a hash with a secret of the listener.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/keyed_hash.h"
#include "common/time_units.h"
#include "pushed/pushed.h"
#include "ulp/config.h"

#define ACCEPTING_MAX 256u
#define SOURCE_MAX (ACCEPTING_MAX / 4)
#define SOURCES 256u

struct accepting {
	struct list handshaking, handshake_done; /* linked by connection.offers; handshaking: the oldest first */
	uint32_t count;
	uint64_t factor;
	uint16_t by_source[SOURCES]; /* how many on handshaking hash to each source */
};

/* --- sources ------------------------------------------------------------------------------------------------------ */

static bool is_mapped(const struct xts_endpoint *e)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return e->ip_version == 6 && memcmp(e->address, mapped, sizeof mapped) == 0;
}

static uint16_t *source_of(struct accepting *a, const struct xts_endpoint *peer)
{
	uint64_t address = 0;

	if (is_mapped(peer))
		memcpy(&address, peer->address + 12, 4);
	else
		memcpy(&address, peer->address, peer->ip_version == 6 ? 8 : 4);
	return &a->by_source[keyed_hash(address, a->factor) >> 56];
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static bool is_silent(const struct connection *c)
{
	int bytes = 0;

	return !ulp_stack_heard(c->tcp.pushed->stack) && !ioctl(c->tcp.fd, FIONREAD, &bytes) && !bytes;
}

static bool is_old(const struct connection *c)
{
	uint32_t timeout_ms = xts_ulp_config_limits(c->worker->config.ulp)->first_byte_timeout_ms;

	return c->worker->now_ns - c->tcp.pushed->accepted_ns >= (uint64_t)timeout_ms * NS_PER_MS;
}

/* The connection that a new one from peer (NULL: from anywhere) would replace, as there is no room. NULL: none. */
static struct connection *gives_way(struct accepting *a, const struct xts_endpoint *peer)
{
	uint16_t *own = peer ? source_of(a, peer) : NULL;
	struct connection *greedy = NULL;

	if (own && *own < SOURCE_MAX)
		own = NULL;
	for (struct list *node = a->handshaking.next; node != &a->handshaking; node = node->next) {
		struct connection *c = list_entry(node, struct connection, offers);
		uint16_t *source = source_of(a, &c->tcp.pushed->peer);

		if (own ? source == own : is_silent(c))
			return c;
		if (!greedy && *source >= SOURCE_MAX)
			greedy = c;
	}
	if (!greedy && !list_empty(&a->handshaking) && is_old(list_entry(a->handshaking.next, struct connection, offers)))
		greedy = list_entry(a->handshaking.next, struct connection, offers);
	return greedy;
}

/* Is there room in the listener, and in its tenant's limit of handshakes? */
static bool has_free_room(const struct connection *l, const struct accepting *a)
{
	if (a && a->count >= ACCEPTING_MAX)
		return false;
	return tenant_left(l->tenant, XTS_USE_HANDSHAKES) || !ulp_stack_has_handshake(l->tcp.pushed->stack);
}

bool accepting_has_room(const struct connection *l)
{
	struct accepting *a = l->tcp.pushed->accepting;

	return has_free_room(l, a) || (a && gives_way(a, NULL));
}

/* Allocated for the first connection. NULL: no memory. */
static struct accepting *accepting_of(struct connection *l)
{
	struct accepting *a = l->tcp.pushed->accepting;

	if (a)
		return a;
	a = calloc(1, sizeof *a);
	if (!a)
		return NULL;
	a->factor = keyed_hash_factor();
	list_init(&a->handshaking);
	list_init(&a->handshake_done);
	l->tcp.pushed->accepting = a;
	return a;
}

/* Makes room for a connection from peer. False: there is no room. */
static bool make_room(struct connection *l, const struct xts_endpoint *peer)
{
	struct accepting *a = accepting_of(l);
	struct connection *c;

	if (!a)
		return false;
	if (has_free_room(l, a))
		return true;
	c = gives_way(a, peer);
	if (!c)
		return false;
	l->worker->stats.ulp_handshakes_failed++;
	l->worker->stats.ulp_faults[XTS_FAULT_STALLED]++;
	connection_free(c, true);
	return true;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void begin(struct connection *l, struct connection *c, const struct xts_endpoint *peer)
{
	struct accepting *a = l->tcp.pushed->accepting;

	connection_enter(c, CONNECTION_CONNECTING);
	c->tcp.accepted = true;
	c->writable = true;
	c->listener = l;
	c->tcp.pushed->peer = *peer;
	c->tcp.pushed->accepted_ns = c->worker->now_ns;
	ulp_stack_expect_peer(c->tcp.pushed->stack);
	list_append(&a->handshaking, &c->offers);
	a->count++;
	++*source_of(a, peer);
}

/* The handshake of c is done or has failed. */
static void handshake_ended(struct connection *c)
{
	struct accepting *a = c->listener->tcp.pushed->accepting;

	if (c->tcp.pushed->accepted_ns)
		--*source_of(a, &c->tcp.pushed->peer);
	c->tcp.pushed->accepted_ns = 0;
	list_remove(&c->offers);
}

bool accepting_begin(struct connection *l, struct connection *c, const struct xts_endpoint *peer)
{
	bool is_new = !c->tcp.pushed;
	int r = make_room(l, peer) ? 0 : -ENOBUFS;

	if (!r && is_new)
		r = pushed_copy(&c->tcp.pushed, l->tcp.pushed, c);
	else if (!r && !pushed_adopt(c))
		r = -ENOBUFS;
	if (r || connection_grant_window(c) < XTS_ULP_WINDOW_MIN) {
		c->worker->stats.refused_limit += !r;
		connection_free(c, true);
		return false;
	}
	for (uint32_t i = 0; is_new && i < c->tcp.pushed->id_count; i++)
		c->worker->stats.ulp_pushed[c->tcp.pushed->ids[i]]++;
	begin(l, c, peer);
	pushed_start(c); /* may free c, or complete its handshakes */
	if (c->tcp.fd < 0)
		return false;
	if (!c->tcp.pushed->ready && !c->tcp.pushed->peeking) {
		if (connection_watch(c)) /* its first event goes on with the handshake */
			connection_free(c, true);
		return false;
	}
	if (l->held) {
		accepting_ends(c);
		return true;
	}
	accepting_done(c, 0);
	return false;
}

void accepting_done(struct connection *c, int error)
{
	struct connection *l = c->listener;

	if (error) {
		pushed_fail(c); /* the protocol may send an alert; FIN goes out before the socket is closed */
		connection_free(c, false);
		return;
	}
	handshake_ended(c);
	list_append(&l->tcp.pushed->accepting->handshake_done, &c->offers);
	connection_wake(l);
}

struct connection *accepting_next(struct connection *l)
{
	const struct accepting *a = l->tcp.pushed->accepting;

	return !a || list_empty(&a->handshake_done) ? NULL :
						      list_entry(a->handshake_done.next, struct connection, offers);
}

struct connection *accepting_any(struct connection *l)
{
	struct connection *c = l->tcp.pushed ? accepting_next(l) : NULL;
	const struct accepting *a = l->tcp.pushed ? l->tcp.pushed->accepting : NULL;

	return c || !a || list_empty(&a->handshaking) ? c : list_entry(a->handshaking.next, struct connection, offers);
}

void accepting_ends(struct connection *c)
{
	handshake_ended(c);
	c->listener->tcp.pushed->accepting->count--;
	c->listener = NULL;
}

void accepting_drop(struct connection *l)
{
	for (struct connection *c = accepting_any(l); c; c = accepting_any(l))
		connection_free(c, true);
}

void accepting_free(struct pushed *p)
{
	free(p->accepting);
}
