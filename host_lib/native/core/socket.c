/*
 * The life of a socket: made, changed, failed, disconnected, closed, freed.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/hint.h"
#include "core/received_data.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/settings.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/take_over.h"
#include "ulps/pushed.h"
#include "waiting/epoll.h"
#include "waiting/mirror.h"
#include "core/wait.h"
#include "xts.h"

#ifndef IPPROTO_MPTCP /* not in the headers of every distribution we build on */
#define IPPROTO_MPTCP 262
#endif

struct xts_sock *socket_make(struct stack *st, uint8_t family)
{
	struct channel *c = st->channel;
	struct xts_sock *s;

	if (c && c->link.sockets_max && st->sockets >= c->link.sockets_max) {
		last_error_note(
			EMFILE,
			"this process has %u XTS sockets, as many as the offload proxy gives one: close some, or raise "
			"`connections` and `listeners` of its tenant's limits",
			st->sockets);
		return NULL;
	}
	s = table_allocate(st);
	if (!s) {
		last_error_note(EMFILE,
				"there is no memory or number left for one more XTS socket in this process: close some");
		return NULL;
	}
	s->family = family;
	s->receive_lowat = 1;
	s->receive_timeout_ns = s->send_timeout_ns = FOREVER;
	s->window_max = st->settings.window_bytes_max;
	status_state(s);
	return s;
}

int take_error(struct xts_sock *s)
{
	int error = s->error;

	s->error = 0;
	return -error;
}

void socket_asked(struct xts_sock *s, bool asked)
{
	struct stack *st = s->stack;

	if (s->asked == asked)
		return;
	s->asked = asked;
	if (asked)
		st->asked++;
	else
		st->asked--;
}

/* --- readiness ---------------------------------------------------------------------------------------------------- */

/* A sender with more to send waits while it has fewer credits than this: the proxy advertises a quarter window at a
 * time. */
uint32_t socket_credits_worth_waiting_for(const struct xts_sock *s)
{
	return s->peer_window / 4 ? s->peer_window / 4 : 1;
}

void socket_wait_for_link(struct xts_sock *s)
{
	struct channel *c = s->stack->channel;

	s->no_space = true;
	if (!c || s->in_blocked)
		return;
	s->in_blocked = true;
	s->blocked_next = c->blocked;
	c->blocked = s;
}

uint32_t socket_events(struct xts_sock *s)
{
	return kind_of(s)->events(s);
}

bool socket_looks(const struct xts_sock *s)
{
	channel_pump(s->stack);
	(void)channel_catch_up(s->stack);
	return s->open;
}

void socket_changed(struct xts_sock *s, uint32_t events)
{
	struct stack *st = s->stack;

	if (events & EPOLLOUT) {
		s->no_space = false;
		waits_may_send(s);
	}
	if (events & ~(uint32_t)EPOLLOUT)
		wake(st, &s->readers);
	if (events & ~(uint32_t)(EPOLLIN | EPOLLRDHUP))
		wake(st, &s->writers);
	if (s->polled)
		wake(st, &st->poll_waiters);
	if (s->watches)
		epoll_ready(s, events);
	if (s->mirror && events & EPOLLIN)
		mirror_arrived(s);
	else if (s->mirror)
		mirror_dirty(s);
}

void socket_set_lowat(struct xts_sock *s, uint32_t bytes)
{
	if (bytes > s->window_max / 2)
		bytes = s->window_max / 2; /* more bytes could never be in the window together */
	s->receive_lowat = bytes ? bytes : 1;
	if (s->state != TCP_STATE_ESTABLISHED || s->grant.window / 2 >= s->receive_lowat)
		return;
	if (turn_is_elsewhere(s)) {
		s->grant.window = s->receive_lowat * 2; /* granted when it is taken over */
		return;
	}
	xts_credit_grow(&s->grant, s->receive_lowat * 2 - s->grant.window);
	outbox_add(s, TODO_ADVERT);
}

/* --- failing ------------------------------------------------------------------------------------------------------ */

/* The connection, or the attempt, has ended in an error: tcp_reset() and tcp_done(). Received data stays readable. */
void socket_fail(struct xts_sock *s, int error)
{
	struct stack *st = s->stack;

	socket_asked(s, false);
	if (s->todo & TODO_GIVE_BACK)
		buffer_drop(s); /* the application must not read them, since they are not decoded */
	if (s->cold->ulps.handshaking)
		s->cold->ulps.handshaking = false;
	s->error = error;
	socket_enter(s, TCP_STATE_CLOSE, s->phase);
	s->shutdown = SHUTDOWN_MASK;
	s->credits = 0;
	if (s->todo & ~TODO_CLOSE) {
		uint8_t keep = s->todo & (TODO_CLOSE | TODO_PARK);

		/* The proxy needs nothing more of it except our CLOSE, and the answer to a NEWCONN that it still waits
		 * for. */
		keep |= s->todo & TODO_ACCEPTED;
		if (s->pending && st->channel)
			st->channel->pending_bytes -= s->pending_capacity;
		outbox_drop_pending(s);
		s->todo = keep;
		if (!keep)
			outbox_remove(s);
	}
	status_state(s);
	wake(st, &s->callers);
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
}

