/*
 * shutdown(2) of a listener, and what another process does to one that this process has, too.
 *
 * Theory of operation. On the kernel whether a socket listens is one thing for all processes that have it. After
 * shutdown() for reading, accept() ends with EINVAL in each, and poll reports POLLHUP. After listen() each may accept,
 * also from a socket that was bound before the fork between them. So the proxy is asked to shut its socket down
 * (SHUT_LISTENER), which stays, bound and with its options, and tells the other processes (LISTENING). A process is
 * told when it joins, too, so it need not say LISTEN for itself, and cannot undo what another one has done.
 *
 * That is not enough where the proxy was started again since: a process that did not use the socket in between would
 * make it again as it remembers it. So the listener's deed says that it was shut down.
 *
 * A proxy without the feature LISTENING ends only this process's part: the others go on, as does a proxy where some
 * process that has the socket runs an older version of this library.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/wait.h"
#include "link/credit.h"
#include "listeners/listener.h"
#include "processes/again.h"
#include "processes/inherit.h"

#define TOLD_NS NS_PER_S /* the proxy says it right behind its answer */

static bool is_possible(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	return c && c->link.features & XTS_FEATURE_LISTENING && (s->proxy_id || s->opening);
}

/* --- the deed ----------------------------------------------------------------------------------------------------- */

static void note(const struct xts_sock *s, bool shut)
{
	if (s->cold->sharing.has_deed)
		deed_put_shut(s->cold->sharing.deed_fd, shut);
}

void listener_not_shut(const struct xts_sock *s)
{
	note(s, false);
}

/* --- what it becomes ---------------------------------------------------------------------------------------------- */

/* What the proxy has offered is not its any more, whatever becomes of the answers. */
static void drop_queue(struct xts_sock *s)
{
	if (s->own.shared)
		listener_refuse_offers(s);
	socket_drop_queue(s);
	status_data(s);
}

/* It is bound, as before listen(), also to a port that listen() has chosen. */
static void end(struct xts_sock *s)
{
	if (s->state != TCP_STATE_LISTEN || s->phase != PHASE_UNCONNECTED)
		return;
	drop_queue(s);
	s->todo &= (uint8_t)~TODO_ADVERT;
	if (!s->todo)
		outbox_remove(s);
	xts_credit_grant_init(&s->grant, 0);
	socket_enter(s, TCP_STATE_CLOSE, PHASE_UNCONNECTED);
	s->bound = true;
	s->shutdown = 0;
	status_state(s);
	socket_changed(s, STATE_CHANGE);
}

/* Another process has called listen(). If this one listens already, the socket was shut down in between. */
static void begin(struct xts_sock *s, uint32_t backlog)
{
	bool joins = !s->own.shared;

	if (s->state == TCP_STATE_LISTEN && !joins)
		drop_queue(s);
	if (s->state == TCP_STATE_CLOSE)
		s->cold->backlog = backlog;
	socket_enter(s, TCP_STATE_LISTEN, PHASE_UNCONNECTED);
	s->shutdown = 0;
	xts_credit_grant_init(&s->grant, s->cold->backlog + 1 < 2 ? 2 : s->cold->backlog + 1);
	s->grant.outstanding = 0;
	s->cold->sharing.others_may_have = s->stack->joint = true;
	status_state(s);
	socket_changed(s, EPOLLHUP);
	if (!joins && (share_is_awaited(s) || share_waits_elsewhere(s)))
		listener_interest(s, false);
}

static bool is_shared_server(const struct xts_sock *s)
{
	return !s->datagrams && share_by_key(s);
}

bool message_listening(struct stack *st, const struct xts_head *head, const struct xts_listening *m,
		       struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	(void)frame;
	if (!s || s->closing || !is_shared_server(s))
		return false;
	s->cold->sharing.listens_told = (uint8_t)(TOLD_NOT_YET + m->listens);
	if (s->cold->sharing.listens_told == TOLD_LISTENS)
		begin(s, m->backlog);
	else if (s->cold->sharing.listens_told == TOLD_SHUT)
		end(s);
	wake(st, &s->callers);
	return false;
}

bool message_shut_listener_ack(struct stack *st, const struct xts_head *head, const struct xts_shut_listener_ack *m,
			       struct xts_rx_frame *frame)
{
	message_reply(st, head, XTS_CMD_SHUT_LISTENER, m->proxy_id, m->token, &m->local, frame, 0, 0);
	return false;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

void listener_look_whether_shut(struct xts_sock *s)
{
	if (s->state == TCP_STATE_LISTEN && s->cold->sharing.has_deed && deed_is_shut(s->cold->sharing.deed_fd))
		end(s);
}

int listener_wait_until_told(struct xts_sock *s)
{
	uint64_t deadline_ns = now_ns() + TOLD_NS;
	int r = 0;

	while (!r && is_possible(s) && s->cold->sharing.listens_told == TOLD_NOTHING)
		r = socket_wait(s, &s->callers, deadline_ns, true);
	if (r == -EBADF)
		return r;
	return s->stack->channel ? 0 : -ENETDOWN; /* a proxy that says nothing is as one without the feature */
}

/* --- shutdown(2) -------------------------------------------------------------------------------------------------- */

static void ended(struct xts_sock *s, const struct call *call)
{
	end(s);
	s->local = call->local;
}

static int shut(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHUT_LISTENER, .answered = ended };
	int r = is_possible(s) ? call_proxy(s, &call) : -EOPNOTSUPP;

	if (r == -ENOTCONN || (r == -ENETDOWN && s->away))
		end(s);
	return r == -ENETDOWN && s->away ? 0 : r;
}

int listener_shutdown(struct xts_sock *s, int how)
{
	int r;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	if (how == SHUT_WR) {
		socket_changed(s, STATE_CHANGE);
		return 0;
	}
	note(s, true);
	r = s->away ? again_now(s) : 0;
	if (r == -EBADF)
		return r;
	if (s->state != TCP_STATE_LISTEN)
		return -ENOTCONN; /* another thread, or another process, has been before */
	if (s->away) {            /* it is made again as a bound socket */
		end(s);
		return 0;
	}
	r = shut(s);
	if (r != -EOPNOTSUPP)
		return r;
	note(s, false);
	return socket_disconnect(s);
}
