/*
 * Sockets that are made again.
 *
 * Theory of operation. A listener of the kernel, or a UDP socket, is there for as long as its program. Here it needs a
 * channel, which ends with the proxy, with the way to it, or with the agent. When a channel ends, sockets for which all
 * is known that the program has asked (asked.c) are *away*: listeners, sockets that are bound or have had options set,
 * datagram sockets. An away socket is as one whose network is down: nothing is readable, calls that wait go on waiting,
 * and what needs the proxy fails with ENETDOWN at the time. So nothing that is level-triggered spins.
 *
 * The progress thread attaches again and asks everything again. It needs no call of the program, which may be asleep
 * for days. Attempts begin a moment after the end, and pauses grow to PAUSE_MAX_NS, with jitter: a process whose proxy
 * is gone costs one failing connect() a second, and hundreds of processes do not come in step. A program that makes
 * a socket meanwhile attaches by itself, and then this is tried at once.
 *
 * The end of a way is often noticed by a call that needs it, while there is a new way already. So such a call makes its
 * own socket again first (again_now()), and fails only if that does; after an attempt to attach has failed, calls fail
 * without one of their own.
 *
 * Everything that was asked is there again, or the socket stays away: no listener comes back without its TLS or its
 * filter. If a request is refused (another socket has the port; the policy is another one), the program is told once,
 * by the errno as the socket's pending error, and a line is logged. Attempts go on, since the reason may pass.
 * EADDRINUSE is told only SETTLED_NS after attaching: until then it may be the last channel's socket, of whose end the
 * proxy has not heard yet. The same holds for EACCES of a socket that other processes have: a worker that has given up
 * root may not bind to port 80, and waits for its parent, which may.
 *
 * One thread at a time makes a socket (`tried`). Its channel may end meanwhile, and another be there when the thread
 * goes on: it gives up then (making_is_cut()), and only after that another thread begins. So no request is missing at
 * the next proxy, and the list of requests stays as it is while a thread is in it.
 *
 * If several processes have a socket, each comes here by itself. The first makes it, under the key that all know, and
 * the others join it (shared_listener.c, shared_datagram.c).
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "common/notice.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"

#define FIRST_NS (25 * NS_PER_MS)
#define PAUSE_MAX_NS NS_PER_S
#define REFUSED_PAUSE_MAX_NS (4 * NS_PER_S) /* there is a proxy, and it refuses */
#define SETTLED_NS (2 * NS_PER_S)

/* --- being away --------------------------------------------------------------------------------------------------- */

static bool is_kind(const struct xts_sock *s)
{
	return s->phase == PHASE_UNCONNECTED && !s->cold->ulps.with_connect;
}

static void go_away(struct xts_sock *s)
{
	if (!s->away)
		s->stack->again.away++;
	s->away = true;
	s->making = s->cold->sharing.key_is_told = false;
	s->grant.window = 0;
	s->credits = s->peer_window = 0;
	kind_of(s)->lose(s);
	status_state(s);
	if (s->mirror)
		mirror_dirty(s);
}

bool again_keeps(struct xts_sock *s)
{
	if (!s->open || s->closing || s->stack->again.leaving || !is_kind(s))
		return false;
	go_away(s);
	return true;
}

bool again_keeps_inherited(struct xts_sock *s)
{
	if (!s->open || s->closing || s->stack->again.leaving || s->stack->channel || !is_kind(s))
		return false;
	go_away(s);
	again_start(s->stack);
	return true;
}

void again_over(struct xts_sock *s)
{
	if (!s->away)
		return;
	s->away = s->making = false;
	s->cold->told = false;
	s->stack->again.away--;
}

/* --- when --------------------------------------------------------------------------------------------------------- */

/* Between three and five quarters of it. */
static uint64_t with_jitter(uint64_t ns)
{
	uint32_t random = 0;

	if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
		random = (uint32_t)now_ns();
	return ns - ns / 4 + (uint64_t)random * (ns / 2) / UINT32_MAX;
}

void again_start(struct stack *st)
{
	struct again *a = &st->again;
	uint64_t now = now_ns();

	a->failed = false;
	if (!a->away)
		return;
	/* A proxy that takes channels and ends them at once must not be asked without a pause. */
	if (!a->pause_ns || now - a->attached_ns > SETTLED_NS)
		a->pause_ns = FIRST_NS;
	if (a->pause_ns > PAUSE_MAX_NS)
		a->pause_ns = PAUSE_MAX_NS; /* what the last proxy has refused says nothing about the next one */
	a->next_ns = now + with_jitter(a->pause_ns);
	progress_need(st);
	progress_wake(st);
}

void again_attached(struct stack *st)
{
	st->again.leaving = st->again.failed = false;
	st->again.attached_ns = st->again.next_ns = now_ns();
	if (st->again.away)
		progress_need(st);
}

