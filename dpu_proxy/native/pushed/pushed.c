/* The life of a connection's pushed protocols: made, copied, started, given events, failed. pushed.h has the theory of
 * operation. */
#include "channel/ledger.h"
#include "common/time_units.h"
#include "pushed/pushed_kept.h"
#include "connection/socket_kind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "worker/histogram.h"

#define UNREAD_BYTES_MAX (1u << 20)
#define DRAIN_READS 16 /* reads at once, if the turn lasts that long; more has to wait */
#define DRAIN_BYTES 16384u

/* --- the owner's functions for the stack ------------------------------------------------------------------------- */

static uint64_t owner_now_ns(void *owner)
{
	return ((const struct connection *)owner)->worker->now_ns;
}

static void owner_wake_after(void *owner, uint32_t timeout_ms)
{
	struct connection *c = owner;
	struct worker_state *w = c->worker;
	uint64_t when = w->now_ns + (uint64_t)timeout_ms * NS_PER_MS;

	if (!timer_is_set(&c->tcp.pushed->timer) || when < c->tcp.pushed->timer.deadline_ns)
		timer_set(&w->timers, &c->tcp.pushed->timer, when);
}

static void owner_spent(void *owner, uint64_t ns)
{
	tenant_take_anyway(((struct connection *)owner)->tenant, XTS_USE_CPU_NS, ns);
}

static bool owner_memory(void *owner, int64_t bytes)
{
	return connection_count_memory(owner, bytes);
}

/* Charges the tenant, and holds a reference as long as it pays. */
static bool payer_charge(void *who, int64_t bytes)
{
	struct xts_tenant *t = who;

	if (bytes > 0) {
		if (!tenant_take(t, XTS_USE_ULP_BYTES, (uint64_t)bytes))
			return false;
		tenant_hold(t);
	} else {
		tenant_give(t, XTS_USE_ULP_BYTES, (uint64_t)-bytes);
		xts_tenant_release(t);
	}
	return true;
}

/* The owner for a stack. c NULL: for a template that belongs to no connection. */
static struct ulp_owner owner_of(struct connection *c, bool message_socket, bool started)
{
	struct ulp_owner owner = { .fd = -1, .message_socket = message_socket, .reports_end = true };

	if (!c)
		return owner;
	owner.fd = started ? c->tcp.fd : -1;
	owner.tenant = c->tenant->id;
	owner.tenant_name = c->tenant->name;
	owner.queue_id = c->channel ? c->channel->queue_id : 0;
	owner.config = c->worker->config.ulp;
	owner.faults = c->worker->stats.ulp_faults;
	owner.now_ns = owner_now_ns;
	owner.wake_after = owner_wake_after;
	owner.memory = owner_memory;
	owner.payer = (struct ulp_payer){ payer_charge, c->tenant };
	owner.bell = ulp_bell_is_made(&c->worker->bell) ? &c->worker->bell : NULL;
	owner.account = c->tenant->id;
	owner.weight = atomic_load_explicit(&c->tenant->weight, memory_order_relaxed);
	owner.spent = owner_spent;
	owner.owner = c;
	return owner;
}

/* --- orphans ------------------------------------------------------------------------------------------------------ */

void pushed_orphan(struct connection *c, uint32_t timeout_ms)
{
	struct pushed *p = c->tcp.pushed;

	p->orphan_timeout_ns = (uint64_t)timeout_ms * NS_PER_MS;
	p->orphan_ns = c->worker->now_ns + p->orphan_timeout_ns;
	p->orphan_sent_bytes = c->tcp.out.sent_bytes;
	owner_wake_after(c, 0);
}

void pushed_drain(struct connection *c)
{
	static _Thread_local uint8_t nobody[DRAIN_BYTES];
	struct ulp_mark mark;
	ssize_t n = 0;

	ulp_stack_turn(c->tcp.pushed->stack);
	for (unsigned i = 0; i < DRAIN_READS && n >= 0; i++)
		n = ulp_stack_read(c->tcp.pushed->stack, nobody, sizeof nobody, &mark);
	if (n >= 0)
		owner_wake_after(c, 0);
	else if (n != -EAGAIN && n != -ENODATA)
		connection_fail(c, (int)-n);
}

