/*
 * Connections of which several processes have a copy: fork, close, exit, and the periodic look at them. inherit.h has
 * the theory of operation.
 *
 * A connection that the application has closed, but that other processes have, stays here (own.ending) until one of
 * them takes it, all are gone, or this process exits. So if a process that never used it is killed, nobody has to wait
 * for a timeout. But close() is final: a relative that is attached, and still has the connection, takes it over with
 * its next look, so that it does not stay with one that has closed it.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/process.h"
#include "core/reason.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"

#define LOOK_NS (100 * NS_PER_MS)
#define SEEK_NS (20 * NS_PER_MS)
#define EXIT_NS NS_PER_S
#define KEYS_NS (50 * NS_PER_MS)

/* --- who has it --------------------------------------------------------------------------------------------------- */

bool common_others_have(struct xts_sock *s, struct living *living)
{
	return relatives_others_have(s->own.common, living) || passed_others_have(s);
}

/* Once this process has left it, the entry may become another connection's. */
static bool is_left_to_others(struct xts_sock *s, bool (*leave_relatives)(struct common *c))
{
	struct passed_leaving leaving;

	key_look_up(s); /* if this is the last process, it takes the connection over in order to end it */
	leaving = passed_leaves(s);
	return passed_is_left_to_others(s, leaving, leave_relatives(s->own.common));
}

bool common_leave(struct xts_sock *s)
{
	return is_left_to_others(s, relatives_leave);
}

