/* Datagram sockets: open, bind and connect (datagram_socket.h). datagram_kind.c has the rest of their life. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "addresses/bound_addresses.h"
#include "addresses/local_ports.h"
#include "addresses/socket_address.h"
#include "connection/paced.h"
#include "connection/socket_kind.h"
#include "datagrams/datagram_making.h"
#include "processes/share.h"

/* --- errors -------------------------------------------------------------------------------------------- */

void datagram_fails(struct connection *c, int error)
{
	c->tcp.error = error;
	connection_wake(c);
}

/* --- bind and connect --------------------------------------------------------------------------------------------- */

int datagram_bind(struct connection *c, const struct xts_endpoint *local)
{
	struct bound_address *bound;
	int error = connection_may_bind(c, local);

	if (!error && !multicast_may_bind(c, local->port))
		error = EACCES;
	if (error)
		return error;
	bound = bound_address_take(c, BOUND_UDP, local, &error);
	if (!bound)
		return error;
	if (!c->bound_to) /* kept sockets that this turn has no time to end stay, and the address is in use */
		(void)share_gives_way(c->worker, c->tenant, BOUND_UDP, local);
	error = connection_bind_fd(c, local, NULL);
	if (error) {
		bound_address_release(bound);
		return error;
	}
	c->datagrams->bound = true;
	bound_address_release(c->bound_to);
	c->bound_to = bound;
	if (!local->port) {
		bound_address_release(bound);
		error = connection_note_bound_address(c);
	}
	if (c->shared)
		share_is_bound(c);
	return error;
}

int datagram_pick_port(struct connection *c)
{
	const struct xts_endpoint any = { .ip_version = c->tcp.ip_version };
	int error;

	if (c->bound_to || !local_ports_are_divided(c->tenant))
		return 0; /* it has one, or the kernel may pick any */
	error = connection_bind_fd(c, &any, NULL);
	if (!error)
		return connection_note_bound_address(c);
	/* EINVAL: it has a port. EAGAIN is what connect() and send() of the kernel say. */
	return error == EADDRINUSE ? EAGAIN : 0;
}

static void set_peer(struct connection *c, const struct xts_endpoint *peer)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

	c->datagrams->peer_is_multicast = endpoint_is_multicast(peer);
	c->datagrams->peer_is_ipv4 = peer->ip_version == 4 || !memcmp(peer->address, mapped, sizeof mapped);
}

void datagram_learn_peer(struct connection *c)
{
	struct xts_endpoint peer = { 0 };

	socket_peer(c->tcp.fd, &peer);
	if (peer.ip_version)
		set_peer(c, &peer);
}

/* Dissolves the association with the peer. The kernel takes back a port that it had picked, even for a bind(), so the
 * address is free, too. */
static int dissolve(struct connection *c)
{
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	struct xts_endpoint local = { 0 };

	if (connect(c->tcp.fd, &nobody, sizeof nobody))
		return errno;
	socket_local(c->tcp.fd, &local);
	if (local.port)
		return 0;
	c->datagrams->bound = false;
	bound_address_release(c->bound_to);
	c->bound_to = NULL;
	return 0;
}

/* Connects to the peer; without an address, dissolves the association. */
static int connect_to(struct connection *c, const struct xts_endpoint *peer)
{
	struct sockaddr_storage address;
	socklen_t length = endpoint_to_sockaddr(peer, &address);
	int error;

	if (!peer->ip_version)
		return dissolve(c);
	if (!length)
		return EAFNOSUPPORT;
	if (!command_allowed(c->channel, XTS_POLICY_CONNECT, peer) || !multicast_may_send(c, peer, 0))
		return EACCES;
	error = datagram_pick_port(c);
	if (error)
		return error;
	if (connect(c->tcp.fd, (const struct sockaddr *)&address, length))
		return errno;
	set_peer(c, peer);
	return c->bound_to ? 0 : connection_note_bound_address(c);
}

/* The peer that it has. getpeername() does not tell a peer with port 0, to which the socket is connected all the same. */
static void tell_peer(const struct connection *c, struct xts_endpoint *out, const struct xts_endpoint *asked)
{
	socket_peer(c->tcp.fd, out);
	if (!out->ip_version && !asked->port)
		*out = *asked;
}

enum command_result command_connect_datagram(struct channel *ch, const struct xts_head *head,
					     const struct xts_connect_datagram *m, struct batch_entry *e)
{
	struct xts_connect_datagram_ack ack = { .token = m->token };
	struct connection *c = NULL;
	int error = EBADF;

	(void)e;
	if (head->id)
		c = command_target(ch, head->id, m->xts_socket, 0, &error);
	if (c && (c->state != CONNECTION_DATAGRAM || c->datagrams->closing))
		error = EOPNOTSUPP;
	else if (c) {
		datagram_flush(c); /* what was sent before goes to the former peer */
		error = connect_to(c, &m->peer);
	}
	if (c && !error) {
		socket_local(c->tcp.fd, &ack.local);
		tell_peer(c, &ack.peer, &m->peer);
	}
	xts_connect_datagram_ack_encode(
		command_reply(ch, XTS_REPLY_CONNECT_DATAGRAM_ACK, XTS_CONNECT_DATAGRAM_ACK_BYTES, m->xts_socket, error),
		&ack);
	return COMMAND_REPLIES;
}

/* --- making and freeing ------------------------------------------------------------------------------------------- */

static bool make_scratch(struct worker_state *w)
{
	if (!w->datagram_scratch)
		w->datagram_scratch = calloc(1, sizeof *w->datagram_scratch);
	return w->datagram_scratch;
}

