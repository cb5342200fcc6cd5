/* Carries out the host's calls. Each call has been decoded once, into a private struct (command_dispatch.h), and is
 * checked before anything is done. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "addresses/local_ports.h"
#include "addresses/socket_address.h"
#include "channel/tickets.h"
#include "connection/sockopt.h"
#include "datagrams/datagram_socket.h"
#include "datagrams/multicast.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "tenants/policy.h"
#include "worker/interfaces.h"

/* --- replies ------------------------------------------------------------------------------------------------------ */

int command_refuse(struct channel *ch, enum xts_refusal refusal)
{
	ch->refusal = (uint8_t)refusal;
	return xts_refusal_errno(refusal);
}

/* The refusal of this request, if it belongs to the errno with which the request ends. */
static uint8_t refusal_of(const struct channel *ch, int error)
{
	return ch->link.features & XTS_FEATURE_REFUSAL && error && xts_refusal_errno(ch->refusal) == error ?
		       ch->refusal :
		       0;
}

uint8_t *command_reply(struct channel *ch, uint8_t type, uint32_t bytes, uint32_t xts_socket, int error)
{
	struct reply *r = &ch->replies[(ch->reply_first + ch->reply_count) % XTS_FRAME_WINDOW_MAX];

	/* Each waiting reply holds back a frame credit, and the link delivers no more than a window of frames. */
	if (ch->reply_count >= XTS_FRAME_WINDOW_MAX)
		abort();
	ch->reply_count++;
	tickets_replied(ch);
	r->bytes = bytes;
	xts_head_encode(r->frame, type, refusal_of(ch, error), (uint16_t)error, xts_socket);
	return r->frame;
}

static void reply_connect(struct channel *ch, uint32_t xts_socket, const struct connection *c, int error)
{
	struct xts_connect_ack m = { .proxy_id = c ? c->proxy_id : 0 };

	if (c)
		socket_local(c->fd, &m.local);
	xts_connect_ack_encode(command_reply(ch, XTS_REPLY_CONNECT_ACK, XTS_CONNECT_ACK_BYTES, xts_socket, error), &m);
}

void command_reply_local(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error)
{
	struct xts_listen_ack m = { .proxy_id = c ? c->proxy_id : 0, .token = token };

	/* NOLINTNEXTLINE(misc-redundant-expression): equal today, which is what is asserted */
	_Static_assert(XTS_LISTEN_ACK_BYTES == XTS_BIND_ACK_BYTES && XTS_LISTEN_ACK_BYTES == XTS_SHARE_ACK_BYTES,
		       "one layout");
	if (c && !error)
		socket_local(c->fd, &m.local);
	xts_listen_ack_encode(command_reply(ch, type, XTS_LISTEN_ACK_BYTES, xts_socket, error), &m);
}

void command_reply_value(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error, const void *value, uint32_t bytes)
{
	struct xts_sockopt_ack m = { .proxy_id = c ? c->proxy_id : 0, .token = token, .length = error ? 0 : bytes };
	uint8_t *frame = command_reply(ch, type, XTS_SOCKOPT_ACK_BYTES + m.length, xts_socket, error);

	_Static_assert(XTS_SOCKOPT_ACK_BYTES == XTS_IOCTL_ACK_BYTES, "one layout for both");
	xts_sockopt_ack_encode(frame, &m);
	if (m.length)
		memcpy(frame + XTS_SOCKOPT_ACK_BYTES, value, m.length);
}

/* --- finding or making the socket --------------------------------------------------------------------------------- */

struct connection *command_target(struct channel *ch, uint32_t id, uint32_t xts_socket, uint32_t domain, int *error)
{
	struct connection *c;

	*error = 0;
	if (!id) {
		c = connection_find_unnamed(ch, xts_socket);
		if (c && c->fd >= 0 && !c->close_reply)
			return c;
		if (domain != 4 && domain != 6) {
			*error = EAFNOSUPPORT;
			return NULL;
		}
		if (ch->worker->draining) {
			*error = command_refuse(ch, XTS_REFUSED_STOPPING);
			return NULL;
		}
		c = connection_new(ch, -1, (uint8_t)domain, error);
		if (c)
			c->xts_socket = xts_socket;
		return c;
	}
	c = connection_find(ch, id);
	if (!c || c->announced || c->xts_socket != xts_socket || c->fd < 0 || c->close_reply) {
		ch->worker->stats.bad_identifiers++;
		*error = EBADF;
		return NULL;
	}
	return c;
}

