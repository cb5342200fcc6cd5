/* One offloaded connection between its channel and its TCP socket: events, closing. Data: to_tcp.c, to_host.c. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "datagram_socket.h"
#include "histogram.h"
#include "pushed.h"
#include "share.h"

#define PUSHED_BYTES 32768u /* about what a connection with TLS has in malloc's heap */

/* Intervals of connection_look_later(): short at first, and in the end so long that thousands of waiting connections
 * cost next to nothing. The kernel reports when the peer has acknowledged a FIN; a lingering close is checked by timer
 * only for other TCP stacks, which do not report it. */
#define LOOK_MS_FIRST 5u
#define LOOK_MS_LINGERING 1000u
#define LOOK_MS_LISTENER 100u

static void look_expired(struct timer *timer);
static void look_again(struct connection *c);
static void look_at_lingering(struct connection *c);

/* --- making and freeing ------------------------------------------------------------------------------------------- */

struct connection *connection_new(struct channel *ch, int fd, uint8_t ip_version, int *error)
{
	struct worker_state *w = ch->worker;
	struct connection *c;

	if (!tenant_take(ch->tenant, XTS_USE_CONNECTIONS, 1)) {
		w->stats.refused_limit++;
		*error = command_refuse(ch, XTS_REFUSED_CONNECTIONS);
		return NULL;
	}
	while (!tenant_take_socket(ch->tenant)) {
		if (orphan_gives_way(w, ch->tenant))
			continue;
		w->stats.refused_limit++;
		*error = command_refuse(ch, XTS_REFUSED_SOCKETS);
		goto no_descriptor;
	}
	*error = command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
	c = calloc(1, sizeof *c);
	if (!c)
		goto no_memory;
	c->proxy_id = identifier_take(ch, c);
	if (!c->proxy_id)
		goto no_identifier;
	if (fd < 0)
		fd = socket(ip_version == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			    IPPROTO_TCP);
	if (fd < 0)
		goto no_socket;
	*error = command_refuse(ch, XTS_REFUSED_NONE);
	c->tenant = tenant_hold(ch->tenant);
	c->watch.kind = WATCH_CONNECTION;
	c->channel = ch;
	c->worker = w;
	c->fd = fd;
	c->ip_version = ip_version;
	c->gathered_first = c->gathered_last = BATCH_NONE;
	list_init(&c->ready);
	list_init(&c->dirty);
	c->timer.expired = look_expired;
	list_init(&c->unnamed);
	list_init(&c->noted);
	list_init(&c->by_age);
	list_init(&c->offers);
	list_init(&c->share);
	list_init(&c->share_here);
	list_append(&ch->connections, &c->member);
	ch->connection_count++;
	w->stats.connections++;
	return c;
no_socket:
	*error = errno == EMFILE || errno == ENFILE ? command_refuse(ch, XTS_REFUSED_DEVICE_DESCRIPTORS) : errno;
	identifier_release(ch, c->proxy_id);
no_identifier:
	free(c);
no_memory:
	tenant_give_socket(ch->tenant);
no_descriptor:
	tenant_give(ch->tenant, XTS_USE_CONNECTIONS, 1);
	return NULL;
}

