/* bind(2), connect(2), shutdown(2) and getpeername(2) of a datagram socket: inet_dgram_connect(),
 * ip4_datagram_connect(), __ip6_datagram_connect() and inet_shutdown() of the kernel. */
#include <netinet/in.h>
#include <sys/epoll.h>

#include "datagrams/datagram_calls.h"
#include "core/address.h"
#include "core/arguments.h"
#include "core/asked.h"
#include "core/call.h"
#include "datagrams/datagrams.h"
#include "core/socket.h"
#include "core/status_page.h"

/* asked_call() for BIND and CONNECT_DATAGRAM: if the proxy has no socket yet, it is opened with the address, in one
 * request. BIND: call->local becomes the address. */
static int ask(struct xts_sock *s, struct call *call)
{
	bool binds = call->type == XTS_CMD_BIND;
	struct asked *e = asked_make(call);
	int r;

	if (!e)
		return -ENOMEM;
	r = datagram_open(s, binds ? &call->local : NULL, binds ? NULL : &call->peer);
	if (r == DATAGRAM_IS_OPEN)
		r = call_proxy(s, call);
	else if (!r && binds)
		call->local = s->local;
	if (!r)
		asked_note(s, e, call, call);
	else
		asked_release(e);
	return r;
}

int datagram_bind(struct xts_sock *s, const struct sockaddr *address, socklen_t length)
{
	struct call call = { .type = XTS_CMD_BIND };
	int r = address_read(&call.local, s->family, address, length, true);

	if (r)
		return r;
	r = ask(s, &call);
	if (!r) {
		s->local = call.local;
		status_state(s);
	}
	return r;
}

/* connect() to AF_UNSPEC: removes the peer. */
static int dissolve(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_CONNECT_DATAGRAM };

	if (s->lost)
		return -ENETDOWN;
	return s->proxy_id || s->datagrams->opens || s->claiming || s->away ? asked_call(s, &call) : 0;
}

int datagram_connect(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		     const struct connect_pushes *encoded)
{
	struct call call = { .type = XTS_CMD_CONNECT_DATAGRAM };
	int r;

	if (encoded)
		return -EOPNOTSUPP;
	if (length < sizeof address->sa_family)
		return -EINVAL;
	if (address->sa_family == AF_UNSPEC)
		return dissolve(s);
	r = address_read_peer(&call.peer, s, address, length);
	if (r == -ENETUNREACH && address->sa_family == AF_INET)
		r = -EAFNOSUPPORT; /* the errno of connect(), unlike that of sendto() */
	if (!r && address_is_broadcast(&call.peer) && !s->datagrams->broadcast)
		r = -EACCES;
	if (r)
		return r;
	return ask(s, &call);
}

int datagram_shutdown(struct xts_sock *s, int how)
{
	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	s->shutdown |= (uint8_t)(how + 1); /* even if the call fails */
	status_state(s);
	socket_changed(s, STATE_CHANGE);
	return s->datagrams->connected ? 0 : -ENOTCONN;
}

int datagram_peer(const struct xts_sock *s, struct sockaddr *address, socklen_t *length)
{
	if (!s->datagrams->connected || !s->peer.port)
		return -ENOTCONN;
	return xts_argument_result(address, length);
}