/* The orphan's time is not over yet, and it has not failed. */
static bool orphan_goes_on(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	uint64_t now = c->worker->now_ns;
	bool over = now >= p->orphan_ns && c->tcp.out.sent_bytes == p->orphan_sent_bytes;
	int in_tcp = 0;

	/* TCP's own timeout applies to bytes that TCP has taken and may deliver slowly. */
	if (over && (ioctl(c->tcp.fd, TIOCOUTQ, &in_tcp) || !in_tcp)) {
		connection_free(c, true);
		return false;
	}
	if (over || c->tcp.out.sent_bytes != p->orphan_sent_bytes) {
		p->orphan_sent_bytes = c->tcp.out.sent_bytes;
		p->orphan_ns = now + p->orphan_timeout_ns;
	}
	owner_wake_after(c, (uint32_t)((p->orphan_ns - now) / NS_PER_MS) + 1);
	if (p->started)
		pushed_drain(c);
	return c->tcp.fd >= 0;
}

static void expired(struct timer *timer)
{
	struct pushed *p = list_entry(timer, struct pushed, timer);

	p->timer_due = true;
	connection_note(p->connection, 0);
}

void pushed_timer(struct connection *c)
{
	c->tcp.pushed->timer_due = false;
	if (c->tcp.fd < 0)
		/* the connection was closed after the timer had expired: the host gets CLOSED, so a handshake must not
		 * fail any more */
		return;
	if (c->orphan && !orphan_goes_on(c))
		return;
	if (c->lingering && c->tcp.pushed->started)
		pushed_drain(c);
	if (c->tcp.pushed->started && !c->tcp.pushed->ready) {
		pushed_advance(c);
		return;
	}
	c->readable = true;
	connection_wake(c);
	if (outgoing_waits(&c->tcp.out))
		connection_flush(c); /* the protocol's peer may have allowed us to send again */
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Charges the memory of the structs that exist with any push, and in peek mode. It is counted with the stack, also when
 * that moves to another connection. */
static int charge_structs(struct pushed *p)
{
	return ulp_stack_take_memory(p->stack, (uint32_t)sizeof *p + ulp_stack_bytes());
}

static struct pushed *pushed_new(struct connection *c)
{
	struct pushed *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->connection = c;
	p->since_pdu = c ? c->tcp.received_bytes : 0;
	p->timer.expired = expired;
	return p;
}

int pushed_make(struct connection *c)
{
	struct ulp_owner owner = owner_of(c, false, false);
	struct pushed *p;
	int r;

	if (c->tcp.pushed)
		return 0;
	if (c->state != CONNECTION_LISTENER)
		ledger_forget(c->tcp.fd); /* at once: its counts do not tell of protocols */
	p = pushed_new(c);
	if (!p)
		return -ENOMEM;
	if (ulp_stack_new(&p->stack, &owner)) {
		free(p);
		return -ENOMEM;
	}
	r = charge_structs(p);
	c->tcp.pushed = p;
	if (r) {
		c->tcp.pushed = NULL;
		pushed_free(p);
	}
	return r;
}

int pushed_make_for_none(struct pushed **out, const struct ulp_owner *owner)
{
	struct pushed *p = pushed_new(NULL);

	if (!p)
		return -ENOMEM;
	if (ulp_stack_new(&p->stack, owner)) {
		free(p);
		return -ENOMEM;
	}
	(void)charge_structs(p); /* nobody pays so far, and refuses */
	*out = p;
	return 0;
}

int pushed_copy(struct pushed **out, const struct pushed *from, struct connection *c)
{
	struct ulp_owner owner = owner_of(c, from->message_socket, false);
	struct pushed *p = pushed_new(c);
	int r;

	if (!p)
		return -ENOMEM;
	if (!c && from->connection) {
		owner.config = from->connection->worker->config.ulp;
		owner.tenant = from->connection->tenant->id;
		owner.tenant_name = from->connection->tenant->name;
		owner.queue_id = from->connection->channel->queue_id;
	}
	r = ulp_stack_copy(&p->stack, from->stack, &owner);
	if (r) {
		free(p);
		return r;
	}
	r = charge_structs(p);
	if (r) {
		pushed_free(p);
		return r;
	}
	p->message_socket = from->message_socket;
	p->typed = from->typed;
	p->peeking = from->peeking;
	p->id_count = from->id_count;
	memcpy(p->ids, from->ids, sizeof p->ids);
	*out = p;
	return 0;
}

static void handshake_ends(struct connection *c)
{
	if (!c->tcp.pushed->handshaking)
		return;
	c->tcp.pushed->handshaking = false;
	c->worker->stats.ulp_handshakes--;
	tenant_give(c->tenant, XTS_USE_HANDSHAKES, 1);
}

static void uncount(struct connection *c, struct pushed *p)
{
	(void)connection_count_memory(c, -(int64_t)pushed_memory(p));
	ulp_stack_leave(p->stack);
}

void pushed_leave(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;

	handshake_ends(c);
	pushed_tears(p); /* its counts are of this channel */
	timer_cancel(&p->timer);
	p->timer_due = false;
	uncount(c, p);
	p->connection = NULL;
}

bool pushed_adopt(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	struct ulp_owner owner = owner_of(c, p->message_socket, p->started);

	if (pushed_memory(p) && !connection_count_memory(c, (int64_t)pushed_memory(p)))
		return false;
	p->connection = c;
	ulp_stack_move(p->stack, &owner);
	return true;
}

void pushed_free(struct pushed *p)
{
	if (!p)
		return;
	if (p->handshaking)
		handshake_ends(p->connection);
	timer_cancel(&p->timer);
	pushed_keep_ends(p);
	if (p->connection)
		uncount(p->connection, p);
	ulp_stack_free(p->stack);
	accepting_free(p);
	free(p);
}

int pushed_set_type(struct connection *c, bool message_socket)
{
	struct pushed *p = c->tcp.pushed;
	struct ulp_owner owner = owner_of(c, message_socket, p->started);

	if (p->typed && p->message_socket == message_socket)
		return 0;
	if (p->typed) {
		return ulp_stack_refuse(p->stack, EINVAL,
					"an earlier push was for a socket of type %s, which cannot change",
					p->message_socket ? "SOCK_SEQPACKET" : "SOCK_STREAM");
	}
	p->typed = true;
	p->message_socket = message_socket;
	ulp_stack_move(p->stack, &owner);
	return 0;
}

void pushed_count(struct connection *c, uint16_t ulp_id)
{
	struct pushed *p = c->tcp.pushed;

	c->worker->stats.ulp_pushed[ulp_id < XTS_ULP_COUNT ? ulp_id : 0]++;
	if ((c->state == CONNECTION_LISTENER || c->state == CONNECTION_IDLE) && p->id_count < PUSHED_MAX)
		p->ids[p->id_count++] = (uint8_t)ulp_id;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

/* Is the connection still the listener's, or waiting for its CONNECT_ACK? Otherwise the host has it already. */
static bool is_new(const struct connection *c)
{
	return c->state == CONNECTION_CONNECTING;
}

/* A protocol has failed before the host has the connection. */
static void new_fails(struct connection *c, int error)
{
	if (c->listener) {
		accepting_done(c, error);
		return;
	}
	pushed_fail(c);
	connection_enter(c, CONNECTION_FAILED);
	c->reset_sent = c->spent = true; /* the failure is sent as CONNECT_ACK */
	connection_connect_failed(c, error);
}

void pushed_shaking_failed(struct connection *c, int error)
{
	if (c->tcp.pushed->handshaking)
		c->worker->stats.ulp_handshakes_failed++;
	handshake_ends(c);
	if (is_new(c))
		new_fails(c, error);
	else
		connection_fail(c, error);
}

/* All layers are ready. */
static void becomes_ready(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;

	p->ready = true;
	pushed_note_tls(c);
	if (p->handshaking) {
		c->worker->stats.ulp_handshakes_ok++;
		histogram_add(&c->worker->stats.handshake_time, c->worker->now_ns - p->handshake_ns);
	}
	handshake_ends(c);
	c->readable = true;
	if (is_new(c)) {
		if (c->listener)
			accepting_done(c, 0);
		else
			connection_connected(c);
		return;
	}
	ledger_count(c); /* from now on it can be told */
	connection_wake(c);
	if (outgoing_waits(&c->tcp.out) || c->tcp.fin_wanted)
		connection_flush(c);
}

/* A handshake begins: 0, or -ENOBUFS and the reason. */
static int handshake_begins(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;

	if (p->handshaking)
		return 0;
	if (!tenant_take(c->tenant, XTS_USE_HANDSHAKES, 1)) {
		c->worker->stats.refused_limit++;
		return ulp_stack_refuse(
			p->stack, ENOBUFS,
			"this tenant has as many handshakes in progress as it may have (limits.handshakes)");
	}
	p->handshaking = true;
	p->handshake_ns = c->worker->now_ns;
	c->worker->stats.ulp_handshakes++;
	return 0;
}

void pushed_advance(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	int r;

	if (!p->started || p->ready || p->give_back_left || p->failed)
		return;
	r = handshake_begins(c);
	if (!r)
		r = ulp_stack_handshake(p->stack);
	if (!r)
		becomes_ready(c);
	else if (r != -EAGAIN)
		pushed_shaking_failed(c, -r);
}

/* Do bytes have to leave first, which were sent before a push onto the send side? The protocols may send messages of
 * their own, which must not come before these. */
static bool must_wait(const struct connection *c)
{
	const struct pushed *p = c->tcp.pushed;

	return p->peeking || p->failed ||
	       (outgoing_waits(&c->tcp.out) && outgoing_first_is_raw(&c->tcp.out) && ulp_stack_sends(p->stack));
}

void pushed_start(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	int r;

	if (p->started || must_wait(c))
		return;
	p->started = true;
	r = ulp_stack_start(p->stack, c->tcp.fd, !c->tcp.accepted);
	if (r) {
		pushed_shaking_failed(c, -r);
		return;
	}
	ulp_stack_event(p->stack, true, c->writable);
	if (c->read_to_end)
		ulp_stack_read_to_end(p->stack);
	if (ulp_stack_ready(p->stack)) {
		p->ready = c->readable = true;
		pushed_note_tls(c);
		if (c->state == CONNECTION_ESTABLISHED)
			ledger_count(c); /* from now on it can be told */
		connection_wake(c);
	} else {
		pushed_advance(c);
	}
}

/* Has a protocol failed, and not TCP? */
static bool is_fault(const struct pushed *p)
{
	uint8_t reason[4 + ULP_REASON_BYTES];
	ssize_t n = ulp_stack_error(p->stack, false, reason, sizeof reason);
	uint16_t fault = n >= 4 ? xts_get16(reason + 2) : 0;

	return fault && fault != XTS_FAULT_PUSH;
}

/* --- events and failure ------------------------------------------------------------------------------------------- */

void pushed_event(struct connection *c, uint32_t events)
{
	struct pushed *p = c->tcp.pushed;

	if (!p->started)
		return;
	if (events & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		ulp_stack_read_to_end(p->stack);
	ulp_stack_event(p->stack, events & EPOLLIN, events & EPOLLOUT);
	pushed_advance(c);
}

void pushed_fail(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;

	if (p->failed || c->tcp.fd < 0 || !is_fault(p))
		return;
	p->failed = true;
	if (p->started)
		(void)ulp_stack_flush(p->stack); /* an alert, for example */
	(void)shutdown(c->tcp.fd, SHUT_RDWR);
	/* With unread bytes, close() would reset the connection, and the peer might lose what we have just sent. */
	(void)peek_drop(c, UNREAD_BYTES_MAX);
}

bool pushed_has_unread(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	struct ulp_mark mark;
	uint8_t byte;
	int bytes = 0;

	if (p->peeking) /* the application has read everything that had come */
		return peek_drop(c, c->tcp.received_bytes) || ioctl(c->tcp.fd, FIONREAD, &bytes) || bytes > 0;
	ulp_stack_turn(p->stack);
	return p->ready && ulp_stack_read(p->stack, &byte, 1, &mark) >= 0;
}
