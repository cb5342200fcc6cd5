/* Where a datagram may be sent, and from which address. The rules' answer is remembered for a few destinations and one
 * source, as long as the rules do not change (datagram_socket.h). */
#include <errno.h>
#include <linux/net_tstamp.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "datagrams/datagram_socket.h"
#include "datagrams/multicast.h"

/* The control data that a host may send with a datagram; all other items exist only on receive. */
#define SENT_ITEMS \
	(1u << XTS_DATAGRAM_PKTINFO | 1u << XTS_DATAGRAM_HOP_LIMIT | 1u << XTS_DATAGRAM_TRAFFIC_CLASS | \
	 1u << XTS_DATAGRAM_STAMP_SEND | 1u << XTS_DATAGRAM_STAMP_ID)
/* Forgets what was permitted under former rules: it has to be checked again. */
static void forget_old_rules(struct connection *c)
{
	struct datagrams *d = c->datagrams;

	if (d->policy_number == c->worker->policy_number)
		return;
	d->policy_number = c->worker->policy_number;
	memset(d->permitted, 0, sizeof d->permitted);
	memset(&d->source, 0, sizeof d->source);
}

static bool same(const struct xts_endpoint *a, const struct xts_endpoint *b)
{
	return a->ip_version == b->ip_version && a->port == b->port &&
	       !memcmp(a->address, b->address, sizeof a->address);
}

static bool may_send_to(struct connection *c, const struct xts_endpoint *to)
{
	struct datagrams *d = c->datagrams;

	if (!to->ip_version)
		return true; /* it was checked when the socket was connected */
	for (uint32_t i = 0; i < DATAGRAM_PERMITTED; i++)
		if (same(&d->permitted[i], to))
			return true;
	if (!command_allowed(c->channel, XTS_POLICY_CONNECT, to))
		return false;
	d->permitted[d->permitted_next++ % DATAGRAM_PERMITTED] = *to;
	return true;
}

/* Checked as if the socket were bound to that address. The kernel refuses addresses that the device does not have. */
static bool may_send_from(struct connection *c, const struct xts_endpoint *from)
{
	struct datagrams *d = c->datagrams;
	struct xts_endpoint local = *from;

	if (endpoint_is_unspecified(from) || same(&d->source, from))
		return true;
	local.port = 0;
	if (d->bound) {
		struct xts_endpoint bound;

		socket_local(c->tcp.fd, &bound);
		local.port = bound.port;
	}
	if (!command_allowed(c->channel, XTS_POLICY_LISTEN, &local))
		return false;
	d->source = *from;
	return true;
}

/* A datagram to a group may name its outgoing interface. */
static bool may_leave_by(struct connection *c, const struct xts_datagram *d)
{
	uint32_t interface = d->controls & 1u << XTS_DATAGRAM_PKTINFO ? d->pktinfo.scope_id : 0;
	struct xts_endpoint peer;

	if (d->record.endpoint.ip_version)
		return multicast_may_send(c, &d->record.endpoint, interface);
	if (!interface || !c->datagrams->peer_is_multicast)
		return true;
	socket_peer(c->tcp.fd, &peer);
	return multicast_may_send(c, &peer, interface);
}

uint32_t datagram_why_not(struct connection *c, const struct xts_datagram *d)
{
	forget_old_rules(c);
	if (d->unknown || d->controls & ~SENT_ITEMS)
		return EINVAL;
	if (d->controls & 1u << XTS_DATAGRAM_STAMP_SEND && d->stamp_send & ~(uint32_t)SOF_TIMESTAMPING_TX_RECORD_MASK)
		return EINVAL;
	if (!may_send_to(c, &d->record.endpoint) || !may_leave_by(c, d))
		return EACCES;
	if (d->controls & 1u << XTS_DATAGRAM_PKTINFO && !may_send_from(c, &d->pktinfo))
		return EACCES;
	return 0;
}
