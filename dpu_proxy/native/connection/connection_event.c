/* What happens to a connection on TCP: a connect ends, bytes come, room comes, it fails; or its timer says that it is
 * time to look. It is noted, and carried out in the turn of the connection's channel. */
#include "connection/connection_inside.h"
#include "connection/socket_kind.h"
#include "connection/unowned.h"
#include "pushed/pushed.h"
#include "worker/histogram.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Intervals of connection_look_later(): short at first, and in the end so long that thousands of waiting connections
 * cost next to nothing. The kernel reports when the peer has acknowledged a FIN; a lingering close is checked by timer
 * only for other TCP stacks, which do not report it. */
#define LOOK_MS_FIRST 5u

int connection_socket_error(int fd)
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

	return connect(c->tcp.fd, (const struct sockaddr *)&any, sizeof any) ? errno : 0;
}

void connection_connect_failed(struct connection *c, int error)
{
	c->tcp.error = error;
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
	if (c->tcp.pushed && !c->tcp.pushed->started) {
		pushed_start(c);
		if (c->state != CONNECTION_CONNECTING || (c->tcp.pushed->started && !c->tcp.pushed->ready))
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
	if (c->tcp.pushed && c->tcp.pushed->with_connect)
		push_with_connect_failed(c);
	connection_connect_failed(c, error);
}

/* Where it does not stay in the stream, no count says any more what the host has got. In a crash the connection is
 * reset, for a byte that was skipped would be taken for one that is missing. */
static void urgent_data_came(struct connection *c)
{
	int stays = 0;
	socklen_t length = sizeof stays;

	if (getsockopt(c->tcp.fd, SOL_SOCKET, SO_OOBINLINE, &stays, &length) || !stays) {
		c->urgent = true;
		ledger_forget(c->tcp.fd);
	}
}

static void data_event(struct connection *c, uint32_t events)
{
	if (events & EPOLLPRI && !c->urgent)
		urgent_data_came(c);
	if (c->tcp.pushed) {
		pushed_event(c, events);
		if (c->state == CONNECTION_CLOSING && c->tcp.fd >= 0 && c->tcp.pushed->started)
			pushed_drain(c);
		if (c->tcp.fd < 0)
			return;
	}
	if (events & (EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		c->readable = true;
		connection_wake(c);
	}
	if (events & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->read_to_end = true; /* EPOLLPRI: a read stops at the urgent mark */
	if (events & EPOLLERR && c->eos_sent && !c->tcp.error) {
		int error = connection_socket_error(c->tcp.fd); /* nobody reads any more and would find it */

		if (error)
			connection_fail(c, error);
	}
	if (events & EPOLLOUT) {
		c->writable = true;
		if (c->tcp.pushed) { /* a protocol may have stopped reading because there was no room for its answers */
			c->readable = true;
			connection_wake(c);
		}
		if (c->tcp.pushed || outgoing_waits(&c->tcp.out))
			connection_flush(c); /* may free an orphan: c must not be used after this */
	}
}

void stream_event(struct connection *c, uint32_t events)
{
	switch (c->state) {
	case CONNECTION_CONNECTING:
		if (c->tcp.pushed && c->tcp.pushed->started) { /* its handshake is not done */
			data_event(c, events);
			break;
		}
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			connect_finished(c);
		if (c->state == CONNECTION_ESTABLISHED)
			data_event(c, events & ~(uint32_t)EPOLLOUT);
		break;
	case CONNECTION_ESTABLISHED:
	case CONNECTION_FAILED:
		data_event(c, events);
		break;
	case CONNECTION_CLOSING:
		data_event(c, events);
		/* when the FIN is acknowledged, the kernel reports EPOLLOUT once */
		if (c->tcp.fd >= 0 && c->lingering)
			connection_look_at_lingering(c);
		break;
	default:
		break;
	}
}

static void connection_event(struct connection *c, uint32_t events)
{
	if (c->tcp.fd < 0)
		return;
	if (c->orphan && events & (EPOLLERR | EPOLLHUP)) {
		connection_free(c, true); /* the peer will not read the rest */
		return;
	}
	kind_of(c)->event(c, events);
}

/* --- looking again later ------------------------------------------------------------------------------------------ */

/* Few connections ever need it. */
struct look {
	struct timer timer;
	struct connection *connection;
	uint32_t ms;    /* what the timer was set to last; it doubles; 0: begins again */
	bool is_longer; /* it was set by connection_look_in() */
};

static void look_in_next_turn(struct connection *c)
{
	c->look_due = true;
	connection_note(c, 0);
}

static void look_expired(struct timer *timer)
{
	look_in_next_turn(list_entry(timer, struct look, timer)->connection);
}

static struct look *look_make(struct connection *c)
{
	struct look *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	l->timer.expired = look_expired;
	l->connection = c;
	return l;
}

/* NULL: there is no memory for a timer, and it looks as often as it can. */
static struct look *look_of(struct connection *c)
{
	if (!c->look)
		c->look = look_make(c);
	if (!c->look)
		look_in_next_turn(c);
	return c->look;
}

void connection_look_later(struct connection *c)
{
	uint32_t most = kind_of(c)->look_ms_most;
	struct look *l = look_of(c);

	if (!l || (timer_is_set(&l->timer) && !l->is_longer))
		return;
	l->is_longer = false;
	l->ms = !l->ms ? LOOK_MS_FIRST : l->ms < most / 2 ? 2 * l->ms : most;
	timer_set(&c->worker->timers, &l->timer, c->worker->now_ns + l->ms * UINT64_C(1000000));
}

void connection_look_in(struct connection *c, uint32_t ms)
{
	struct look *l = look_of(c);

	if (!l || timer_is_set(&l->timer))
		return;
	l->is_longer = true;
	timer_set(&c->worker->timers, &l->timer, c->worker->now_ns + ms * UINT64_C(1000000));
}

void connection_look_sooner(struct connection *c)
{
	if (c->look)
		c->look->ms = 0;
}

void connection_look_no_more(struct connection *c)
{
	if (c->look)
		timer_cancel(&c->look->timer);
}

void stream_look(struct connection *c)
{
	if (c->lingering)
		connection_look_at_lingering(c);
	if (c->lingering)
		connection_look_later(c);
}

static void look_again(struct connection *c)
{
	c->look_due = false;
	c->worker->stats.looks++;
	kind_of(c)->look(c);
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

void connection_note(struct connection *c, uint32_t events)
{
	c->noted_events |= events;
	waiting_noted(c);
	if (list_empty(&c->noted))
		list_append(c->channel ? &c->channel->noted : &c->as_orphan->unowned->noted, &c->noted);
}

void connection_turn(struct connection *c)
{
	uint32_t events = c->noted_events;

	waiting_has_turn(c);
	if (c->orphan && atomic_load(&c->as_orphan->cut)) {
		c->worker->stats.orphans_cut++;
		connection_free(c, true);
		return;
	}
	c->noted_events = 0;
	if (events)
		connection_event(c, events);
	if (c->tcp.pushed && c->tcp.pushed->timer_due)
		pushed_timer(c);
	if (c->look_due)
		look_again(c);
	connection_check(c);
}

/* --- failing ------------------------------------------------------------------------------------------------------ */

void connection_fail(struct connection *c, int error)
{
	if (c->reset_sent || c->tcp.error)
		return;
	if (c->state == CONNECTION_CONNECTING && c->tcp.pushed && !c->tcp.pushed->ready) {
		pushed_shaking_failed(c, error); /* RESET would tell nobody: the host waits for CONNECT_ACK */
		return;
	}
	c->worker->stats.resets++;
	c->tcp.error = error;
	connection_drop_outgoing(c);
	if (c->tcp.pushed)
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

	if (c->state != CONNECTION_FAILED || !c->reset_sent || c->tcp.pushed || c->spent || c->tcp.fd < 0)
		return false;
	if (connect(c->tcp.fd, &nowhere, sizeof nowhere))
		return false;
	connection_flush(c); /* the host sent these bytes before it knew of the failure; nobody will read them */
	connection_drop_outgoing(c);
	if (c->window)
		xts_credit_grant_init(&c->grant, c->window);
	connection_enter(c, CONNECTION_IDLE);
	c->noted_events = 0; /* events from before the failure */
	c->readable = c->read_to_end = c->urgent = c->writable = c->eos_sent = c->reset_sent = false;
	c->lingering = c->spilled = false;
	c->tcp.accepted = c->tcp.fin_wanted = c->tcp.fin_done = c->tcp.more = false;
	c->tcp.out = (struct outgoing){ 0 };
	c->tcp.error = 0;
	c->held = c->consumed = 0;
	c->tcp.received_bytes = 0;
	return true;
}
