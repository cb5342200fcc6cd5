/* A lookup asks servers, one after the other, and checks their answers; names.h has the theory of operation. */
#include "names/lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "addresses/local_ports.h"
#include "addresses/socket_address.h"
#include "names/name_message.h"

#define DATAGRAMS_A_TURN 8u

static struct worker_state *worker_of(const struct lookup *l)
{
	return l->channel->worker;
}

/* --- asking a server ---------------------------------------------------------------------------------------------- */

static bool watch(struct lookup *l, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = &l->watch };

	return !epoll_ctl(worker_of(l)->epoll_fd, operation, l->fd, &event);
}

/* Connects over TCP from a port of the tenant's, which stays taken for a minute. For a datagram any port will do: it is
 * free again with the answer, and the more ports there are, the harder it is to guess. 0 or an errno. */
static int connect_to_server(struct lookup *l, const struct sockaddr *address, socklen_t length)
{
	if (l->tcp)
		return local_ports_connect(worker_of(l), l->tenant, l->fd, address, length, NULL);
	return connect(l->fd, address, length) ? errno : 0;
}

/* Begins this try's query to its server; false: the server cannot be asked. */
static bool ask(struct lookup *l, bool tcp)
{
	struct worker_state *w = worker_of(l);
	struct sockaddr_storage address;
	socklen_t length = endpoint_to_sockaddr(&l->server, &address);
	uint16_t id;
	int error;

	lookup_close_socket(l);
	lookup_drop_answer(l);
	l->tcp = tcp;
	l->asked = false;
	l->got = l->wrong = 0;
	if (!length || getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
		return false;
	name_set_id(l->query, id);
	l->fd = socket(address.ss_family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0)
		return false;
	error = connect_to_server(l, (struct sockaddr *)&address, length);
	if (error && !(tcp && error == EINPROGRESS))
		return false;
	if (!tcp && send(l->fd, l->query, l->query_bytes, MSG_NOSIGNAL) != (ssize_t)l->query_bytes)
		return false;
	timer_set(&w->timers, &l->timer, w->now_ns + w->config.names.timeout_ms * UINT64_C(1000000));
	return watch(l, EPOLL_CTL_ADD, tcp ? EPOLLOUT : EPOLLIN);
}

void lookup_try_next(struct lookup *l)
{
	/* the configuration may have changed since the last try */
	const struct xts_names_config *config = &worker_of(l)->config.names;

	while (l->tries < config->resolver_count * config->attempts) {
		l->server = config->resolvers[l->tries++ % config->resolver_count];
		if (ask(l, false))
			return;
	}
	lookup_finish(l, l->any_silent ? ETIMEDOUT : EHOSTUNREACH);
}

static void ask_over_tcp(struct lookup *l)
{
	if (!ask(l, true))
		lookup_try_next(l);
}

/* --- answers --------------------------------------------------------------------------------------------- */

static uint32_t answer_max(const struct lookup *l)
{
	return l->channel->link.largest_message - XTS_NAME_ACK_BYTES;
}

/* Makes room for an answer of this many bytes. False: there is none, so the lookup has ended. */
static bool make_room(struct lookup *l, uint32_t bytes)
{
	if (bytes > answer_max(l)) {
		lookup_finish(l, EMSGSIZE);
		return false;
	}
	if (!tenant_take(l->tenant, XTS_USE_SOCKET_BYTES, bytes)) {
		lookup_finish(l, ENOBUFS);
		return false;
	}
	l->answer_bytes = bytes;
	l->answer = calloc(1, bytes);
	if (l->answer)
		return true;
	lookup_finish(l, ENOBUFS);
	return false;
}

/* Handles an answer. If the server cannot or will not answer, the next one is asked, as in the C library's resolver. */
static void answered(struct lookup *l)
{
	uint8_t result = name_result(l->answer);
	bool declined = result == NAME_SERVFAIL || result == NAME_NOTIMP || result == NAME_REFUSED;

	if (declined && l->tries < worker_of(l)->config.names.resolver_count) {
		lookup_try_next(l);
		return;
	}
	name_set_id(l->answer, l->host_id);
	lookup_finish(l, 0);
}

/* Takes a datagram if it is the answer. False: it is not, and the server's answer may still come. */
static bool take_datagram(struct lookup *l, const uint8_t *datagram, uint32_t bytes, bool cut)
{
	if (!name_answers(datagram, bytes, l->query, l->question_bytes)) {
		worker_of(l)->stats.names_wrong++;
		if (++l->wrong < NAMES_WRONG_MAX)
			return false;
		ask_over_tcp(l);
	} else if (cut || name_is_cut(datagram)) {
		ask_over_tcp(l);
	} else if (make_room(l, bytes)) {
		memcpy(l->answer, datagram, bytes);
		answered(l);
	}
	return true;
}

static void receive_datagrams(struct lookup *l)
{
	uint8_t datagram[4096];

	for (uint32_t i = 0; i < DATAGRAMS_A_TURN; i++) {
		ssize_t n = recv(l->fd, datagram, sizeof datagram, MSG_TRUNC);
		bool cut = n > (ssize_t)sizeof datagram;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0) { /* nobody listens there */
			lookup_try_next(l);
			return;
		}
		if (take_datagram(l, datagram, cut ? (uint32_t)sizeof datagram : (uint32_t)n, cut))
			return;
	}
}

static void send_over_tcp(struct lookup *l)
{
	uint8_t length[LOOKUP_PREFIX_BYTES] = { (uint8_t)(l->query_bytes >> 8), (uint8_t)l->query_bytes };
	struct iovec iov[2] = { { length, sizeof length }, { l->query, l->query_bytes } };
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };

	/* The send buffer of a new connection has room for all of it. */
	l->asked = sendmsg(l->fd, &message, MSG_NOSIGNAL) == (ssize_t)(sizeof length + l->query_bytes);
	if (!l->asked || !watch(l, EPOLL_CTL_MOD, EPOLLIN))
		lookup_try_next(l);
}

/* Receives more of the answer. False: there is no more now, or the lookup has gone on to another try or its end. */
static bool receive_some(struct lookup *l, uint8_t *to, uint32_t wanted)
{
	ssize_t n = recv(l->fd, to, wanted, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		lookup_try_next(l);
		return false;
	}
	l->got += (uint32_t)n;
	return (uint32_t)n == wanted;
}

static void receive_over_tcp(struct lookup *l)
{
	uint32_t length;

	if (l->got < LOOKUP_PREFIX_BYTES) {
		if (!receive_some(l, l->length + l->got, LOOKUP_PREFIX_BYTES - l->got))
			return;
		length = (uint32_t)l->length[0] << 8 | l->length[1];
		if (length < NAME_HEADER_BYTES)
			lookup_try_next(l);
		if (length < NAME_HEADER_BYTES || !make_room(l, length))
			return;
	}
	if (l->got - LOOKUP_PREFIX_BYTES < l->answer_bytes &&
	    !receive_some(l, l->answer + (l->got - LOOKUP_PREFIX_BYTES),
			  l->answer_bytes - (l->got - LOOKUP_PREFIX_BYTES)))
		return;
	if (name_answers(l->answer, l->answer_bytes, l->query, l->question_bytes)) {
		answered(l);
		return;
	}
	worker_of(l)->stats.names_wrong++;
	lookup_try_next(l);
}

void lookup_goes_on(struct lookup *l)
{
	if (l->late) {
		l->any_silent = true;
		lookup_try_next(l);
	} else if (!l->tcp) {
		receive_datagrams(l);
	} else if (!l->asked) {
		send_over_tcp(l);
	} else {
		receive_over_tcp(l);
	}
}
