/*
 * The life of a socket: made, changed, failed, disconnected, closed, freed; and its readiness, which follows tcp_poll()
 * of the kernel line by line.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "calls/hint.h"
#include "core/received_data.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/datagram_socket.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/settings.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/epoll.h"
#include "waiting/mirror.h"
#include "waiting/wait.h"
#include "xts.h"

#ifndef IPPROTO_MPTCP /* not in the headers of every distribution we build on */
#define IPPROTO_MPTCP 262
#endif

struct xts_sock *socket_make(struct stack *st, uint8_t family)
{
	struct channel *c = st->channel;
	struct xts_sock *s;

	if (c && c->link.sockets_max && st->sockets >= c->link.sockets_max)
		return NULL;
	s = table_allocate(st);
	if (!s)
		return NULL;
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

static bool is_writable(struct xts_sock *s)
{
	struct stack *st = s->stack;

	if (s->state != TCP_STATE_ESTABLISHED)
		return true;
	if (s->cold->ulps.handshaking || s->pushing || s->credits < s->cold->ulps.wanted) {
		s->no_space = true;
		return false;
	}
	if (s->credits >= socket_credits_worth_waiting_for(s) && (channel_can_send(st) && !(s->todo & TODO_DATA)))
		return true;
	s->no_space = true;
	if (s->credits)
		socket_wait_for_link(s);
	return false;
}

uint32_t socket_events(struct xts_sock *s)
{
	uint32_t events = 0;

	if (s->datagrams)
		return datagram_events(s);
	if (s->state == TCP_STATE_LISTEN)
		return (s->cold->accept_first ? EPOLLIN | EPOLLRDNORM : 0u) |
		       (s->error ? EPOLLIN | EPOLLRDNORM | EPOLLERR : 0u);
	if (s->shutdown == SHUTDOWN_MASK || s->state == TCP_STATE_CLOSE)
		events |= EPOLLHUP;
	if (turn_is_elsewhere(s))
		return events; /* whoever has it reports the other events */
	if (s->shutdown & RCV_SHUTDOWN)
		events |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
	if (s->state != TCP_STATE_SYN_SENT) {
		if (s->cold->pdu_first || s->pushing ? pdu_is_readable(s) : s->unread && s->unread >= s->receive_lowat)
			events |= EPOLLIN | EPOLLRDNORM;
		if ((s->shutdown & SEND_SHUTDOWN) || is_writable(s))
			events |= EPOLLOUT | EPOLLWRNORM;
	}
	if (s->error)
		events |= EPOLLERR;
	return events;
}

bool socket_looks(const struct xts_sock *s)
{
	uint32_t id = s->id;

	channel_pump(s->stack);
	(void)channel_catch_up(s->stack);
	return socket_is_open(s, id);
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
	s->state = TCP_STATE_CLOSE;
	s->shutdown = SHUTDOWN_MASK;
	s->credits = 0;
	if (s->todo & ~TODO_CLOSE) {
		uint8_t keep = s->todo & (TODO_CLOSE | TODO_PARK);

		/* The proxy needs nothing more of it except our CLOSE, and the answer to a NEWCONN that it still waits
		 * for. */
		keep |= s->todo & TODO_ACCEPTED;
		if (s->pending && st->channel)
			st->channel->pending_bytes -= s->pending_capacity;
		free(s->pending);
		s->pending = NULL;
		s->pending_bytes = s->pending_capacity = 0;
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
	datagram_free(s);
	callback_free(s);
	if (s->pending && c)
		c->pending_bytes -= s->pending_capacity;
	free(s->pending);
	s->pending = NULL;
	fault_forget(s);
	hints_forget(s);
	table_release(s);
	wake(st, &st->close_waiters);
}

/* Sends CLOSE, or waits for the reply to the first request, which brings the identifier for it. */
static void start_closing(struct xts_sock *s)
{
	s->closing = true;
	if (s->proxy_id)
		outbox_add(s, TODO_CLOSE);
	else if (s->opening)
		status_state(s);
	else
		socket_free(s);
}

static void drop_waiting_connections(struct xts_sock *listener)
{
	struct xts_sock *s, *next;

	for (s = listener->cold->accept_first; s; s = next) {
		next = s->accept_next;
		s->accept_next = s->listener = NULL;
		s->abort = true;
		if (s->lost)
			socket_free(s);
		else
			start_closing(s);
	}
	listener->cold->accept_first = listener->cold->accept_last = NULL;
	listener->cold->accept_count = 0;
}

static void linger(struct xts_sock *s)
{
	struct stack *st = s->stack;
	uint64_t deadline = deadline_after((uint64_t)s->linger_s * NS_PER_S);
	uint32_t id = s->id;
	int r = 0;

	while (!r && socket_is(s, id) && s->closing)
		r = wait_interruptibly(st, &st->close_waiters, deadline, false);
	if (socket_is(s, id) && s->closing && st->channel) {
		s->linger = false; /* the time has passed: the proxy shall not wait either */
		outbox_add(s, TODO_CLOSE);
	}
}

/* The application has closed it: now the connection is closed too, unless other processes have it (then common_copies.c
 * calls this again). */
void socket_end(struct xts_sock *s)
{
	bool wait = s->open && s->linger && s->linger_s && s->state == TCP_STATE_ESTABLISHED && !s->unread && !s->lost;

	s->open = false;
	if (common_closes(s))
		return;
	if (s->disconnecting)
		return; /* another thread is doing this, and frees it then */
	s->abort = !s->datagrams && ((s->linger && !s->linger_s) || s->state == TCP_STATE_SYN_SENT);
	if (!wait)
		s->linger = false;
	buffer_drop(s);
	if (s->own.inherited != NOT_INHERITED && !s->opening) {
		inherit_is_here(s);
		s->lost = true;
	}
	if (s->lost) {
		socket_free(s);
		return;
	}
	start_closing(s);
	if (wait)
		linger(s);
}

void socket_close(struct xts_sock *s)
{
	struct stack *st = s->stack;

	sharers_leave(s);
	share_forget(s);
	if (s->call && s->own.moved == NOT_MOVED && !s->own.taking) {
		s->call->error = EBADF;
		s->call->done = true;
		s->call = NULL;
	}
	epoll_forget_socket(s);
	mirror_close(s);
	wake(st, &s->readers);
	wake(st, &s->writers);
	wake(st, &s->callers);
	if (s->polled)
		wake(st, &st->poll_waiters);
	if (s->state == TCP_STATE_LISTEN || s->cold->accept_first)
		drop_waiting_connections(s);
	socket_end(s);
}

void socket_unconnected(struct xts_sock *s)
{
	s->state = TCP_STATE_CLOSE;
	s->phase = PHASE_UNCONNECTED;
	s->shutdown = 0;
	s->done = false;
	s->credits = s->peer_window = 0;
	s->grant.window = 0;
	s->received_bytes = s->sent_bytes = s->read_bytes = 0;
	waits_forget(s);
	buffer_drop(s);
	memset(&s->peer, 0, sizeof s->peer);
	status_state(s);
}

void socket_disconnected(struct xts_sock *s)
{
	s->closing = s->disconnecting = s->abort = false;
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

int socket_disconnect(struct xts_sock *s)
{
	uint32_t id = s->id;
	bool is_over = s->done && (s->shutdown & SEND_SHUTDOWN); /* tcp_need_reset() */

	if (!s->disconnecting) {
		s->cut = s->state == TCP_STATE_SYN_SENT || (s->state == TCP_STATE_ESTABLISHED && !is_over);
		if (!s->opening && !s->proxy_id) {
			socket_disconnected(s);
			return 0;
		}
		share_forget(s);
		s->abort = true;
		s->disconnecting = true;
		s->renewed = s->bound || s->optioned;
		s->bound = s->bound_address = s->optioned = s->v6only = false;
		if (s->state == TCP_STATE_LISTEN)
			drop_waiting_connections(s);
		buffer_drop(s);
		start_closing(s);
	}
	while (socket_is_open(s, id) && s->disconnecting && wait_for(s->stack, &s->callers, FOREVER, false) != -ENOBUFS)
		;
	return socket_is_open(s, id) ? 0 : -EBADF;
}

/* --- public ------------------------------------------------------------------------------------------------------- */

/* Returns its number, or -errno. */
static int make_for_program(struct stack *st, uint8_t family, int type, int flags)
{
	struct xts_sock *s;

	if (type == SOCK_DGRAM && !(st->channel->link.features & XTS_FEATURE_DATAGRAM)) {
		last_error_note(EPROTONOSUPPORT, "the offload proxy is of a version that has no datagram sockets");
		return -EPROTONOSUPPORT;
	}
	s = socket_make(st, family);
	if (!s)
		return -EMFILE;
	if (type == SOCK_DGRAM && datagram_make(s)) {
		socket_free(s);
		return -ENOMEM;
	}
	s->open = true;
	s->seqpacket = type == SOCK_SEQPACKET;
	s->nonblocking = flags & SOCK_NONBLOCK;
	s->close_on_exec = flags & SOCK_CLOEXEC;
	return (int)s->id;
}

int xts_socket(int domain, int type, int protocol)
{
	int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC), r;
	struct stack *st;

	type &= ~flags;
	if (domain != AF_INET && domain != AF_INET6)
		return finish(-EAFNOSUPPORT);
	if (type != SOCK_STREAM && type != SOCK_SEQPACKET && type != SOCK_DGRAM)
		return finish(type < 0 || type > SOCK_PACKET ? -EINVAL : -ESOCKTNOSUPPORT);
	if (protocol != 0 && protocol != (type == SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP) &&
	    !(protocol == IPPROTO_MPTCP && type == SOCK_STREAM)) /* as if the peer spoke only TCP */
		return finish(-EPROTONOSUPPORT);
	st = stack_enter_own();
	channel_check_idle(st);
	r = st->channel ? 0 : channel_attach(st);
	if (!r)
		r = make_for_program(st, domain == AF_INET ? 4 : 6, type, flags);
	stack_leave(st);
	return finish(r);
}

int xts_close(int number)
{
	struct stack *st;
	struct xts_sock *s;
	int r = -EBADF;

	xts_cancellation_point();
	st = stack_enter_of(number);
	s = table_open(st, number);
	if (s && s->datagrams) {
		datagram_leave(s);
		s = table_open(st, number);
	}
	if (s) {
		socket_close(s);
		r = 0;
	}
	stack_leave(st);
	return finish(r);
}