bool common_kept(struct xts_sock *s)
{
	return is_left_to_others(s, relatives_kept);
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

/* Could a child use it? */
static bool is_possible(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	if (!s->open || s->closing || s->lost)
		return false;
	if (s->own.common)
		return true;
	if (s->own.inherited != NOT_INHERITED || !c || !(c->link.features & XTS_FEATURE_TAKE) || !s->proxy_id ||
	    s->opening || s->pushing || s->cold->ulps.peeking || s->cold->ulps.handshaking)
		return false;
	return s->state == TCP_STATE_ESTABLISHED || (s->state == TCP_STATE_CLOSE && s->phase == PHASE_CONNECTED);
}

void common_tell_counts(struct xts_sock *s)
{
	if (!s->own.common)
		return;
	atomic_store(&s->own.common->read_bytes, s->read_bytes);
	atomic_store(&s->own.common->sent_bytes, s->sent_bytes - s->cold->sharing.sent_before);
}

void common_tell_shutdown(struct xts_sock *s)
{
	/* that the stream has ended the proxy tells each process that takes it */
	if (s->own.common)
		s->own.common->shutdown |= s->done ? s->shutdown & SEND_SHUTDOWN : s->shutdown;
}

/* Programs do not look at what shutdown() returns. Whoever has the connection next, or has it now and looks, does it. */
bool common_shuts_later(struct xts_sock *s, uint8_t bits)
{
	if (!s->own.common)
		return false;
	s->shutdown |= bits;
	s->own.common->shutdown |= bits;
	s->cold->sharing.shuts_later = true;
	if (s->cold->sharing.sought_for < PURPOSE_USE)
		s->cold->sharing.sought_for = PURPOSE_USE;
	common_look_soon(s->stack);
	status_state(s);
	socket_changed(s, STATE_CHANGE);
	return true;
}

/* Another process has shut down what this one holds. */
static void follow_shutdown(struct xts_sock *s)
{
	uint8_t bits = s->own.common->shutdown & (uint8_t)~s->shutdown & SHUTDOWN_MASK;

	if (!bits || s->state != TCP_STATE_ESTABLISHED)
		return;
	s->shutdown |= bits;
	if (bits & SEND_SHUTDOWN)
		outbox_add(s, TODO_FIN);
	status_state(s);
	socket_changed(s, STATE_CHANGE);
}

static void tell_of(const void *context, int fd)
{
	const struct channel *c = context;

	xts_attach_tell_relatives(&c->attachment, fd, c->link.features & XTS_FEATURE_OVER);
}

void common_tell_server(struct channel *c)
{
	relatives_tell(&c->relatives_told, tell_of, c);
}

/* From now on this process counts, for the others, how much it reads and sends. */
static bool become_common(struct xts_sock *s)
{
	if (s->own.common)
		return true;
	s->own.common = relatives_add();
	if (!s->own.common)
		return false;
	atomic_store(&s->own.common->torn, false);
	s->own.common->shutdown = 0;
	if (s->state == TCP_STATE_ESTABLISHED)
		common_tell_shutdown(s);
	common_tell_counts(s);
	/* A process that had it before, with the key from then, has it no longer. */
	if (!s->cold->sharing.key || s->stack->channel->link.features & XTS_FEATURE_RENEW_KEY)
		s->cold->sharing.key = key_make();
	key_tell(s);
	s->cold->sharing.leaves_last = false;
	common_count(s);
	common_tell_server(s->stack->channel);
	outbox_add(s, TODO_SHARE);
	return true;
}

int common_make(struct xts_sock *s)
{
	if (!is_possible(s))
		return -EOPNOTSUPP;
	return become_common(s) ? 0 : -ENOMEM;
}

static bool has_unsent_key(const struct channel *c)
{
	const struct xts_sock *s = c->outbox_first;

	while (s && !(s->todo & TODO_SHARE))
		s = s->outbox_next;
	return s;
}

/* The proxy has to know the keys when the child asks, even if this process is killed before it does anything else. More
 * keys than the frame window has room for leave as the proxy acknowledges them: it does so in microseconds, or it is
 * stopped. All stacks are about to be locked, so no thread can wait for that. */
static void send_keys(struct stack *st)
{
	uint64_t deadline_ns = now_ns() + KEYS_NS;

	channel_flush(st, true);
	while (st->channel && has_unsent_key(st->channel) && now_ns() < deadline_ns) {
		sched_yield();
		channel_pump(st);
		channel_flush(st, true);
	}
}

void common_before_fork(struct stack *st)
{
	struct xts_sock *s = NULL;

	while (process_inherits() && (s = table_next(st, s)))
		if (is_possible(s) && become_common(s) && relatives_give_child(s->own.common))
			passed_before_fork(s);
	if (st->channel && st->commons)
		send_keys(st);
}

void common_after_fork_parent(struct stack *st)
{
	struct xts_sock *s = NULL;

	if (!st->commons)
		return;
	while ((s = table_next(st, s)))
		passed_after_fork_parent(s);
	progress_need(st); /* another process may ask for them */
}

bool common_inherited(struct xts_sock *s)
{
	bool has_it = s->own.common && relatives_inherited(s->own.common);

	passed_after_fork(s, has_it);
	if (!has_it) {
		shared_status_is(s, NULL);
		s->own.common = NULL;
	} else {
		common_count(s);
	}
	return has_it;
}

void common_count(struct xts_sock *s)
{
	s->cold->sharing.counted = true;
	shared_status_is(s, relatives_status(s->own.common));
	s->stack->commons++;
}

void common_detach(struct xts_sock *s)
{
	struct common *c = s->own.common;

	s->own.common = NULL;
	if (!c)
		return;
	shared_status_is(s, NULL);
	relatives_drop(c);
}

void common_drop(struct xts_sock *s)
{
	passed_leave(s);
	common_detach(s);
	if (!s->cold->sharing.counted)
		return;
	s->stack->commons--;
	s->cold->sharing.counted = false;
}

void common_forget(struct xts_sock *s)
{
	if (!s->own.common)
		return;
	common_leave(s);
	common_drop(s);
	if (s->own.inherited != NOT_INHERITED || s->own.moved != NOT_MOVED)
		return;
	s->cold->sharing.leaves_last = true;
	s->cold->sharing.asked_for = 0;
	outbox_add(s, TODO_SHARE);
}

/* --- close -------------------------------------------------------------------------------------------------------- */

/* Closes the last copy of a connection that another process held: this process takes it over first. */
static void take_to_close(struct xts_sock *s)
{
	int r = turn_take_to_close(s);

	if (r && s->in_use && !s->lost) { /* socket_end() only forgets it then */
		s->lost = true;
		socket_fail(s, ECONNRESET);
	}
}

/* It is closed while it is being given up. */
static void wait_until_moved(struct xts_sock *s)
{
	s->cold->sharing.close_waits = true;
	while (s->in_use && s->own.moved != NOT_MOVED)
		if (wait_for(s->stack, &s->callers, now_ns() + NS_PER_S, false))
			break;
	s->cold->sharing.close_waits = false;
}

bool common_closes(struct xts_sock *s)
{
	bool others;

	if (s->own.taking)
		return true; /* it ends when that is done */
	if (s->own.moved != NOT_MOVED)
		wait_until_moved(s);
	if (!s->own.common)
		return !s->in_use;
	if (s->own.inherited == NOT_INHERITED && !s->lost && !s->closing && common_others_have(s, NULL)) {
		relatives_keep(s->own.common);
		s->own.ending = true;
		common_look_soon(s->stack);
		return true;
	}
	others = common_leave(s);
	common_drop(s);
	if (!others && s->own.inherited != NOT_INHERITED && !s->lost)
		take_to_close(s);
	return !s->in_use;
}

/* It was given up after close(), but no process is left to take it: takes it back and closes it. */
static void take_back(struct xts_sock *s)
{
	take_to_close(s);
	if (s->in_use)
		socket_end(s);
}

/* This process ends. Connections that others have are given up; the rest end with this process. */
static void leave(struct xts_sock *s)
{
	bool holds = s->own.inherited == NOT_INHERITED, others;

	/* The entry first, then the connection: a process that leaves after this no longer relies on this one. */
	others = s->own.ending ? common_kept(s) : common_leave(s);
	if (others) {
		if (holds)
			(void)turn_give_up(s);
		return;
	}
	common_drop(s);
	if (!holds) {
		take_to_close(s);
		if (!s->in_use || s->lost)
			return;
	}
	s->own.ending = false;
	s->cold->sharing.leaves_last = true;
	outbox_add(s, TODO_SHARE); /* the proxy need not keep it */
}

/* Waits until what is on its way to other processes has arrived at the proxy. */
static void settle(struct stack *st, uint64_t deadline_ns)
{
	while (st->moving && st->channel && now_ns() < deadline_ns) {
		channel_flush(st, true);
		if (wait_for(st, &st->close_waiters, now_ns() + NS_PER_MS, false) == -ENOBUFS)
			break;
	}
}

void common_at_exit(struct stack *st)
{
	uint64_t deadline = now_ns() + EXIT_NS;
	struct xts_sock *s = NULL;

	if (!st->commons)
		return;
	settle(st, deadline);
	while ((s = table_walk(st, s))) {
		if (now_ns() >= deadline || s->own.taking || s->own.moved != NOT_MOVED)
			continue;
		if (s->own.common)
			leave(s);
		else if (s->own.ending)
			take_back(s);
	}
	settle(st, deadline);
	while ((s = table_walk(st, s)))
		if (!s->own.common && s->own.ending && !s->own.taking && s->own.moved == NOT_MOVED && now_ns() < deadline)
			take_back(s); /* the other processes have left too, while it was being given up */
}

/* --- the periodic look -------------------------------------------------------------------------------------------- */

/* One look at all connections. */
struct looking {
	bool at_copies;
	uint64_t next_ns; /* when to look again */
	struct living living;
};

static void look_after_closed(struct xts_sock *s, struct looking *l)
{
	if (common_others_have(s, &l->living))
		return;
	common_kept(s);
	/* it stays counted until it is closed: unless it is taken, the answers of many sockets find no room on the
	 * link */
	common_detach(s);
	s->own.ending = false;
	socket_end(s);
}

/* A poll waits for it: takes it from a process that does not use it. */
static void seek(struct xts_sock *s, uint64_t now)
{
	if (now - s->cold->sharing.sought_ns < SEEK_NS)
		return;
	s->cold->sharing.sought_ns = now;
	turn_seek(s);
}

/* Is it with a relative that has closed it? With another program it stays: if this process took it and were killed, the
 * other programs could not know whether anything is missing. */
static bool is_kept_elsewhere(const struct xts_sock *s)
{
	return s->own.inherited != NOT_INHERITED && s->open && atomic_load(&s->own.common->keeper);
}

static bool is_sought(const struct xts_sock *s)
{
	return s->own.inherited != NOT_INHERITED &&
	       (s->polled || s->watches || s->mirror || s->cold->sharing.shuts_later);
}

/* Does any other process still have a copy of a connection that this process holds? */
static void look(struct xts_sock *s, struct looking *l)
{
	if (s->own.inherited == NOT_INHERITED)
		follow_shutdown(s);
	if (s->own.ending)
		look_after_closed(s, l);
	else if (s->own.inherited == NOT_INHERITED && !common_others_have(s, &l->living))
		common_forget(s);
	else
		(void)key_renew(s);
}

/* Returns when to look again. */
static uint64_t look_at_all(struct stack *st, uint64_t now)
{
	struct looking l = { .at_copies = now >= st->looks_at_copies_ns };
	struct xts_sock *s = NULL;

	if (l.at_copies)
		st->looks_at_copies_ns = now + LOOK_NS;
	l.next_ns = st->looks_at_copies_ns;
	while ((s = table_walk(st, s))) {
		if (s->own.moved != NOT_MOVED || s->own.taking)
			continue;
		if (!s->own.common) {
			if (s->own.ending)
				take_back(s);
		} else if (is_sought(s)) {
			seek(s, now);
			if (l.next_ns > now + SEEK_NS)
				l.next_ns = now + SEEK_NS;
		} else if (l.at_copies && is_kept_elsewhere(s)) {
			(void)turn_take_kept(s);
		} else if (l.at_copies) {
			look(s, &l);
		}
	}
	return l.next_ns;
}

void common_look_soon(struct stack *st)
{
	st->looks_at_commons_ns = 0;
	progress_need(st);
	progress_wake(st);
}

void common_tick(struct stack *st, uint64_t *deadline_ns)
{
	uint64_t now = now_ns(), next;

	if (!st->commons)
		return;
	if (now >= st->looks_at_commons_ns) {
		st->looks_at_commons_ns = FOREVER; /* a request that comes meanwhile sets it again */
		next = look_at_all(st, now);
		if (next < st->looks_at_commons_ns)
			st->looks_at_commons_ns = next;
	}
	if (st->looks_at_commons_ns < *deadline_ns)
		*deadline_ns = st->looks_at_commons_ns;
}
