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
#include "connection/connection_inside.h"
#include "connection/socket_kind.h"
#include "connection/sockopt.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "tenants/policy.h"
#include "worker/interfaces.h"

/* --- replies ------------------------------------------------------------------------------------------------------ */

static void reply_connect(struct channel *ch, uint32_t xts_socket, const struct connection *c, int error)
{
	struct xts_connect_ack m = { .proxy_id = c ? c->proxy_id : 0 };

	if (c)
		socket_local(c->tcp.fd, &m.local);
	xts_connect_ack_encode(command_reply(ch, XTS_REPLY_CONNECT_ACK, XTS_CONNECT_ACK_BYTES, xts_socket, error), &m);
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
		return 0; /* a protocol that fails at once is answered like one that fails later */
	if (c->tcp.pushed && c->tcp.pushed->started) {
		connection_fail(c, ENOBUFS); /* its handshake goes on in another thread */
		return 0;
	}
	c->writable = false;
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

static bool connect_goes_on(struct channel *ch)
{
	struct connection *c = ch->continuation.connection;
	struct xts_connect connect = ch->continuation.connect, *m = &connect;
	int error;

	ch->refusal = XTS_REFUSED_NONE;
	tickets_call_begins(ch);
	error = connect_now(c, m);
	if (error == LOCAL_PORTS_LATER)
		return true;
	continuation_done(ch);
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
	return true;
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
	if (c && !kind_of(c)->streams)
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
		continuation_begin(
			ch, &(struct continuation){
				    .resume = connect_goes_on, .connection = c, .replies_later = true, .connect = *m });
		return COMMAND_REPLIES;
	}
	ch->worker->stats.connects_failed++;
	reply_connect(ch, m->xts_socket, c, error);
	return COMMAND_REPLIES;
}

/* Always answered by CLOSED, from the state of the connection if there is one: its CONNECT may have been refused, or
 * answered meanwhile. */
enum command_result command_cancel(struct channel *ch, const struct xts_head *head, const struct xts_cancel *m,
				   struct batch_entry *e)
{
	struct connection *c = unnamed_find(ch, m->xts_socket);
	struct xts_recv closed = { 0 };
	uint8_t *reply;

	(void)head;
	(void)e;
	if (c) {
		connection_close(c, XTS_FLAG_CLOSE | XTS_FLAG_ABORT, 0);
		return COMMAND_DONE;
	}
	reply = command_reply(ch, XTS_REPLY_RECV, XTS_RECV_BYTES, m->xts_socket, 0);
	xts_head_encode(reply, XTS_REPLY_RECV, XTS_FLAG_CLOSED, 0, m->xts_socket);
	xts_recv_encode(reply, &closed);
	return COMMAND_REPLIES;
}

enum command_result command_listen(struct channel *ch, const struct xts_head *head, const struct xts_listen *m,
				   struct batch_entry *e)
{
	struct connection *c;
	int error;

	(void)e;
	c = command_target(ch, head->id, m->xts_socket, m->domain, &error);
	if (c)
		error = ch->worker->draining ? command_refuse(ch, XTS_REFUSED_STOPPING) : listener_start(c, m);
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
	uint8_t value[SOCKET_CALL_BYTES_MAX];
	struct option_call o = {
		.level = m->level,
		.option = m->option,
		.value = value,
		.payload = batch_payload(e, XTS_SETSOCKOPT_BYTES),
		.payload_bytes = m->length,
		.payload_room = (uint32_t)(e->frame.segment[0].iov_len - XTS_SETSOCKOPT_BYTES),
	};
	int error;
	struct connection *c = command_target(ch, head->id, m->xts_socket, m->domain, &error);

	o.bytes = option_value(value, o.payload, m->length);
	if (c)
		error = kind_of(c)->option_set(c, &o);
	if (c && !error)
		buffers_option_set(c, m->level, m->option);
	if (c && !error && m->level == SOL_SOCKET && m->option == SO_REUSEADDR)
		c->tcp.rebinding = false;
	command_reply_value(ch, XTS_REPLY_SOCKOPT_ACK, m->xts_socket, m->token, c, error, value, 0);
	return COMMAND_REPLIES;
}

enum command_result command_getsockopt(struct channel *ch, const struct xts_head *head, const struct xts_getsockopt *m,
				       struct batch_entry *e)
{
	uint8_t value[SOCKET_CALL_BYTES_MAX];
	struct option_call o = { .level = m->level, .option = m->option, .value = value };
	int error;
	struct connection *c = command_target(ch, head->id, m->xts_socket, m->domain, &error);

	o.bytes = option_value(value, batch_payload(e, XTS_GETSOCKOPT_BYTES), m->length);
	if (c && m->level == XTS_SOL_XTS)
		interfaces_tell(&ch->worker->config, (uint32_t)m->option, value, &o.bytes);
	else if (c)
		error = kind_of(c)->option_get(c, &o);
	if (c && c->tcp.rebinding && !error && m->level == SOL_SOCKET && m->option == SO_REUSEADDR)
		memset(value, 0, o.bytes); /* the host has not set it */
	if (c && error == EPERM)
		(void)command_refuse(ch, XTS_REFUSED_OPTION);
	command_reply_value(ch, XTS_REPLY_SOCKOPT_ACK, m->xts_socket, m->token, c, error, value, o.bytes);
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
	error = xts_ioctl_do(c->tcp.fd, request, value, bytes);
	if (error || (request != SIOCOUTQ && request != SIOCOUTQNSD))
		return error;
	memcpy(&unsent, value, sizeof unsent);
	unsent += (int)c->tcp.out.spill.bytes;
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
		if (ch->link.features & XTS_FEATURE_ULP && push_is_request(m->request) && !kind_of(c)->streams)
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
	c->readable = c->in_epoll || c->tcp.pushed;
	/* Only now: epoll then reports everything that has arrived in the meantime. */
	if (connection_watch(c))
		connection_fail(c, ENOBUFS);
	connection_wake(c);
	return COMMAND_DONE;
}