static void socket_close(struct connection *c, bool reset)
{
	struct linger abort_now = { .l_onoff = 1 };

	if (c->fd < 0)
		return;
	closed_end(c, reset);
	if (reset)
		(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
	close(c->fd);
	c->fd = -1;
	c->in_epoll = false;
	name_release(c->name);
	c->name = NULL;
}

static void uncount(struct connection *c)
{
	if (c->state == CONNECTION_LISTENER)
		c->worker->stats.listeners--;
	else if (c->state == CONNECTION_DATAGRAM)
		c->worker->stats.datagram_sockets--;
	else
		c->worker->stats.connections--;
	connection_spill_gone(c, c->out.spill.bytes);
	if (c->orphan) {
		orphan_uncount(c);
		return;
	}
	tenant_give(c->tenant, c->state == CONNECTION_LISTENER ? XTS_USE_LISTENERS : XTS_USE_CONNECTIONS, 1);
	connection_return_window(c);
	if (c->state == CONNECTION_LISTENER)
		c->channel->listener_count--;
	else
		c->channel->connection_count--;
}

void connection_free(struct connection *c, bool reset)
{
	datagram_free(c);
	if (c->shared)
		share_leave(c, false);
	held_forget(c);
	if (c->listener && !c->announced)
		accepting_ends(c);
	listener_offer_ends(c);
	if (c->state == CONNECTION_LISTENER && c->pushed)
		accepting_drop(c);
	while (!list_empty(&c->offers)) /* the offers of a listener: the host will still answer them */
		listener_offer_ends(list_entry(c->offers.next, struct connection, offers));
	socket_close(c, reset);
	closed_end(c, reset);  /* in case it had no socket any more */
	name_release(c->name); /* in case its socket has moved to another connection */
	c->name = NULL;
	trim_count(&c->worker->trim, &c->worker->timers, c->worker->now_ns, sizeof *c + (c->pushed ? PUSHED_BYTES : 0));
	uncount(c);
	if (c->channel) {
		identifier_release(c->channel, c->proxy_id);
		if (c->channel->refusing == c)
			c->channel->refusing = NULL;
		if (c->channel->binding == c)
			c->channel->binding = NULL;
	}
	outgoing_free(&c->out);
	returned_drop(&c->returned, c->worker, c->tenant);
	pushed_free(c->pushed);
	c->pushed = NULL;
	buffers_uncharge(c);
	if (!atomic_load(&c->cut)) /* the orphan that replaced it is charged instead */
		tenant_give_socket(c->tenant);
	xts_tenant_release(c->tenant);
	c->tenant = NULL;
	list_remove(&c->ready);
	list_remove(&c->dirty);
	timer_cancel(&c->timer);
	list_remove(&c->noted);
	list_remove(&c->unnamed);
	list_remove(&c->member);
	/* Events already fetched may still point here: the worker frees the memory after them. */
	c->channel = NULL;
	c->noted_events = 0;
	c->look_due = false;
	connection_enter(c, CONNECTION_FREED);
	c->next_dead = c->worker->dead;
	c->worker->dead = c;
}

void connection_wake(struct connection *c)
{
	if (!c->channel || c->orphan || !list_empty(&c->ready))
		return;
	list_append(&c->channel->ready, &c->ready);
	waiting_ready(c);
}

int connection_watch(struct connection *c)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = &c->watch,
	};

	if (c->in_epoll)
		return 0;
	if (epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_ADD, c->fd, &event))
		return -errno;
	c->in_epoll = true;
	return 0;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static int socket_error(int fd)
{
	int error = 0;
	socklen_t length = sizeof error;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
		return errno;
	return error;
}

/* The result of a connect in progress, from a second connect(2), whose address does not matter. Reading SO_ERROR
 * instead would leave the socket "connecting", and Linux would answer the host's next attempt with ECONNABORTED. */
static int connect_result(const struct connection *c)
{
	const struct sockaddr_in any = { .sin_family = AF_INET };

	return connect(c->fd, (const struct sockaddr *)&any, sizeof any) ? errno : 0;
}

void connection_connect_failed(struct connection *c, int error)
{
	c->error = error;
	closed_end(c, false);
	c->connect_reply = true;
	c->worker->stats.connects_failed++;
	connection_wake(c);
}

void connection_connected(struct connection *c)
{
	c->writable = true;
	if (c->since_ns) {
		histogram_add(&c->worker->stats.connect_time, c->worker->now_ns - c->since_ns);
		c->since_ns = 0;
		closed_connected(c);
	}
	if (c->pushed && !c->pushed->started) {
		pushed_start(c);
		if (c->state != CONNECTION_CONNECTING || (c->pushed->started && !c->pushed->ready))
			return; /* connected now, or when the handshakes are done */
	}
	connection_enter(c, CONNECTION_ESTABLISHED);
	c->connect_reply = true;
	c->worker->stats.connects_ok++;
	connection_wake(c);
}

static void connect_finished(struct connection *c)
{
	int error = connect_result(c);

	if (error == EALREADY)
		return; /* an event from before the connect */
	if (!error) {
		connection_connected(c);
		return;
	}
	connection_enter(c, CONNECTION_IDLE);
	if (c->pushed && c->pushed->with_connect)
		push_with_connect_failed(c);
	connection_connect_failed(c, error);
}

