/*
 * The channel: receiving frames, sending them, and its end (opening.c has its beginning). There is at most one live
 * channel. When it ends, its sockets fail with an errno, and the next xts_socket() attaches again. Its descriptors are
 * closed when no thread sleeps on them any more.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attaching/attach.h"
#include "core/received_data.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/name_query.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "link/link.h"
#include "common/notice.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "queues/queue.h"
#include "core/wait.h"

#define FRAMES_A_PUMP 256
/* The most frames handled at a time when no further frame can be held: more would copy data that the caller is about to
 * read. */
#define FRAMES_WITHOUT_ROOM 16
#define ARRIVAL_NS (300 * NS_PER_MS)
#define TEND_NS (PING_MS / 4 * NS_PER_MS)

/* --- receiving ---------------------------------------------------------------------------------------------------- */

/* Frames may leave again: wakes the senders that were refused. */
static void tell_blocked(struct channel *c)
{
	struct stack *st = c->stack;
	struct xts_sock *s;

	wake(st, &st->frame_waiters);
	while ((s = c->blocked)) {
		c->blocked = s->blocked_next;
		s->in_blocked = false;
		if (s->in_use)
			socket_changed(s, EPOLLOUT);
	}
}

/* A program that never waits, because it asks again and again, has to notice a proxy that is gone, too. The queue has
 * just been emptied. */
static void tend(struct stack *st)
{
	struct channel *c = st->channel;
	uint64_t now = now_ns();

	c->tended_ns = c->looked_ns;
	if (c->link.watching)
		return; /* who waits does it */
	if (c->queue->traits & XTS_QUEUE_DEATH_SHOWS) {
		if (now - c->link.heard_ns > PING_MS * NS_PER_MS)
			channel_connection_event(c);
		return;
	}
	xts_link_watch(&c->link, true, now);
	channel_tick(st, now);
	if (st->channel == c)
		xts_link_watch(&c->link, false, now);
}

/* How many frames it may send before it hears of us. It leaves one unused for MOVE (PROTOCOL.md, "Upgrade"). */
static unsigned credits_of_proxy(const struct channel *c)
{
	unsigned credits = xts_link_peer_credits(&c->link), for_move = c->link.features & XTS_FEATURE_MOVE ? 1 : 0;

	return credits > for_move ? credits - for_move : 0;
}

void channel_pump(struct stack *st)
{
	struct channel *c = st->channel;
	uint8_t copy[HEAD_COPY_BYTES];
	struct xts_rx_frame frame;
	struct xts_head head;
	uint64_t now = 0;
	int r = 0;

	if (c && c->armed) {
		c->armed = false;
		xts_queue_disarm(c->queue);
	}
	if (c)
		c->looked_ns = now_coarse_ns();
	if (c)
		catch_up_begins(&c->catch_up, credits_of_proxy(c));
	for (int i = 0; c && i < FRAMES_A_PUMP; i++) {
		uint32_t bytes;
		enum xts_link_verdict verdict;

		if (!c->pool && i >= FRAMES_WITHOUT_ROOM)
			break;
		r = xts_queue_receive(c->queue, &frame);
		if (r != 1) {
			catch_up_empty(&c->catch_up);
			break;
		}
		if (!now)
			now = now_ns();
		bytes = frame.bytes < sizeof copy ? frame.bytes : (uint32_t)sizeof copy;
		memcpy(copy, frame.segment[0].iov_base, bytes);
		verdict = xts_link_receive(&c->link, copy, bytes, frame.bytes, now, &head);
		if (verdict == XTS_LINK_DELIVER) {
			c->catch_up.burst++;
			message_receive(st, &frame, &head, copy);
			c = st->channel;
			continue;
		}
		xts_queue_recycle(c->queue, &frame);
		if (verdict == XTS_LINK_OPENED)
			next_proxy.opened(st);
		if (verdict == XTS_LINK_CLOSED && !next_proxy.restarts(st, c->link.error)) {
			channel_die(st, c->link.error);
			return;
		}
	}
	if (!c)
		return;
	if (r < 0) {
		channel_die(st, ENETDOWN);
		return;
	}
	if (now && (c->blocked || st->frame_waiters) && channel_can_send(st))
		tell_blocked(c);
	if (st->catch_up_waiters && !xts_link_catching_up(&c->link))
		wake(st, &st->catch_up_waiters);
	if (__builtin_expect(c->looked_ns - c->tended_ns > TEND_NS, 0))
		tend(st);
}

void channel_tick(struct stack *st, uint64_t now)
{
	struct channel *c = st->channel;

	if (!c)
		return;
	if (c->retry) {
		c->retry = false;
		channel_flush(st, true);
		if (st->channel == c && !c->retry && channel_can_send(st))
			tell_blocked(c);
	}
	if (st->channel && xts_queue_deadline_ns(st->channel->queue) <= now) {
		st->channel->unkicked++; /* what leaves at its time leaves with this kick, which tells the queue the time */
		channel_flush(st, true);
	}
	if (st->channel && move_next_ns(&st->channel->move) <= now)
		next_proxy.tick(st, now);
	if (st->channel && xts_link_tick(&st->channel->link, now) == XTS_LINK_CLOSED)
		channel_die(st, st->channel->link.error);
}