bool command_allowed(struct channel *ch, enum xts_policy_action action, const struct xts_endpoint *endpoint)
{
	const struct xts_worker_config *config = &ch->worker->config;
	bool otherwise = action == XTS_POLICY_CONNECT ? config->policy_default_allow : config->policy_listen_allow;

	if (xts_policy_allows(config->rules, config->rule_count, otherwise, (uint8_t)action, ch->tenant->id,
			      ch->queue_id, endpoint))
		return true;
	ch->worker->stats.refused_policy++;
	(void)command_refuse(ch, action == XTS_POLICY_CONNECT ? XTS_REFUSED_CONNECT_POLICY : XTS_REFUSED_LISTEN_POLICY);
	return false;
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

/* In one or more turns. 0, LOCAL_PORTS_LATER, or an errno. */
static int connect_now(struct connection *c, const struct xts_connect *m)
{
	struct sockaddr_storage address;
	socklen_t length = endpoint_to_sockaddr(&m->peer, &address);
	int error = connection_connect_fd(c, (const struct sockaddr *)&address, length);

	if (error && error != EINPROGRESS)
		return error;
	connection_enter(c, CONNECTION_CONNECTING);
	if (!error)
		connection_connected(c);
	if (!connection_watch(c) || c->state == CONNECTION_FAILED)
		return 0;                     /* a protocol that fails at once is answered like one that fails later */
	connection_enter(c, CONNECTION_IDLE); /* epoll has no room: handled as if there were no memory */
	c->connect_reply = false;
	return command_refuse(c->channel, XTS_REFUSED_DEVICE_MEMORY);
}

static int connect_start(struct connection *c, const struct xts_connect *m)
{
	if (m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return EAFNOSUPPORT;
	if (!command_allowed(c->channel, XTS_POLICY_CONNECT, &m->peer))
		return EACCES;
	if (c->channel->worker->draining)
		return command_refuse(c->channel, XTS_REFUSED_STOPPING);
	if (c->shared && share_part(c))
		return EOPNOTSUPP; /* the other members have the same socket, and it would connect for all */
	if (!connection_grant_window(c) || (pushed_any(c) && c->window < XTS_ULP_WINDOW_MIN))
		return command_refuse(c->channel, XTS_REFUSED_WINDOWS);
	c->held = m->post_credits;
	c->since_ns = c->worker->now_ns;
	closed_begin(c, XTS_BEGUN_CONNECT, &m->peer);
	c->channel->ports_tried = 0;
	return connect_now(c, m);
}

/* Pushes the protocols in CONNECT's payload, then connects. After a failure the host cannot know which ones were
 * pushed, so it can only close the socket. */
static int push_from_connect(struct connection *c, const struct xts_connect *m, const void *pushes)
{
	int error;

	if (c->shared && share_part(c))
		return EOPNOTSUPP;
	error = -push_with_connect(c, pushes, m->length);
	if (!error)
		error = connect_start(c, m);
	if (error && error != LOCAL_PORTS_LATER)
		push_with_connect_failed(c);
	return error;
}

void command_connect_goes_on(struct channel *ch)
{
	struct connection *c = ch->connecting;
	const struct xts_connect *m = &ch->connect;
	int error;

	ch->refusal = XTS_REFUSED_NONE;
	tickets_call_begins(ch);
	error = connect_now(c, m);
	if (error == LOCAL_PORTS_LATER)
		return;
	ch->connecting = NULL;
	if (!error) {
		ticket_for_connect(c);
		xts_link_recycled(&ch->link);
	} else {
		if (m->length)
			push_with_connect_failed(c);
		ch->worker->stats.connects_failed++;
		reply_connect(ch, m->xts_socket, c, error);
	}
	tickets_call_goes_on(ch, XTS_CMD_CONNECT, error);
	channel_check(ch, c->proxy_id);
}

enum command_result command_connect(struct channel *ch, const struct xts_head *head, const struct xts_connect *m,
				    struct batch_entry *e)
{
	struct connection *c;
	int error;

	if (m->length && !(ch->link.features & XTS_FEATURE_ULP))
		return COMMAND_MALFORMED;
	if (m->length && prepare_for_connect(ch, head, m, e))
		return COMMAND_UNFINISHED;
	c = command_target(ch, head->id, m->xts_socket, m->domain, &error);
	if (c && !head->id && list_empty(&c->unnamed))
		list_append(&ch->unnamed, &c->unnamed);
	if (c && c->datagrams)
		error = EOPNOTSUPP;
	else if (c && c->state == CONNECTION_CONNECTING)
		error = EALREADY;
	else if (c && c->state != CONNECTION_IDLE && !connection_renew(c))
		error = EISCONN;
	else if (c && c->connect_reply)
		error = EALREADY;
	else if (c && m->length)
		error = push_from_connect(c, m, batch_payload(e, XTS_CONNECT_BYTES));
	else if (c)
		error = connect_start(c, m);
	if (!error) {
		ticket_for_connect(c);
		return COMMAND_DONE; /* CONNECT_ACK is sent from the state of the connection */
	}
	if (error == LOCAL_PORTS_LATER) {
		ch->connecting = c;
		ch->connect = *m;
		return COMMAND_REPLIES;
	}
	ch->worker->stats.connects_failed++;
	reply_connect(ch, m->xts_socket, c, error);
	return COMMAND_REPLIES;
}

static int listen_start(struct connection *c, const struct xts_listen *m)
{
	struct channel *ch = c->channel;
	struct xts_endpoint local;
	int error = 0;

	if (c->datagrams)
		return EOPNOTSUPP;
	if ((c->state != CONNECTION_IDLE && c->state != CONNECTION_LISTENER) || c->connect_reply)
		return EINVAL;
	socket_local(c->fd, &local);
	if (!command_allowed(ch, XTS_POLICY_LISTEN, &local))
		return EACCES;
	if (!local.port) { /* as the kernel's listen() would do, from all ports */
		error = connection_bind_fd(c, &local, NULL);
		if (error)
			return error;
	}
	error = bound_address_listens(c->bound_to);
	if (error)
		return error;
	if (c->state == CONNECTION_IDLE && !tenant_take(c->tenant, XTS_USE_LISTENERS, 1)) {
		ch->worker->stats.refused_limit++;
		return command_refuse(ch, XTS_REFUSED_LISTENERS);
	}
	if (xts_credit_add(&c->held, m->post_credits)) {
		error = EINVAL;
	} else if (listen(c->fd, m->backlog > INT32_MAX ? INT32_MAX : (int)m->backlog)) {
		error = errno;
		c->held -= m->post_credits;
	}
	if (c->state == CONNECTION_IDLE && error)
		tenant_give(c->tenant, XTS_USE_LISTENERS, 1);
	if (error)
		return error;
	if (c->state == CONNECTION_IDLE) {
		listener_become(c);
		listener_allow_rebinding(c);
	}
	if (c->shared)
		share_listens(c);
	if (!c->bound_to)
		(void)connection_note_bound_address(c); /* if there is no memory, the address is not registered */
	c->readable = true;
	connection_wake(c);
	return -connection_watch(c);
}

enum command_result command_listen(struct channel *ch, const struct xts_head *head, const struct xts_listen *m,
				   struct batch_entry *e)
{
	struct connection *c;
	int error;

	(void)e;
	c = command_target(ch, head->id, m->xts_socket, m->domain, &error);
	if (c)
		error = ch->worker->draining ? command_refuse(ch, XTS_REFUSED_STOPPING) : listen_start(c, m);
	command_reply_local(ch, XTS_REPLY_LISTEN_ACK, m->xts_socket, m->token, c, error);
	return COMMAND_REPLIES;
}

/* Copies the value that came with a call. Callers may pass a longer value than any option has; the kernel accepts that,
 * too. */
static uint32_t option_value(uint8_t *value, const void *payload, uint32_t length)
{
	uint32_t kept = length < SOCKET_CALL_BYTES_MAX ? length : SOCKET_CALL_BYTES_MAX;

	memcpy(value, payload, kept);
	return kept;
}

enum command_result command_setsockopt(struct channel *ch, const struct xts_head *head, const struct xts_setsockopt *m,
				       struct batch_entry *e)
{
	const void *payload = batch_payload(e, XTS_SETSOCKOPT_BYTES);
	uint8_t value[SOCKET_CALL_BYTES_MAX];
	uint32_t length = option_value(value, payload, m->length);
	int error;
	struct connection *c = command_target(ch, head->id, m->xts_socket, m->domain, &error);

	if (c && c->datagrams)
		datagram_flush(c); /* the option applies to what is sent from now on */
	if (c && c->datagrams && filter_is_option(m->level, m->option))
		error = m->length <= e->frame.segment[0].iov_len - XTS_SETSOCKOPT_BYTES ?
				filter_set(c, m->option, payload, m->length) :
				EINVAL;
	else if (c && c->datagrams && multicast_is_option(m->level, m->option))
		error = -multicast_set(c, m->level, m->option, value, length);
	else if (c && xts_sockopt_needs_stamps(m->level, m->option) && !(ch->link.features & XTS_FEATURE_STAMPS))
		error = ENOPROTOOPT;
	else if (c)
		error = -xts_sockopt_set(c->fd, m->level, m->option, value, length,
					 ch->worker->config.congestion_controls);
	if (c && error == EPERM && !(c->datagrams && filter_is_option(m->level, m->option)))
		(void)command_refuse(ch, XTS_REFUSED_OPTION);
	if (c && !error)
		buffers_option_set(c, m->level, m->option);
	if (c && !error && m->level == SOL_SOCKET && m->option == SO_REUSEADDR)
		c->rebinding = false;
	command_reply_value(ch, XTS_REPLY_SOCKOPT_ACK, m->xts_socket, m->token, c, error, value, 0);
	return COMMAND_REPLIES;
}

enum command_result command_getsockopt(struct channel *ch, const struct xts_head *head, const struct xts_getsockopt *m,
				       struct batch_entry *e)
{
	uint8_t value[SOCKET_CALL_BYTES_MAX];
	uint32_t length = option_value(value, batch_payload(e, XTS_GETSOCKOPT_BYTES), m->length);
	int error;
	struct connection *c = command_target(ch, head->id, m->xts_socket, m->domain, &error);

	if (c && m->level == XTS_SOL_XTS)
		interfaces_tell(&ch->worker->config, (uint32_t)m->option, value, &length);
	else if (c && c->datagrams && multicast_is_option(m->level, m->option))
		error = -multicast_get(c, m->level, m->option, value, &length);
	else if (c)
		error = -xts_sockopt_get(c->fd, m->level, m->option, value, &length);
	if (c && c->rebinding && !error && m->level == SOL_SOCKET && m->option == SO_REUSEADDR)
		memset(value, 0, length); /* the host has not set it */
	if (c && error == EPERM)
		(void)command_refuse(ch, XTS_REFUSED_OPTION);
	command_reply_value(ch, XTS_REPLY_SOCKOPT_ACK, m->xts_socket, m->token, c, error, value, length);
	return COMMAND_REPLIES;
}

/* For SIOCOUTQ, what waits in the spill buffer counts as not sent. */
static int do_ioctl(struct connection *c, uint32_t request, void *value, uint32_t *bytes)
{
	int error, unsent;

	if ((request == SIOCOUTQ || request == SIOCOUTQNSD) && c->dirty) {
		channel_clean(c->channel, c);
		connection_flush(c);
	}
	error = xts_ioctl_do(c->fd, request, value, bytes);
	if (error || (request != SIOCOUTQ && request != SIOCOUTQNSD))
		return error;
	memcpy(&unsent, value, sizeof unsent);
	unsent += (int)c->out.spill.bytes;
	memcpy(value, &unsent, sizeof unsent);
	return 0;
}

enum command_result command_ioctl(struct channel *ch, const struct xts_head *head, const struct xts_ioctl *m,
				  struct batch_entry *e)
{
	uint8_t value[SOCKET_CALL_BYTES_MAX];
	uint32_t length;
	struct connection *c;
	int error;

	if (ch->link.features & XTS_FEATURE_ULP && prepare_for_ioctl(ch, head, m, e))
		return COMMAND_UNFINISHED;
	c = command_target(ch, head->id, m->xts_socket, m->domain, &error);
	length = m->length < sizeof value ? m->length : (uint32_t)sizeof value;
	if (c) {
		memcpy(value, batch_payload(e, XTS_IOCTL_BYTES), length);
		if (ch->link.features & XTS_FEATURE_ULP && push_is_request(m->request) && c->datagrams)
			error = EOPNOTSUPP;
		else if (ch->link.features & XTS_FEATURE_ULP && push_is_request(m->request))
			error = m->length > sizeof value ? EMSGSIZE : -push_request(c, m->request, value, &length);
		else
			error = -do_ioctl(c, m->request, value, &length);
	}
	command_reply_value(ch, XTS_REPLY_IOCTL_ACK, m->xts_socket, m->token, c, error, value, length);
	explicit_bzero(value, sizeof value); /* the value may have been keys */
	return COMMAND_REPLIES;
}

enum command_result command_newconn_ack(struct channel *ch, const struct xts_head *head,
					const struct xts_newconn_ack *m, struct batch_entry *e)
{
	struct connection *c = connection_find(ch, head->id);
	bool late;

	(void)e;
	if (!c || !c->announced) {
		ch->worker->stats.bad_identifiers++;
		return COMMAND_DONE;
	}
	if (head->error == EAGAIN && c->listener && c->listener->shared) {
		c->listener->held = 0;
		share_give_back(c);
		return COMMAND_DONE;
	}
	if (head->error) {
		connection_free(c, true);
		return COMMAND_DONE;
	}
	listener_offer_ends(c);
	c->xts_socket = m->xts_socket;
	c->since_ns = 0;
	c->held = m->post_credits;
	late = share_late_answer(c);
	c->announced = false;
	if (late)
		return COMMAND_DONE;
	/* its handshake is done: there may have been events before, and layers may hold bytes */
	c->readable = c->in_epoll || c->pushed;
	/* Only now: epoll then reports everything that has arrived in the meantime. */
	if (connection_watch(c))
		connection_fail(c, ENOBUFS);
	connection_wake(c);
	return COMMAND_DONE;
}
