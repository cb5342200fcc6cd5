/*
 * Connections that a shared listener is offered, and giving them back. inherit.h has the theory of operation.
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
#include "core/channel.h"
#include "core/clock.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/inherit.h"
#include "waiting/mirror.h"

#define OFFERS_MAX 4097u /* offers open at a time: one more than the largest backlog */
#define RETRY_NS (10 * NS_PER_MS)

bool share_offered(struct xts_sock *s)
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

void share_drop_offers(struct xts_sock *listener)
{
	remove_offers(listener, false);
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

void share_give_back_unaccepted(struct stack *st)
{
	struct xts_sock *next;

	for (struct xts_sock *s = st->shared; s && st->channel; s = next) {
		next = s->cold->sharing.shared_next;
		if (s->state == TCP_STATE_LISTEN && !s->cold->sharing.accepting && !share_is_awaited(s) && has_offers(s))
			give_back(s);
	}
	channel_flush(st, true);
}

void share_tick(struct stack *st, uint64_t now)
{
	struct xts_sock *s, *next;

	for (s = st->shared; s; s = next) {
		next = s->cold->sharing.shared_next;
		if (s->datagrams)
			datagram_share_tick(s, now);
		if (!s->cold->sharing.others_may_have || s->state != TCP_STATE_LISTEN || share_is_awaited(s) ||
		    now - s->cold->sharing.accepting_ns < GIVE_BACK_NS)
			continue;
		if (has_offers(s)) {
			give_back(s);
			if (!st->channel)
				return;
		} else if (!share_promised(s) && share_waits_elsewhere(s) &&
			   now - s->cold->sharing.accepting_ns >= RETRY_NS) {
			listener_interest(s, false);
		}
	}
}

bool share_is_away(struct stack *st, uint64_t now, uint64_t *deadline_ns)
{
	bool away = false;

	*deadline_ns = FOREVER;
	for (const struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next) {
		uint64_t at = s->cold->sharing.accepting_ns + GIVE_BACK_NS;

		if (s->datagrams && datagram_idle_at(s) < *deadline_ns)
			*deadline_ns = datagram_idle_at(s);
		away |= datagram_is_returning(s);
		if (!s->cold->sharing.others_may_have || s->state != TCP_STATE_LISTEN || share_is_awaited(s))
			continue;
		if (has_offers(s)) {
			away = true;
		} else if (share_promised(s)) {
			if (st->leader)
				continue; /* that thread takes the offer, and then calls this function */
			if (now >= at) {
				away = true;
				continue;
			}
		} else if (share_waits_elsewhere(s)) {
			at = s->cold->sharing.accepting_ns + RETRY_NS;
		} else {
			continue;
		}
		if (at < *deadline_ns)
			*deadline_ns = at;
	}
	return away;
}