uint64_t channel_deadline_ns(const struct channel *c)
{
	uint64_t of_link = xts_link_deadline_ns(&c->link), of_queue = xts_queue_deadline_ns(c->queue);

	if (move_next_ns(&c->move) < of_link)
		of_link = move_next_ns(&c->move);
	return of_link < of_queue ? of_link : of_queue;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* The kernel or the peer has fallen behind. A thread that sleeps on the queue is woken, as it may now sleep for a
 * millisecond only. */
static void look_again_soon(struct channel *c)
{
	if (c->retry)
		return;
	c->retry = true;
	wake_sleepers_on_queue(c->stack);
}

/* Sends the control frames that are due. */
void channel_control(struct channel *c, uint64_t now)
{
	struct xts_tx_slot slot;

	while (xts_link_control_due(&c->link)) {
		size_t bytes;

		if (xts_queue_acquire(c->queue, &slot)) {
			look_again_soon(c);
			return;
		}
		bytes = xts_link_control(&c->link, slot.data, now);
		if (!bytes) {
			xts_queue_abandon(c->queue, &slot);
			return;
		}
		xts_queue_submit(c->queue, &slot, (uint32_t)bytes);
		c->unkicked++;
	}
}

bool channel_can_send(const struct stack *st)
{
	return st->channel && !st->channel->move.acked && xts_link_credits(&st->channel->link) > 0;
}

int channel_slot(struct stack *st, struct xts_tx_slot *slot)
{
	struct channel *c = st->channel;

	if (!c)
		return -ENETDOWN;
	if (c->making.of)
		c->making.submit(c); /* it holds the frame credit that was available when it was begun */
	if (!xts_link_credits(&c->link) || c->move.acked || (c->move.deadline_ns && next_proxy.ack(c)))
		return -EAGAIN;
	if (xts_queue_acquire(c->queue, slot)) {
		xts_queue_kick(c->queue); /* also returns the slots that wait to be sent */
		c->unkicked = 0;
		if (xts_queue_acquire(c->queue, slot)) {
			look_again_soon(c);
			return -EAGAIN;
		}
	}
	return 0;
}

int channel_wait_slot(struct stack *st, struct xts_tx_slot *slot)
{
	int r = channel_slot(st, slot);

	if (r == -EAGAIN) {
		channel_pump(st);
		r = channel_slot(st, slot);
	}
	while (r == -EAGAIN) {
		/* The proxy recycles frames promptly or is found dead; a signal does not end this wait. */
		r = wait_for(st, &st->frame_waiters, FOREVER, false);
		if (r == -ENOBUFS)
			return r;
		r = channel_slot(st, slot);
	}
	return r;
}

void channel_submit(struct stack *st, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct channel *c = st->channel;

	xts_link_seal(&c->link, slot->data);
	if ((st->lose_ppm || st->lose_next) && loss_takes_it(st)) {
		xts_queue_abandon(c->queue, slot);
		return;
	}
	xts_queue_submit(c->queue, slot, bytes);
	c->unkicked++;
}

void channel_flush(struct stack *st, bool kick)
{
	struct channel *c = st->channel;
	int r;

	if (!c)
		return;
	if (c->making.of && kick)
		c->making.submit(c);
	if (move_is_claiming(&c->move))
		next_proxy.claim_some(st);
	if ((c->outbox_first || c->refused_count) && channel_can_send(st))
		outbox_flush(st);
	if (st->channel != c)
		return;
	if (c->move.deadline_ns)
		(void)next_proxy.ack(c);
	if (xts_link_control_due(&c->link))
		channel_control(c, now_ns());
	if (!c->unkicked || !kick)
		return;
	c->unkicked = 0;
	if (c->queue->traits & XTS_QUEUE_CLOCK)
		xts_queue_tick(c->queue, now_ns());
	r = xts_queue_kick(c->queue);
	if (r == -EAGAIN || r == -ENETDOWN) { /* it may be up again before silence ends the link */
		c->unkicked = 1;
		look_again_soon(c);
	} else if (r < 0) {
		channel_die(st, ENETDOWN);
	}
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Sockets of the program end, and their errnos do not tell why. */
static void say_violation(const struct channel *c)
{
	const char *what = c->link.violation, *endpoint = c->stack->settings.endpoint;

	if (what)
		xts_log(XTS_LOG_WARNING, "the proxy at %s has broken the protocol: %s", endpoint, what);
	else
		xts_log(XTS_LOG_WARNING,
			"the proxy at %s says that this process has broken the protocol: its log says how", endpoint);
}

void channel_die(struct stack *st, int error)
{
	struct channel *c = st->channel;

	if (!c)
		return;
	buffer_evict_all(c);
	channel_control(c, now_ns());
	xts_queue_kick(c->queue);
	st->last_error = error;
	st->channel = NULL;
	c->dead = true;
	c->next_dead = st->dead;
	st->dead = c;
	c->blocked = NULL;
	c->making.of = NULL;
	sockets_lose(st);
	name_queries_lose(st);
	if (c->attachment.status)
		c->attachment.status->link_state = XTS_LINK_DOWN;
	wake_all(st);
	if (error == EPROTO)
		say_violation(c);
	xts_log(XTS_LOG_DEBUG, "the queue at %s has ended: %s; %u of %u sockets are made again", st->settings.endpoint,
		strerror(error), st->again.away, st->sockets);
	again_start(st);
}

void channel_violation(struct stack *st, const char *what)
{
	if (!st->channel)
		return;
	st->bad_messages++;
	xts_link_violated(&st->channel->link, what);
	channel_die(st, EPROTO);
}

void channel_fail(struct stack *st, int error)
{
	if (!st->channel)
		return;
	st->bad_messages++;
	xts_link_fail(&st->channel->link, error);
	channel_die(st, error);
}

void channel_reap(struct stack *st)
{
	struct channel **at = &st->dead, *c;

	while ((c = *at)) {
		if (c->sleepers) {
			at = &c->next_dead;
			continue;
		}
		*at = c->next_dead;
		xts_detach(&c->attachment);
		xts_release(c->held);
		xts_release(c->refused);
		xts_release(c->gathered);
		next_proxy.release(c);
		xts_release(c);
	}
}

/* The end of the connection means that the peer has gone where the queue's traits say so. Else it means only that the
 * agent has gone, unless the agent has announced that it takes the queue back. */
bool channel_connection_ends_it(struct channel *c)
{
	struct xts_attach_taken word;
	ssize_t n = recv(c->attachment.connection, &word, sizeof word, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (c->queue->traits & XTS_QUEUE_DEATH_SHOWS)
		return true;
	if (n > 0)
		return n == sizeof word && word.magic == XTS_ATTACH_TAKEN_MAGIC;
	xts_own_close(c->attachment.connection);
	c->attachment.connection = -1;
	return false;
}

void channel_connection_event(struct channel *c)
{
	struct stack *st = c->stack;

	if (!channel_connection_ends_it(c))
		return;
	channel_pump(st); /* handles what the proxy sent before it ended */
	channel_die(st, ENETDOWN);
}

/* A proxy that has been silent for a while may have ended unnoticed, since no thread was waiting. A new proxy does not
 * start in such a short time, so programs that make sockets one after the other avoid the system call. */
#define IDLE_MS 10u

void channel_check_idle(struct stack *st)
{
	struct channel *c = st->channel;

	if (c && c->attachment.connection >= 0 && now_ns() - c->link.heard_ns >= IDLE_MS * NS_PER_MS)
		channel_connection_event(c);
}

void channel_forget(struct stack *st)
{
	struct channel *c = st->channel;

	if (c) {
		c->next_dead = st->dead;
		st->dead = c;
	}
	st->channel = NULL;
	st->name_queries = NULL; /* their threads do not exist in the child */
	for (c = st->dead; c; c = c->next_dead) {
		c->sleepers = 0;
		c->attachment.figures = NULL; /* this memory is mapped in the parent only */
		for (struct held *h = c->held_oldest; h; h = h->newer) {
			h->piece->held = NULL;
			h->piece->bytes = 0;
		}
	}
	channel_reap(st);
}

/* Where lost frames are repeated, what has not arrived would be lost with this process: waits for it, not for long. */
static void wait_for_arrival(struct xts_queue *queue)
{
	uint64_t now = now_ns(), until_ns = now + ARRIVAL_NS;
	struct pollfd wake = { .fd = queue->wait_fd, .events = POLLIN };
	struct xts_rx_frame frame;

	for (; xts_queue_deadline_ns(queue) != UINT64_MAX && now < until_ns; now = now_ns()) {
		while (xts_queue_receive(queue, &frame) == 1)
			xts_queue_recycle(queue, &frame);
		xts_queue_tick(queue, now);
		xts_queue_kick(queue);
		if (!xts_queue_arm(queue)) {
			poll(&wake, 1, 1);
			xts_queue_disarm(queue);
		}
	}
}

/* Is something here that a program has sent? */
static bool has_unsent(struct stack *st)
{
	for (struct xts_sock *s = table_next(st, NULL); s; s = table_next(st, s))
		if (s->pending_bytes && kind_of(s)->lingers && s->state == TCP_STATE_ESTABLISHED && !s->lost)
			return true;
	return false;
}

/* If something could not be sent, its peer must not take the end of the connection for that of the stream. */
void channel_say_goodbye(struct stack *st)
{
	if (!st->channel)
		return;
	xts_link_goodbye(&st->channel->link, has_unsent(st) ? ETIMEDOUT : 0);
	channel_flush(st, true);
	if (st->channel)
		wait_for_arrival(st->channel->queue);
}
