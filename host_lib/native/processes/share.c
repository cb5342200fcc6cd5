/*
 * Sockets that other processes join by their key: what listeners, bound sockets and datagram sockets have in common.
 * inherit.h has the theory of operation.
 */
#include <sys/random.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/take_over.h"
#include "processes/wipe.h"
#include "queues/queue.h"
#include "waiting/epoll.h"

uint64_t key_make(void)
{
	uint64_t key = 0;

	while (!key)
		if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key)
			key = 0;
	return key;
}

bool sharing_possible(struct stack *st)
{
	return st->channel && (st->channel->link.features & XTS_FEATURE_SHARE);
}

bool sharing_bound_possible(struct stack *st)
{
	return sharing_possible(st) && (st->channel->link.features & XTS_FEATURE_SHARE_BOUND);
}

bool share_by_key(const struct xts_sock *s)
{
	return kind_of(s)->is_joined(s);
}

void share_add(struct xts_sock *s)
{
	struct stack *st = s->stack;

	if (s->own.shared)
		return;
	s->own.shared = true;
	s->cold->sharing.shared_next = st->shared;
	st->shared = s;
}

void share_forget(struct xts_sock *s)
{
	struct xts_sock **at = &s->stack->shared;

	if (!s->own.shared)
		return;
	s->own.shared = s->cold->sharing.key_is_told = false;
	while (*at && *at != s)
		at = &(*at)->cold->sharing.shared_next;
	if (*at)
		*at = s->cold->sharing.shared_next;
	kind_of(s)->unshared(s);
}

bool share_is_awaited(const struct xts_sock *s)
{
	return s->readers || (s->polled && s->stack->poll_waiters) || epoll_awaits(s);
}

bool share_waits_elsewhere(const struct xts_sock *s)
{
	return s->mirror || epoll_awaits_elsewhere(s);
}

void share_wait_begins(struct stack *st)
{
	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next)
		if (share_is_awaited(s))
			kind_of(s)->interest(s, false);
	if (st->channel)
		st->channel->catch_up.interest = false; /* who waits hears of what comes */
}

void share_wait_ends(struct stack *st)
{
	uint64_t now = now_ns();

	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next)
		if (share_is_awaited(s))
			s->cold->sharing.accepting_ns = now;
}

void share_give_back_unaccepted(struct stack *st)
{
	struct xts_sock *next;

	for (struct xts_sock *s = st->shared; s && st->channel; s = next) {
		next = s->cold->sharing.shared_next;
		kind_of(s)->give_back_offers(s);
	}
	channel_flush(st, true);
}

void share_tick(struct stack *st, uint64_t now)
{
	const struct channel *c = st->channel;
	struct xts_sock *next;

	for (struct xts_sock *s = st->shared; s && st->channel == c; s = next) {
		next = s->cold->sharing.shared_next;
		kind_of(s)->share_tick(s, now);
	}
}

bool share_is_away(struct stack *st, uint64_t now, uint64_t *deadline_ns)
{
	bool away = false;

	*deadline_ns = FOREVER;
	for (const struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next)
		away |= kind_of(s)->is_away(s, now, deadline_ns);
	return away;
}

uint32_t share_keep_ms(const struct xts_sock *s)
{
	if (s->cold->sharing.leaves_last)
		return 0;
	if (!share_by_key(s))
		return CONNECTION_KEEP_MS;
	return s->cold->sharing.leaves || share_is_on_its_way(s) ? LISTENER_KEEP_MS : KILLED_KEEP_MS;
}

/* Sent without a token, since no thread waits for the answer. The proxy keeps the socket for other processes, if there
 * are any. */
int share_send(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct xts_share m = { .xts_socket = s->id, .key = key_to_say(s), .keep_ms = share_keep_ms(s) };
	struct xts_tx_slot slot;
	int r = channel_slot(st, &slot);

	if (r)
		return r;
	xts_head_encode(slot.data, XTS_CMD_SHARE, 0, 0, s->proxy_id);
	xts_share_encode(slot.data, &m);
	channel_submit(st, &slot, XTS_SHARE_BYTES);
	wipe(&m.key, sizeof m.key);
	s->todo &= (uint8_t)~TODO_SHARE;
	s->cold->sharing.key_is_told = true;
	s->cold->sharing.key_is_lost = false;
	kind_of(s)->share_sent(s);
	return 0;
}