static void stream_event(struct connection *c, uint32_t events)
{
	if (c->pushed) {
		pushed_event(c, events);
		if (c->state == CONNECTION_CLOSING && c->fd >= 0 && c->pushed->started)
			pushed_drain(c);
		if (c->fd < 0)
			return;
	}
	if (events & (EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		c->readable = true;
		connection_wake(c);
	}
	if (events & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->read_to_end = true; /* EPOLLPRI: a read stops at the urgent mark */
	if (events & EPOLLERR && c->eos_sent && !c->error) {
		int error = socket_error(c->fd); /* nobody reads any more and would find the error: ask for it */

		if (error)
			connection_fail(c, error);
	}
	if (events & EPOLLOUT) {
		c->writable = true;
		if (c->pushed) { /* a protocol may have stopped reading because there was no room for its answers */
			c->readable = true;
			connection_wake(c);
		}
		if (c->pushed || outgoing_waits(&c->out))
			connection_flush(c); /* may free an orphan: c must not be used after this */
	}
}

static void connection_event(struct connection *c, uint32_t events)
{
	if (c->fd < 0)
		return;
	if (c->orphan && events & (EPOLLERR | EPOLLHUP)) {
		connection_free(c, true); /* the peer will not read the rest */
		return;
	}
	switch (c->state) {
	case CONNECTION_CONNECTING:
		if (c->pushed && c->pushed->started) { /* its handshake is not done */
			stream_event(c, events);
			break;
		}
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			connect_finished(c);
		if (c->state == CONNECTION_ESTABLISHED)
			stream_event(c, events & ~(uint32_t)EPOLLOUT);
		break;
	case CONNECTION_LISTENER:
		c->readable = true;
		connection_wake(c);
		break;
	case CONNECTION_ESTABLISHED:
	case CONNECTION_FAILED:
		stream_event(c, events);
		break;
	case CONNECTION_DATAGRAM:
		datagram_event(c, events);
		break;
	case CONNECTION_CLOSING:
		stream_event(c, events);
		/* when the FIN is acknowledged, the kernel reports EPOLLOUT once */
		if (c->fd >= 0 && c->lingering)
			look_at_lingering(c);
		break;
	default:
		break;
	}
}

void connection_note(struct connection *c, uint32_t events)
{
	c->noted_events |= events;
	waiting_noted(c);
	if (list_empty(&c->noted))
		list_append(c->channel ? &c->channel->noted : &c->unowned->noted, &c->noted);
}

void connection_turn(struct connection *c)
{
	uint32_t events = c->noted_events;

	waiting_has_turn(c);
	if (c->orphan && atomic_load(&c->cut)) {
		c->worker->stats.orphans_cut++;
		connection_free(c, true);
		return;
	}
	c->noted_events = 0;
	if (events)
		connection_event(c, events);
	if (c->pushed && c->pushed->timer_due)
		pushed_timer(c);
	if (c->look_due)
		look_again(c);
	connection_check(c);
}

void connection_fail(struct connection *c, int error)
{
	if (c->reset_sent || c->error)
		return;
	c->worker->stats.resets++;
	c->error = error;
	connection_drop_outgoing(c);
	if (c->pushed)
		pushed_fail(c);
	c->readable = true; /* what has arrived is still delivered; the read after that finds the error */
	if (c->orphan) {
		connection_free(c, true);
		return;
	}
	if (c->lingering || c->state == CONNECTION_CLOSING) {
		c->lingering = false;
		c->close_reply = true;
	}
	connection_wake(c);
}

bool connection_renew(struct connection *c)
{
	const struct sockaddr nowhere = { .sa_family = AF_UNSPEC };

	if (c->state != CONNECTION_FAILED || !c->reset_sent || c->pushed || c->spent || c->fd < 0)
		return false;
	if (connect(c->fd, &nowhere, sizeof nowhere))
		return false;
	connection_flush(c); /* the host sent these bytes before it knew of the failure; nobody will read them */
	connection_drop_outgoing(c);
	if (c->window)
		xts_credit_grant_init(&c->grant, c->window);
	connection_enter(c, CONNECTION_IDLE);
	c->noted_events = 0; /* events from before the failure */
	c->readable = c->read_to_end = c->writable = c->eos_sent = c->reset_sent = false;
	c->lingering = c->accepted = c->spilled = false;
	c->out = (struct outgoing){ 0 };
	c->error = 0;
	c->held = c->consumed = 0;
	c->received_bytes = 0;
	return true;
}

/* --- closing ------------------------------------------------------------------------------------------------------ */

void connection_look_later(struct connection *c)
{
	uint32_t most = c->state == CONNECTION_LISTENER ? LOOK_MS_LISTENER : LOOK_MS_LINGERING;

	if (timer_is_set(&c->timer))
		return;
	c->look_ms = !c->look_ms ? LOOK_MS_FIRST : c->look_ms < most / 2 ? 2 * c->look_ms : most;
	timer_set(&c->worker->timers, &c->timer, c->worker->now_ns + c->look_ms * UINT64_C(1000000));
}

/* Have bytes arrived that nobody will read? */
static bool has_unread(struct connection *c)
{
	int bytes = 0;

	if (c->returned.first)
		return true;
	if (c->pushed && (c->pushed->started || c->pushed->peeking))
		return pushed_has_unread(c);
	return c->readable && !ioctl(c->fd, FIONREAD, &bytes) && bytes > 0;
}

static void close_at_once(struct connection *c)
{
	bool reset = c->state == CONNECTION_ESTABLISHED;

	socket_close(c, reset);
	connection_drop_outgoing(c);
	c->close_reply = true;
}

void connection_close_listener(struct connection *c)
{
	c->channel->refusing = c;
	if (c->shared ? !share_end_some(c, !c->channel->refusing_keeps) : !listener_refuse_some(c))
		return;
	c->channel->refusing = NULL;
	if (c->shared)
		share_leave(c, !c->channel->refusing_keeps);
	c->unwaited = c->channel->refusing_unwaited;
	close_at_once(c);
	connection_wake(c);
}

void connection_close_datagram(struct connection *c)
{
	if (c->shared)
		share_leave(c, !c->datagrams->closing_keeps);
	close_at_once(c);
	connection_wake(c);
}

void connection_close(struct connection *c, uint8_t flags, uint32_t read_bytes)
{
	bool unread = read_bytes != (c->received_bytes & (XTS_CREDITS_MAX - 1)), unwaited;

	if (c->close_reply)
		return;
	if (c->state == CONNECTION_CLOSING) { /* the host no longer waits for the end of lingering */
		c->lingering = false;
		c->close_reply = true;
		connection_wake(c);
		return;
	}
	c->connect_reply = false;
	/* a host that will use the socket again (XTS_FLAG_ABORT) also waits for CLOSED */
	unwaited = !(flags & (XTS_FLAG_ABORT | XTS_FLAG_LINGER));
	if (c->state == CONNECTION_LISTENER) {
		c->channel->refusing_unwaited = unwaited;
		c->channel->refusing_keeps = flags & XTS_FLAG_LINGER;
		connection_close_listener(c);
		return;
	}
	if (c->state == CONNECTION_DATAGRAM && !datagram_close(c, flags & XTS_FLAG_LINGER))
		return;
	c->unwaited = unwaited;
	if (c->shared) /* a shared socket that is bound and does not listen yet */
		share_leave(c, !(flags & XTS_FLAG_LINGER));
	if (c->state != CONNECTION_ESTABLISHED || flags & XTS_FLAG_ABORT || unread || c->error || has_unread(c)) {
		close_at_once(c);
	} else {
		c->out.fin_wanted = true;
		connection_enter(c, CONNECTION_CLOSING);
		c->lingering = flags & XTS_FLAG_LINGER;
		c->close_reply = !c->lingering;
		if (c->lingering) {
			c->error = 0;
			c->look_ms = 0;
			connection_look_later(c);
		}
		if (!outgoing_waits(&c->out))
			connection_drained(c);
	}
	connection_wake(c);
}

void connection_drained(struct connection *c)
{
	if (c->pushed && c->out.fin_wanted && !c->out.fin_done && c->fd >= 0 && !pushed_finish(c))
		return; /* its protocols have more to send, or the connection has failed */
	if (c->out.fin_wanted && !c->out.fin_done && c->fd >= 0) {
		c->out.fin_done = true;
		/* A socket that will be closed anyway is closed when CLOSED goes out, and close(2) sends the FIN. */
		if (c->lingering || c->state != CONNECTION_CLOSING)
			(void)shutdown(c->fd, SHUT_WR);
	}
	if (c->orphan)
		connection_free(c, false);
}

/* Has the TCP peer acknowledged everything, our FIN included? Negative: the connection has failed. */
static int all_acknowledged(int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof info;
	int error = socket_error(fd);

	if (error)
		return -error;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
		return -errno;
	return info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT &&
	       info.tcpi_state != TCP_FIN_WAIT1 && info.tcpi_state != TCP_LAST_ACK && info.tcpi_state != TCP_CLOSING;
}

/* Checks whether a lingering close is done. */
static void look_at_lingering(struct connection *c)
{
	int done = c->out.fin_done ? all_acknowledged(c->fd) : 0;

	if (!done)
		return;
	c->error = done < 0 ? -done : 0;
	c->lingering = false;
	c->close_reply = true;
	timer_cancel(&c->timer);
	connection_wake(c);
}

static void look_expired(struct timer *timer)
{
	struct connection *c = list_entry(timer, struct connection, timer);

	c->look_due = true;
	connection_note(c, 0);
}

static void look_again(struct connection *c)
{
	c->look_due = false;
	c->worker->stats.looks++;
	if (c->state == CONNECTION_LISTENER) {
		c->readable = true;
		connection_wake(c);
	} else if (c->state == CONNECTION_DATAGRAM) {
		datagram_look(c);
	} else if (c->lingering) {
		look_at_lingering(c);
		if (c->lingering)
			connection_look_later(c);
	}
}