bool again_is_due(const struct stack *st, uint64_t before_ns)
{
	return st->again.away && st->again.next_ns < before_ns;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

int again_undo(struct xts_sock *s)
{
	int r = 0;

	if (making_is_cut(s))
		return -ENETDOWN;
	if (!s->proxy_id && !s->opening)
		return s->stack->channel ? 0 : -ENETDOWN;
	s->making = s->disconnecting = s->closing = s->abort = true;
	s->cut = false;
	if (s->proxy_id)
		outbox_add(s, TODO_CLOSE);
	while (!r && s->disconnecting)
		r = socket_wait(s, &s->callers, FOREVER, false);
	if (r == -EBADF)
		return r;
	s->making = s->making && s->away;
	return s->stack->channel && !making_is_cut(s) ? 0 : -ENETDOWN;
}

static int make(struct xts_sock *s)
{
	int r;

	if (s->proxy_id && !asked_pushes(s)) { /* it was claimed, and is of no use (next_proxy.h) */
		r = again_undo(s);
		if (r)
			return r;
	}
	if (s->cold->sharing.others_may_have && s->cold->sharing.key)
		return kind_of(s)->join(s);
	/* a listener that was claimed has all but its protocols */
	r = s->proxy_id ? asked_push_again(s) : asked_play(s);
	r = r ? r : kind_of(s)->listen_again(s);
	return r ? r : asked_play_listening(s);
}

static void describe(const struct xts_sock *s, char *text, size_t bytes)
{
	char address[INET6_ADDRSTRLEN] = "*";

	inet_ntop(s->family == 4 ? AF_INET : AF_INET6, s->local.address, address, sizeof address);
	snprintf(text, bytes, "%s on %s port %u", kind_of(s)->name, address, (unsigned)s->local.port);
}

static void came_back(struct xts_sock *s)
{
	char text[96];

	describe(s, text, sizeof text);
	if (s->cold->told) {
		xts_log(XTS_LOG_WARNING, "the %s is there again", text);
		s->error = 0; /* if the program has not looked, it need not know */
	}
	again_over(s);
	s->refusal = 0;
	status_state(s);
	if (share_is_awaited(s) || share_waits_elsewhere(s))
		kind_of(s)->interest(s, false);
	socket_changed(s, kind_of(s)->changed_by_again);
}

/* The program hears of it once: a socket may be refused for long. */
static void tell(struct xts_sock *s, int error)
{
	bool passes = error == EADDRINUSE || (error == EACCES && s->cold->sharing.others_may_have);
	bool may_pass = passes && now_ns() - s->stack->again.attached_ns < SETTLED_NS;
	bool comes = error == ENOENT && s->cold->sharing.others_may_have; /* another process has not made it so far */
	char text[96];

	if (s->cold->told || may_pass || comes || error == ENETDOWN || error == ESHUTDOWN)
		return;
	s->cold->told = true;
	describe(s, text, sizeof text);
	xts_log(XTS_LOG_WARNING, "the %s cannot be made again, and will be tried further: %s", text,
		xts_refusal_errno(s->refusal) == error ? xts_refusal_text(s->refusal) : strerror(error));
	s->error = error;
	status_state(s);
	socket_changed(s, EPOLLIN | EPOLLERR);
}

/* False: the channel has ended meanwhile, and there may be another one. */
static bool make_or_tell(struct xts_sock *s)
{
	uint8_t refusal;
	int r;

	s->making = true;
	r = make(s);
	if (!s->open)
		return true;
	if (!r && s->stack->channel && !making_is_cut(s)) {
		came_back(s);
		return true;
	}
	refusal = s->refusal;
	if (!s->stack->channel || again_undo(s))
		return false;
	s->making = false;
	s->refusal = refusal;
	tell(s, -r);
	return true;
}

static bool try_one(struct xts_sock *s)
{
	bool done;

	s->tried = true;
	done = make_or_tell(s);
	s->tried = false;
	wake(s->stack, &s->callers); /* that wait in again_now() */
	return done;
}

static bool attach(struct stack *st)
{
	st->again.failed = !st->channel && channel_attach(st);
	return !st->again.failed;
}

int again_now(struct xts_sock *s)
{
	struct stack *st = s->stack;
	int r;

	if (!s->away)
		return s->lost ? -ENETDOWN : 0;
	if (!st->channel && (st->again.failed || !attach(st)))
		return s->open ? -ENETDOWN : -EBADF;
	while (s->open && s->away && st->channel)
		if (s->tried) {
			r = socket_wait(s, &s->callers, FOREVER, false);
			if (r)
				return r;
		} else if (try_one(s)) {
			break;
		}
	return !s->open ? -EBADF : s->away ? -ENETDOWN : 0;
}

static void try_all(struct stack *st)
{
	struct xts_sock *s = NULL;

	if (!attach(st))
		return;
	while ((s = table_walk(st, s)))
		if (st->channel && s->away && s->open && !s->closing && !s->own.taking && !s->tried)
			(void)try_one(s);
}

void again_tick(struct stack *st, uint64_t *deadline_ns)
{
	struct again *a = &st->again;

	if (!a->away)
		return;
	if (now_ns() >= a->next_ns) {
		uint64_t most;

		try_all(st);
		most = st->channel ? REFUSED_PAUSE_MAX_NS : PAUSE_MAX_NS;
		a->next_ns = now_ns() + with_jitter(a->pause_ns);
		a->pause_ns = a->pause_ns * 2 < most ? a->pause_ns * 2 : most;
	}
	if (a->away && a->next_ns < *deadline_ns)
		*deadline_ns = a->next_ns;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

void again_before_fork(struct stack *st)
{
	struct xts_sock *s = NULL;

	while (st->again.away && (s = table_next(st, s)))
		if (s->away && s->open && !s->cold->sharing.key && !kind_of(s)->is_fresh(s))
			s->cold->sharing.key = key_make();
}

void again_after_fork_parent(struct stack *st)
{
	struct xts_sock *s = NULL;

	while (st->again.away && (s = table_next(st, s)))
		if (s->away && share_by_key(s))
			s->cold->sharing.others_may_have = st->joint = true;
}

void again_after_fork_child(struct stack *st)
{
	st->again = (struct again){ 0 };
}
