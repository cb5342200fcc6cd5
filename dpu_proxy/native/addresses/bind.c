/*
 * BIND: where a socket of a host is bound; and where it connects from.
 *
 * Policy has to allow an address or port of the device, but not one that the kernel picks for a connect. Low ports are
 * for privileged processes, as on the kernel (struct xts_owner). An address and port that another tenant or user is
 * bound to is in use, whatever sharing the socket options allow. A listener that is only
 * kept for processes that may join it is closed for a new bind. The connections in its backlog are reset in turns of
 * the channel, and until that is done nothing more is received from the channel's queue (channel->binding). It is the
 * same while a BIND or CONNECT looks for a port (local_ports.h, channel->connecting).
 */
#include <errno.h>
#include <sys/socket.h>

#include "addresses/local_ports.h"
#include "addresses/socket_address.h"
#include "channel/tickets.h"
#include "datagrams/datagram_socket.h"
#include "processes/share.h"
#include "tenants/policy.h"

#define LATER LOCAL_PORTS_LATER /* also: kept listeners are still being closed */

int connection_note_bound_address(struct connection *c)
{
	struct xts_endpoint local;
	int error;

	socket_local(c->fd, &local);
	c->bound_to = bound_address_take(c, c->datagrams ? BOUND_UDP : BOUND_TCP, &local, &error);
	return error;
}

int connection_bind_fd(struct connection *c, const struct xts_endpoint *local, uint32_t *tried)
{
	struct sockaddr_storage address;
	socklen_t length = endpoint_to_sockaddr(local, &address);
	int error;

	if (local->port)
		return bind(c->fd, (const struct sockaddr *)&address, length) ? errno : 0;
	error = local_ports_bind(c->worker, c->tenant, c->fd, (const struct sockaddr *)&address, length, tried);
	return error == EADDRINUSE ? command_refuse(c->channel, XTS_REFUSED_BIND_PORTS) : error;
}

bool connection_may_have_port(const struct connection *c, uint16_t port)
{
	if (!port || port >= c->channel->owner.first_port || c->worker->config.low_ports_for_all)
		return true;
	c->worker->stats.refused_policy++;
	(void)command_refuse(c->channel, XTS_REFUSED_LOW_PORT);
	return false;
}

static bool has_port(const struct connection *c)
{
	struct xts_endpoint local = { 0 };

	if (c->bound_to) /* else it is not bound; with IP_BIND_ADDRESS_NO_PORT it is bound and has none */
		socket_local(c->fd, &local);
	return local.port;
}

int connection_connect_fd(struct connection *c, const struct sockaddr *address, socklen_t length)
{
	int error;

	if (has_port(c))
		return connect(c->fd, address, length) ? errno : 0;
	error = local_ports_connect(c->worker, c->tenant, c->fd, address, length, &c->channel->ports_tried);
	return error == EADDRNOTAVAIL ? command_refuse(c->channel, XTS_REFUSED_LOCAL_PORTS) : error;
}

static int bind_here(struct connection *c, const struct xts_endpoint *local)
{
	struct bound_address *bound;
	int error;

	if (c->datagrams)
		return datagram_bind(c, local);
	if (local->ip_version != 4 && local->ip_version != 6)
		return EAFNOSUPPORT;
	if ((local->port || !endpoint_is_unspecified(local)) && !command_allowed(c->channel, XTS_POLICY_LISTEN, local))
		return EACCES;
	if (!connection_may_have_port(c, local->port))
		return EACCES;
	bound = bound_address_take(c, BOUND_TCP, local, &error);
	if (!bound)
		return error;
	if (!c->bound_to && !share_gives_way(c->worker, c->tenant, false, local)) {
		bound_address_release(bound);
		return LATER;
	}
	error = connection_bind_fd(c, local, &c->channel->ports_tried);
	if (error || c->bound_to) {
		bound_address_release(bound);
		return error;
	}
	if (local->port) {
		c->bound_to = bound;
		return 0;
	}
	bound_address_release(bound);
	return connection_note_bound_address(c);
}

void command_bind_goes_on(struct channel *ch)
{
	struct connection *c = ch->binding;
	const struct xts_bind *m = &ch->bind;
	int error;

	ch->refusal = XTS_REFUSED_NONE;
	tickets_call_begins(ch);
	error = bind_here(c, &m->local);
	if (error == LATER)
		return;
	ch->binding = NULL;
	command_reply_local(ch, XTS_REPLY_BIND_ACK, m->xts_socket, m->token, c, error);
	tickets_call_goes_on(ch, XTS_CMD_BIND, true);
	channel_check(ch, c->proxy_id);
}

enum command_result command_bind(struct channel *ch, const struct xts_head *head, const struct xts_bind *m,
				 struct batch_entry *e)
{
	struct connection *c;
	int error;

	(void)e;
	c = command_target(ch, head->id, m->xts_socket, m->domain, &error);
	ch->ports_tried = 0;
	if (c)
		error = bind_here(c, &m->local);
	if (c && error == LATER) {
		ch->binding = c;
		ch->bind = *m;
		return COMMAND_REPLIES;
	}
	command_reply_local(ch, XTS_REPLY_BIND_ACK, m->xts_socket, m->token, c, error);
	return COMMAND_REPLIES;
}
