/*
 * BIND: where a socket of a host is bound; and where it connects from.
 *
 * Policy has to allow an address or port of the device, but not one that the kernel picks for a connect. Low ports are
 * for privileged processes, as on the kernel (struct xts_owner). An address and port that another tenant or user is
 * bound to is in use, whatever sharing the socket options allow. A listener that is only
 * kept for processes that may join it is closed for a new bind. The connections in its backlog are reset in turns of
 * the channel, and until that is done nothing more is received from the channel's queue (continuation.h). It is the
 * same while a BIND or CONNECT looks for a port (local_ports.h).
 */
#include <errno.h>
#include <sys/socket.h>

#include "addresses/local_ports.h"
#include "addresses/socket_address.h"
#include "channel/tickets.h"
#include "connection/socket_kind.h"
#include "processes/share.h"
#include "tenants/policy.h"

#define LATER LOCAL_PORTS_LATER /* also: kept listeners are still being closed */

int connection_note_bound_address(struct connection *c)
{
	struct xts_endpoint local;
	int error;

	socket_local(c->tcp.fd, &local);
	c->bound_to = bound_address_take(c, kind_of(c)->protocol, &local, &error);
	return error;
}

int connection_bind_fd(struct connection *c, const struct xts_endpoint *local, uint32_t *tried)
{
	struct sockaddr_storage address;
	socklen_t length = endpoint_to_sockaddr(local, &address);
	int error;

	if (local->port)
		return bind(c->tcp.fd, (const struct sockaddr *)&address, length) ? errno : 0;
	error = local_ports_bind(c->worker, c->tenant, c->tcp.fd, (const struct sockaddr *)&address, length, tried);
	return error == EADDRINUSE ? command_refuse(c->channel, XTS_REFUSED_BIND_PORTS) : error;
}

/* Port 0: any. Counts a refusal. */
static bool may_have_port(const struct connection *c, uint16_t port)
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
		socket_local(c->tcp.fd, &local);
	return local.port;
}

int connection_connect_fd(struct connection *c, const struct sockaddr *address, socklen_t length)
{
	int error;

	if (has_port(c))
		return connect(c->tcp.fd, address, length) ? errno : 0;
	error = local_ports_connect(c->worker, c->tenant, c->tcp.fd, address, length, &c->channel->ports_tried);
	return error == EADDRNOTAVAIL ? command_refuse(c->channel, XTS_REFUSED_LOCAL_PORTS) : error;
}

int connection_may_bind(struct connection *c, const struct xts_endpoint *local)
{
	if (local->ip_version != 4 && local->ip_version != 6)
		return EAFNOSUPPORT;
	if ((local->port || !endpoint_is_unspecified(local)) && !command_allowed(c->channel, XTS_POLICY_LISTEN, local))
		return EACCES;
	return may_have_port(c, local->port) ? 0 : EACCES;
}

int stream_bind(struct connection *c, const struct xts_endpoint *local)
{
	struct bound_address *bound;
	int error = connection_may_bind(c, local);

	if (error)
		return error;
	bound = bound_address_take(c, BOUND_TCP, local, &error);
	if (!bound)
		return error;
	if (!c->bound_to && !share_gives_way(c->worker, c->tenant, BOUND_TCP, local)) {
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

static bool bind_goes_on(struct channel *ch)
{
	struct connection *c = ch->continuation.connection;
	struct xts_bind bind = ch->continuation.bind, *m = &bind;
	int error;

	ch->refusal = XTS_REFUSED_NONE;
	tickets_call_begins(ch);
	error = kind_of(c)->bind(c, &m->local);
	if (error == LATER)
		return true;
	continuation_done(ch);
	command_reply_local(ch, XTS_REPLY_BIND_ACK, m->xts_socket, m->token, c, error);
	tickets_call_goes_on(ch, XTS_CMD_BIND, true);
	channel_check(ch, c->proxy_id);
	return true;
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
		error = kind_of(c)->bind(c, &m->local);
	if (c && error == LATER) {
		continuation_begin(ch,
				   &(struct continuation){
					   .resume = bind_goes_on, .connection = c, .replies_later = true, .bind = *m });
		return COMMAND_REPLIES;
	}
	command_reply_local(ch, XTS_REPLY_BIND_ACK, m->xts_socket, m->token, c, error);
	return COMMAND_REPLIES;
}
