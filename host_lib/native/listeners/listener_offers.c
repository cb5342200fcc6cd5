/*
 * Connections that come to a listener (NEWCONN), those that a shared one is offered, and giving them back. inherit.h
 * has the theory of operation.
 *
 * An offer is a socket in the accept queue whose NEWCONN has no answer yet. accept() takes it. Answering with EAGAIN
 * gives it back, and voids the credits for this listener that the proxy still holds. A NEWCONN that crosses such an
 * answer comes without a credit, as far as this side can tell; so the limit for a proxy is the number of open offers.
 *
 * Offers go back when the application has neither waited nor accepted for GIVE_BACK_NS. They go back at once when a
 * process that has never accepted is about to give the listener to another one: such a process is a superserver, and
 * the program that it starts may accept without waiting. The library cannot see an application wait that sleeps on a
 * mirror or on a context's descriptor: such an application is offered connections again after RETRY_NS.
 */
#include <sys/epoll.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/settings.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "listeners/listener.h"
#include "processes/inherit.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"

#define OFFERS_MAX 4097u /* offers open at a time: one more than the largest backlog */
#define RETRY_NS (10 * NS_PER_MS)

static bool is_offered(struct xts_sock *s)
{
	if (s->cold->accept_count >= OFFERS_MAX)
		return false;
	if (s->grant.outstanding)
		s->grant.outstanding--;
	if (!s->cold->accept_count)
		s->cold->sharing.accepting_ns = now_ns(); /* from now on, the application has GIVE_BACK_NS to accept */
	return true;
}

/* Takes the offers out of the accept queue. give_back: also returns them to the proxy. */
static void remove_offers(struct xts_sock *listener, bool give_back)
{
	struct stack *st = listener->stack;
	struct xts_sock **at = &listener->cold->accept_first, *s;

	listener->cold->accept_last = NULL;
	while ((s = *at)) {
		if (!s->own.offered) {
			listener->cold->accept_last = s;
			at = &s->accept_next;
			continue;
		}
		*at = s->accept_next;
		listener->cold->accept_count--;
		s->accept_next = s->listener = NULL;
		if (give_back)
			channel_refuse(st, s->proxy_id, EAGAIN);
		socket_free(s);
		if (!st->channel)
			give_back = false;
	}
	if (listener->mirror)
		mirror_dirty(listener);
	status_data(listener);
}

void listener_drop_offers(struct xts_sock *listener)
{
	remove_offers(listener, false);
}

void listener_refuse_offers(struct xts_sock *listener)
{
	remove_offers(listener, true);
}

static bool has_offers(const struct xts_sock *listener)
{
	for (const struct xts_sock *s = listener->cold->accept_first; s; s = s->accept_next)
		if (s->own.offered)
			return true;
	return false;
}

static void give_back(struct xts_sock *listener)
{
	listener->grant.outstanding = listener->grant.unadvertised = 0;
	listener->cold->sharing.accepting_ns = now_ns();
	remove_offers(listener, true);
}

void listener_give_back_offers(struct xts_sock *s)
{
	if (!s->cold->sharing.accepting && !share_is_awaited(s) && has_offers(s))
		give_back(s);
}

void listener_share_tick(struct xts_sock *s, uint64_t now)
{
	if (!s->cold->sharing.others_may_have || share_is_awaited(s) ||
	    now - s->cold->sharing.accepting_ns < GIVE_BACK_NS)
		return;
	if (has_offers(s))
		give_back(s);
	else if (!listener_promised(s) && share_waits_elsewhere(s) && now - s->cold->sharing.accepting_ns >= RETRY_NS)
		listener_interest(s, false);
}

bool listener_is_away(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns)
{
	uint64_t at = s->cold->sharing.accepting_ns + GIVE_BACK_NS;
	bool away = false;

	if (!s->cold->sharing.others_may_have || share_is_awaited(s))
		return false;
	if (has_offers(s)) {
		away = true;
	} else if (listener_promised(s)) {
		if (s->stack->leader)
			return false; /* that thread takes the offer, and then calls this function */
		if (now >= at)
			return true;
	} else if (share_waits_elsewhere(s)) {
		at = s->cold->sharing.accepting_ns + RETRY_NS;
	} else {
		return false;
	}
	if (at < *deadline_ns)
		*deadline_ns = at;
	return away;
}

/* --- NEWCONN ------------------------------------------------------------------------------------------------------ */

static void refuse(struct stack *st, struct xts_sock *listener, uint32_t proxy_id)
{
	bool joint = listener && listener->cold->sharing.others_may_have;

	channel_refuse(st, proxy_id, joint ? EAGAIN : ENFILE);
	if (joint) {
		listener->grant.outstanding = listener->grant.unadvertised = 0;
	} else if (listener) {
		xts_credit_free(&listener->grant, 1);
		if (xts_credit_due(&listener->grant))
			outbox_add(listener, TODO_ADVERT);
	}
}

static bool is_due(struct xts_sock *listener)
{
	if (listener->state != TCP_STATE_LISTEN)
		return false;
	return listener->own.shared ? is_offered(listener) : xts_credit_receive(&listener->grant, 1) == 0;
}

bool message_newconn(struct stack *st, const struct xts_head *head, const struct xts_newconn *m,
		     struct xts_rx_frame *frame)
{
	struct xts_sock *listener = table_find(st, head->id), *s;
	uint32_t window;

	(void)frame;
	if (!m->proxy_id || (listener && !listener->closing && !is_due(listener))) {
		channel_violation(st, "a connection for a socket that does not listen, or beyond its credits");
		return false;
	}
	if (listener && listener->closing && listener->cold->sharing.key)
		return false; /* the listener's CLOSE, which is on its way, returns it */
	if (!listener || listener->closing) {
		refuse(st, NULL, m->proxy_id);
		return false;
	}
	s = socket_make(st, listener->family);
	if (!s) {
		refuse(st, listener, m->proxy_id);
		return false;
	}
	s->proxy_id = m->proxy_id;
	socket_enter(s, TCP_STATE_ESTABLISHED, PHASE_CONNECTED);
	s->local = m->local;
	s->peer = m->peer;
	s->listener = listener;
	s->linger = listener->linger;
	s->linger_s = listener->linger_s;
	s->receive_timeout_ns = listener->receive_timeout_ns;
	s->send_timeout_ns = listener->send_timeout_ns;
	s->receive_lowat = listener->receive_lowat;
	s->window_max = listener->window_max;
	s->seqpacket = listener->seqpacket;
	push_inherit(s, listener);
	window = st->settings.window_bytes < s->window_max ? st->settings.window_bytes : s->window_max;
	xts_credit_grant_init(&s->grant, push_window(s, window));
	if (!message_credits(s, m->post_credits))
		return false;
	if (listener->cold->accept_last)
		listener->cold->accept_last->accept_next = s;
	else
		listener->cold->accept_first = s;
	listener->cold->accept_last = s;
	listener->cold->accept_count++;
	s->own.offered = listener->own.shared &&
			 (listener->cold->sharing.others_may_have || !listener->cold->sharing.accepting);
	if (!s->own.offered)
		outbox_add(s, TODO_ACCEPTED);
	else if (listener->cold->sharing.others_may_have)
		progress_need(st);
	status_state(s);
	status_data(listener);
	socket_changed(listener, EPOLLIN);
	return false;
}
