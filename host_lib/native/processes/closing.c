/*
 * How a socket of the program ends: by close(2), by shutdown(2) or connect(2) to AF_UNSPEC, after which it is as new,
 * or with its channel. Other processes may have it, too, and go on with it.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/received_data.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/wait.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "processes/next_proxy.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "waiting/mirror.h"
#include "xts.h"

/* Sends CLOSE, or waits for the reply to the first request, which brings the identifier for it. A CONNECT may take
 * minutes: CANCEL does not wait for its reply. */
static void start_closing(struct xts_sock *s)
{
	s->closing = true;
	if (s->proxy_id || socket_may_cancel(s))
		outbox_add(s, TODO_CLOSE);
	else if (s->opening)
		status_state(s);
	else
		socket_free(s);
}

void socket_drop_queue(struct xts_sock *listener)
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
	int r = 0;

	while (!r && s->in_use && s->closing)
		r = wait_interruptibly(st, &st->close_waiters, deadline, false);
	if (s->in_use && s->closing && st->channel) {
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
	if (s->closing)
		return; /* it was torn, and CLOSED frees it */
	s->abort = (kind_of(s)->lingers && s->linger && !s->linger_s) || s->state == TCP_STATE_SYN_SENT;
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

	shared_status_follow(s);
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
	if (s->cold->accept_first)
		socket_drop_queue(s);
	socket_end(s);
}

int socket_disconnect(struct xts_sock *s)
{
	bool is_over = s->done && (s->shutdown & SEND_SHUTDOWN); /* tcp_need_reset() */
	int r = 0;

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
		if (s->cold->accept_first)
			socket_drop_queue(s);
		buffer_drop(s);
		start_closing(s);
	}
	while (!r && s->disconnecting)
		r = socket_wait(s, &s->callers, FOREVER, false);
	return r == -EBADF ? r : 0;
}

/* --- with its process -------------------------------------------------------------------------------------------- */

static bool is_of_this_process_alone(const struct xts_sock *s)
{
	return s->proxy_id && !s->closing && !s->lost && !s->own.common && !s->own.offered &&
	       s->own.inherited == NOT_INHERITED && s->own.moved == NOT_MOVED;
}

void sockets_at_exit(struct stack *st)
{
	struct xts_sock *s = NULL;

	channel_pump(st); /* what has come */
	while (st->channel && (s = table_next(st, s))) {
		bool abort = s->linger && !s->linger_s;

		if (s->state != TCP_STATE_ESTABLISHED || !kind_of(s)->lingers || !is_of_this_process_alone(s) ||
		    !(abort || s->unread || s->cold->pdu_first))
			continue;
		s->abort = abort;
		start_closing(s);
	}
}

/* --- with its channel --------------------------------------------------------------------------------------------- */

/* What happens to a socket when its channel dies, according to PROTOCOL.md. */
static void socket_lose(struct xts_sock *s)
{
	struct stack *st = s->stack;

	if (s->own.moved != NOT_MOVED)
		turn_channel_died(s);
	if (!s->in_use || (s->own.inherited != NOT_INHERITED && !s->own.taking))
		return; /* it was not on any channel of this process */
	outbox_remove(s);
	s->in_blocked = false;
	outbox_drop_pending(s);
	if (!s->open) {
		/* The application has closed it already, or it was never accepted. */
		s->closing = s->cancelled = false;
		if (!s->listener) {
			if (s->call) {
				s->call->error = ENETDOWN;
				s->call->done = true;
				wake(st, &s->callers);
			}
			socket_free(s);
			return;
		}
	}
	if (s->state == TCP_STATE_CLOSE && !s->proxy_id && !s->opening && !s->away)
		return; /* the proxy never knew it, so it can be used on the next channel */
	s->opening = s->claiming = false;
	s->closing = s->closing && s->disconnecting; /* else it was torn */
	s->proxy_id = 0;
	if (s->call) {
		s->call->error = ENETDOWN;
		s->call->done = true;
		s->call = NULL;
	}
	wake(st, &s->callers);
	if (s->disconnecting) {
		socket_disconnected(s);
		if (!s->in_use || !s->making)
			return;
	}
	if (again_keeps(s))
		return;
	s->lost = true;
	asked_connected(s);
	kind_of(s)->lose(s);
	status_state(s);
}

void sockets_lose(struct stack *st)
{
	struct xts_sock *next;

	while (st->shared)
		share_forget(st->shared);
	for (struct xts_sock *s = table_next(st, NULL); s; s = next) {
		next = table_next(st, s);
		socket_lose(s);
	}
}

/* Is it on this channel, and not about to be claimed from the proxy's next process (next_proxy.h)? Sockets that the
 * proxy knows nothing of stay as they are. */
static bool is_left_behind(const struct xts_sock *s)
{
	if (s->claiming)
		return false;
	if (s->stack->channel && s->stack->channel->move.died && move_connects_again(s))
		return false;
	return s->proxy_id || s->call || s->opening || s->closing || s->own.moved != NOT_MOVED;
}

void sockets_lose_unclaimed(struct stack *st)
{
	struct xts_sock *next;

	for (struct xts_sock *s = table_next(st, NULL); s; s = next) {
		next = table_next(st, s);
		if (!is_left_behind(s))
			continue;
		if (s->own.shared)
			share_forget(s);
		socket_lose(s);
	}
}

/* --- public ------------------------------------------------------------------------------------------------------- */

int xts_close(int number)
{
	struct stack *st;
	struct xts_sock *s;
	int r = -EBADF;

	xts_cancellation_point();
	st = stack_enter_of(number);
	s = table_open(st, number);
	if (s) {
		kind_of(s)->leave(s);
		s = table_open(st, number);
	}
	if (s) {
		socket_close(s);
		r = 0;
	}
	stack_leave(st);
	return finish(r);
}