void socket_learn(struct xts_sock *s, uint32_t proxy_id)
{
	if (!s->closing || s->proxy_id != proxy_id)
		return;
	if (proxy_id) {
		outbox_add(s, TODO_CLOSE);
	} else if (s->disconnecting) {
		outbox_remove(s); /* CANCEL waited there */
		socket_disconnected(s);
	} else {
		socket_free(s);
	}
}

/* --- closing ------------------------------------------------------------------------------------------------------ */

void socket_free(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct channel *c = st->channel;

	socket_asked(s, false);
	common_drop(s);
	outbox_remove(s);
	if (s->in_blocked && c) {
		struct xts_sock **at = &c->blocked;

		while (*at && *at != s)
			at = &(*at)->blocked_next;
		if (*at)
			*at = s->blocked_next;
	}
	buffer_drop(s);
	if (s->pending && c)
		c->pending_bytes -= s->pending_capacity;
	outbox_drop_pending(s);
	socket_release(s);
	wake(st, &st->close_waiters);
}

void socket_release(struct xts_sock *s)
{
	table_release(s);
	if (!s->holders)
		socket_end_of_use(s);
}

void socket_end_of_use(struct xts_sock *s)
{
	kind_of(s)->free(s);
	callback_free(s);
	hints_forget(s);
	asked_forget(s);
	table_reuse(s);
}

bool socket_may_cancel(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	return s->opening && s->state == TCP_STATE_SYN_SENT && !s->cancelled && c &&
	       c->link.features & XTS_FEATURE_CANCEL;
}

void socket_unconnected(struct xts_sock *s)
{
	socket_enter(s, TCP_STATE_CLOSE, PHASE_UNCONNECTED);
	s->shutdown = 0;
	s->done = false;
	s->credits = s->peer_window = 0;
	s->grant.window = 0;
	s->received_bytes = s->sent_bytes = s->read_bytes = 0;
	s->cold->received_base = s->cold->sent_base = 0;
	waits_forget(s);
	buffer_drop(s);
	memset(&s->peer, 0, sizeof s->peer);
	status_state(s);
}

void socket_disconnected(struct xts_sock *s)
{
	s->closing = s->cancelled = s->disconnecting = s->abort = false;
	wake(s->stack, &s->callers);
	if (!s->open && !s->own.ending) {
		socket_free(s); /* closed meanwhile */
		return;
	}
	socket_asked(s, false);
	if (s->making)
		return; /* only the proxy's socket has ended: it will be made again */
	if (s->cut)
		s->error = ECONNRESET; /* the state in which tcp_disconnect() leaves it */
	s->renewed = s->renewed || s->cold->ulps.with_connect;
	push_forget(s);
	asked_forget(s);
	memset(&s->local, 0, sizeof s->local);
	socket_unconnected(s);
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLHUP);
}

/* --- public ------------------------------------------------------------------------------------------------------- */

/* Returns its number, or -errno. */
static int make_for_program(struct stack *st, uint8_t family, int type, int flags)
{
	struct xts_sock *s = socket_make(st, family);
	int r;

	if (!s)
		return -EMFILE;
	r = kind_of_type(type)->make(s);
	if (r) {
		socket_free(s);
		return r;
	}
	s->open = true;
	s->seqpacket = type == SOCK_SEQPACKET;
	s->nonblocking = flags & SOCK_NONBLOCK;
	s->close_on_exec = flags & SOCK_CLOEXEC;
	return (int)s->id;
}

/* 0, or -errno with a sentence, for what is neither TCP nor UDP. */
static int check_kind(int domain, int type, int protocol)
{
	int usual;

	if (domain != AF_INET && domain != AF_INET6) {
		last_error_note(EAFNOSUPPORT,
				"an XTS socket is of AF_INET or AF_INET6, not of family %d: use the kernel's for others",
				domain);
		return -EAFNOSUPPORT;
	}
	if (type != SOCK_STREAM && type != SOCK_SEQPACKET && type != SOCK_DGRAM) {
		if (type < 0 || type > SOCK_PACKET)
			return -EINVAL;
		last_error_note(ESOCKTNOSUPPORT,
				"an XTS socket is of type SOCK_STREAM, SOCK_SEQPACKET (PDUs) or SOCK_DGRAM, not %d: "
				"use the kernel's for others",
				type);
		return -ESOCKTNOSUPPORT;
	}
	usual = kind_of_type(type)->protocol;
	if (protocol != 0 && protocol != usual &&
	    !(protocol == IPPROTO_MPTCP && type == SOCK_STREAM)) { /* as if the peer spoke only TCP */
		last_error_note(EPROTONOSUPPORT, "an XTS socket of this type has the protocol %s or 0, not %d",
				usual == IPPROTO_UDP ? "IPPROTO_UDP" : "IPPROTO_TCP", protocol);
		return -EPROTONOSUPPORT;
	}
	return 0;
}

int xts_socket(int domain, int type, int protocol)
{
	int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC), r;
	struct stack *st;

	type &= ~flags;
	r = check_kind(domain, type, protocol);
	if (r)
		return finish(r);
	st = stack_enter_own();
	channel_check_idle(st);
	r = st->channel ? 0 : channel_attach(st);
	if (!r)
		r = make_for_program(st, domain == AF_INET ? 4 : 6, type, flags);
	stack_leave(st);
	return finish(r);
}