bool datagram_become(struct connection *c)
{
	if (!make_scratch(c->worker))
		return false;
	c->datagrams = calloc(1, sizeof *c->datagrams);
	if (!c->datagrams)
		return false;
	c->datagrams->expected_bytes = UINT16_MAX;
	c->datagrams->takes = DATAGRAM_RECEIVES_MIN;
	c->writable = true;
	c->send_buffer_set = c->receive_tuned = true; /* the window is not sized by buffers */
	kind_of(c)->count(c, -1);
	connection_enter(c, CONNECTION_DATAGRAM);
	kind_of(c)->count(c, 1);
	return true;
}

/* Makes a socket of the kernel with its struct connection. NULL with *error. */
static struct connection *make(struct channel *ch, uint32_t domain, int *error)
{
	struct connection *c;
	int fd;

	fd = socket(domain == 6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
	if (fd < 0) {
		*error = errno == EMFILE || errno == ENFILE ? command_refuse(ch, XTS_REFUSED_DEVICE_DESCRIPTORS) : errno;
		return NULL;
	}
	c = connection_new(ch, fd, (uint8_t)domain, error);
	if (!c) {
		close(fd);
		return NULL;
	}
	if (datagram_become(c))
		return c;
	*error = command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
	connection_free(c, false);
	return NULL;
}

/* Sets the socket up, in the order of the calls that a program would make. 0 or an errno. */
static int set_up(struct connection *c, const struct xts_open_datagram *m)
{
	const int on = 1, bytes = (int)m->receive_bytes;
	int error = 0;

	c->held = m->post_credits;
	if (!connection_grant_datagrams(c, 0, 0))
		return command_refuse(c->channel, XTS_REFUSED_WINDOWS);
	if (setsockopt(c->tcp.fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on))
		return errno;
	error = multicast_begin(c);
	if (error)
		return error;
	if (bytes && setsockopt(c->tcp.fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes))
		return errno;
	buffers_option_set(c, SOL_SOCKET, SO_RCVBUF); /* what peers may make the kernel keep is charged */
	if (m->local.ip_version)
		error = datagram_bind(c, &m->local);
	if (!error && m->peer.ip_version)
		error = connect_to(c, &m->peer);
	return error ? error : -connection_watch(c);
}

static int check_open(struct channel *ch, const struct xts_open_datagram *m)
{
	if (m->domain != 4 && m->domain != 6)
		return EAFNOSUPPORT;
	if (m->post_credits < XTS_DATAGRAM_WINDOW_MIN)
		return EINVAL; /* the largest datagram could never be sent to the host */
	return ch->worker->draining ? command_refuse(ch, XTS_REFUSED_STOPPING) : 0;
}

enum command_result command_open_datagram(struct channel *ch, const struct xts_head *head,
					  const struct xts_open_datagram *m, struct batch_entry *e)
{
	struct xts_open_datagram_ack ack = { .token = m->token };
	struct connection *c = NULL;
	int error = check_open(ch, m);

	(void)head;
	(void)e;
	if (!error)
		c = make(ch, m->domain, &error);
	if (c) {
		c->xts_socket = m->xts_socket;
		error = set_up(c, m);
	}
	if (c && !error) {
		ack.proxy_id = c->proxy_id;
		ack.post_credits = c->grant.outstanding;
		socket_local(c->tcp.fd, &ack.local);
		tell_peer(c, &ack.peer, &m->peer);
	} else if (c) {
		connection_free(c, false);
	}
	xts_open_datagram_ack_encode(
		command_reply(ch, XTS_REPLY_OPEN_DATAGRAM_ACK, XTS_OPEN_DATAGRAM_ACK_BYTES, m->xts_socket, error), &ack);
	return COMMAND_REPLIES;
}

/* --- shared ------------------------------------------------------------------------------------------------------- */

/* Of the socket's addresses. 0 or EACCES. */
static int may_have(struct connection *c, const struct shared *s)
{
	struct xts_endpoint local = { 0 }, peer = { 0 };

	socket_local(c->tcp.fd, &local);
	socket_peer(c->tcp.fd, &peer);
	if (s->bound && !command_allowed(c->channel, XTS_POLICY_LISTEN, &local))
		return EACCES;
	return peer.ip_version && !command_allowed(c->channel, XTS_POLICY_CONNECT, &peer) ? EACCES : 0;
}

/* SHARE_ACK carries no credits: they follow it. */
static int begin_to_receive(struct connection *c)
{
	c->grant.unadvertised = c->grant.outstanding;
	c->grant.outstanding = 0;
	buffers_option_set(c, SOL_SOCKET, SO_RCVBUF);
	connection_wake(c);
	return connection_watch(c) ? command_refuse(c->channel, XTS_REFUSED_DEVICE_MEMORY) : 0;
}

int datagram_join_first(struct connection *c, struct shared *s, struct kind_record **own)
{
	int error = datagram_begins_again(c, s, own, may_have);

	return error ? error : begin_to_receive(c);
}

int datagram_join(struct connection *c, struct shared *s)
{
	struct xts_endpoint peer = { 0 };
	int error = may_have(c, s);

	if (error)
		return error;
	socket_peer(c->tcp.fd, &peer);
	if (!datagram_become(c))
		return command_refuse(c->channel, XTS_REFUSED_DEVICE_MEMORY);
	paced_learn(c);
	c->datagrams->multicast = multicast_hold(s->multicast);
	c->datagrams->bound = s->bound;
	if (peer.ip_version)
		set_peer(c, &peer);
	if (!connection_grant_datagrams(c, 0, 0))
		return command_refuse(c->channel, XTS_REFUSED_WINDOWS);
	return begin_to_receive(c);
}
