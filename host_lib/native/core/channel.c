/*
 * The channel: taking frames, sending them, and the end (opening.c is the beginning). There is one live channel at most;
 * when it dies its sockets end in an errno and the next xts_socket() attaches anew. Its descriptors are closed when no
 * thread sleeps on them any more.
 */
#include "core/library.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAMES_A_PUMP 256
/* No more at a time once no further frame can be held: taking more would copy what the caller is about to read. */
#define FRAMES_WITHOUT_ROOM 16

/* --- receiving -------------------------------------------------------------------------------------------------------- */

/* Frames may leave again: tells those who were refused. */
static void tell_blocked(struct channel *c)
{
	struct xts_sock *s;

	wake(&xts.frame_waiters);
	while ((s = c->blocked)) {
		c->blocked = s->blocked_next;
		s->in_blocked = false;
		if (s->in_use)
			socket_changed(s, EPOLLOUT);
	}
}

void channel_pump(void)
{
	struct channel *c = xts.channel;
	uint8_t copy[HEAD_COPY_BYTES];
	struct xts_rx_frame frame;
	struct xts_head head;
	uint64_t now = 0;
	int r = 0;

	if (c && c->armed) {
		c->armed = false;
		xts_queue_disarm(c->queue);
	}
	for (int i = 0; c && i < FRAMES_A_PUMP; i++) {
		uint32_t bytes;
		enum xts_link_verdict verdict;

		if (!c->pool && i >= FRAMES_WITHOUT_ROOM)
			break;
		r = xts_queue_receive(c->queue, &frame);
		if (r != 1)
			break;
		if (!now)
			now = now_ns();
		bytes = frame.bytes < sizeof copy ? frame.bytes : (uint32_t)sizeof copy;
		memcpy(copy, frame.segment[0].iov_base, bytes);
		verdict = xts_link_receive(&c->link, copy, bytes, frame.bytes, now, &head);
		if (verdict == XTS_LINK_DELIVER) {
			message_receive(&frame, &head, copy);
			c = xts.channel;
			continue;
		}
		xts_queue_recycle(c->queue, &frame);
		if (verdict == XTS_LINK_CLOSED) {
			channel_die(c->link.error);
			return;
		}
	}
	if (!c)
		return;
	if (r < 0) {
		channel_die(ENETDOWN);
		return;
	}
	if (now && (c->blocked || xts.frame_waiters) && channel_can_send())
		tell_blocked(c);
}

void channel_tick(uint64_t now)
{
	struct channel *c = xts.channel;

	if (!c)
		return;
	if (c->retry) {
		c->retry = false;
		channel_flush(true);
		if (xts.channel == c && !c->retry && channel_can_send())
			tell_blocked(c);
	}
	if (xts.channel && xts_link_tick(&xts.channel->link, now) == XTS_LINK_CLOSED)
		channel_die(xts.channel->link.error);
}

uint64_t channel_deadline_ns(const struct channel *c)
{
	return xts_link_deadline_ns(&c->link);
}

/* --- sending ---------------------------------------------------------------------------------------------------------- */

/* The kernel or the peer is behind. A thread asleep on the queue has to learn that it may sleep for a millisecond only. */
static void look_again_soon(struct channel *c)
{
	if (c->retry)
		return;
	c->retry = true;
	wake_sleepers_on_queue();
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

bool channel_can_send(void)
{
	return xts.channel && xts_link_credits(&xts.channel->link) > 0;
}

int channel_slot(struct xts_tx_slot *slot)
{
	struct channel *c = xts.channel;

	if (!c)
		return -ENETDOWN;
	if (!xts_link_credits(&c->link))
		return -EAGAIN;
	if (xts_queue_acquire(c->queue, slot)) {
		xts_queue_kick(c->queue); /* returns slots that are waiting to go */
		c->unkicked = 0;
		if (xts_queue_acquire(c->queue, slot)) {
			look_again_soon(c);
			return -EAGAIN;
		}
	}
	return 0;
}

int channel_wait_slot(struct xts_tx_slot *slot)
{
	int r = channel_slot(slot);

	if (r == -EAGAIN) {
		channel_pump();
		r = channel_slot(slot);
	}
	while (r == -EAGAIN) {
		/* The proxy recycles promptly or is found dead; a signal does not end this. */
		r = wait_for(&xts.frame_waiters, FOREVER, false);
		if (r == -ENOBUFS)
			return r;
		r = channel_slot(slot);
	}
	return r;
}

void channel_submit(const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct channel *c = xts.channel;

	xts_link_seal(&c->link, slot->data);
	if ((xts.lose_ppm || xts.lose_next) && loss_takes_it()) {
		xts_queue_abandon(c->queue, slot);
		return;
	}
	xts_queue_submit(c->queue, slot, bytes);
	c->unkicked++;
}

void channel_flush(bool kick)
{
	struct channel *c = xts.channel;
	int r;

	if (!c)
		return;
	if ((c->outbox_first || c->refused_count) && channel_can_send())
		outbox_flush();
	if (xts_link_control_due(&c->link))
		channel_control(c, now_ns());
	if (!c->unkicked || !kick)
		return;
	c->unkicked = 0;
	r = xts_queue_kick(c->queue);
	if (r == -EAGAIN) {
		c->unkicked = 1;
		look_again_soon(c);
	} else if (r < 0) {
		channel_die(ENETDOWN);
	}
}

/* --- the end ---------------------------------------------------------------------------------------------------------- */

/* A socket of a channel that has died, as PROTOCOL.md has it. */
static void socket_lose(struct xts_sock *s)
{
	if (s->inherited != NOT_INHERITED && !s->taking)
		return; /* of no channel of this process yet */
	outbox_remove(s);
	s->in_blocked = false;
	free(s->pending);
	s->pending = NULL;
	s->pending_bytes = s->pending_capacity = 0;
	if (!s->open) {
		/* Closed already, or never accepted. */
		s->closing = false;
		if (!s->listener) {
			if (s->call) {
				s->call->error = ENETDOWN;
				s->call->done = true;
				wake(&s->callers);
			}
			socket_free(s);
			return;
		}
	}
	if (s->state == TCP_STATE_CLOSE && !s->proxy_id && !s->opening)
		return; /* the proxy never knew it: good for the next channel */
	s->lost = true;
	s->opening = false;
	s->proxy_id = 0;
	if (s->call) {
		s->call->error = ENETDOWN;
		s->call->done = true;
		s->call = NULL;
	}
	if (s->state == TCP_STATE_SYN_SENT)
		socket_fail(s, ECONNABORTED);
	else if (s->state == TCP_STATE_ESTABLISHED)
		socket_fail(s, ECONNRESET);
	else if (s->state == TCP_STATE_LISTEN)
		socket_fail(s, ENETDOWN);
	if (s->disconnecting)
		socket_disconnected(s);
	wake(&s->callers);
	status_state(s);
}

void channel_die(int error)
{
	struct channel *c = xts.channel;
	struct xts_sock *s = NULL, *next;

	if (!c)
		return;
	buffer_evict_all(c);
	channel_control(c, now_ns());
	xts_queue_kick(c->queue);
	xts.last_error = error;
	xts.channel = NULL;
	c->dead = true;
	c->next_dead = xts.dead;
	xts.dead = c;
	c->blocked = NULL;
	while (xts.shared)
		share_forget(xts.shared);
	for (s = table_next(NULL); s; s = next) {
		next = table_next(s);
		socket_lose(s);
	}
	if (c->attachment.status)
		c->attachment.status->link_state = XTS_LINK_DOWN;
	wake_all();
}

void channel_fail(int error)
{
	if (!xts.channel)
		return;
	xts.bad_messages++;
	xts_link_fail(&xts.channel->link, error);
	channel_die(error);
}

void channel_reap(void)
{
	struct channel **at = &xts.dead, *c;

	while ((c = *at)) {
		if (c->sleepers) {
			at = &c->next_dead;
			continue;
		}
		*at = c->next_dead;
		xts_detach(&c->attachment);
		free(c->held);
		free(c->refused);
		free(c);
	}
}

/* The server has closed the attach connection: for shm the proxy has gone; for afxdp only the agent. */
void channel_connection_event(struct channel *c)
{
	char byte;

	if (recv(c->attachment.connection, &byte, sizeof byte, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (c->attachment.reply.kind == XTS_QUEUE_SHM) {
		channel_pump(); /* what it still said */
		channel_die(ENETDOWN);
		return;
	}
	xts_own_close(c->attachment.connection);
	c->attachment.connection = -1;
}

/* A proxy that has said nothing for a while may have gone, with nobody waiting for anything and so seeing it. None comes back
 * in so short a time; whoever makes sockets one after the other does without the system call. */
#define IDLE_MS 10u

void channel_check_idle(void)
{
	struct channel *c = xts.channel;

	if (c && c->attachment.connection >= 0 && now_ns() - c->link.heard_ns >= IDLE_MS * NS_PER_MS)
		channel_connection_event(c);
}

void channel_forget(void)
{
	struct channel *c = xts.channel;

	if (c) {
		c->next_dead = xts.dead;
		xts.dead = c;
	}
	xts.channel = NULL;
	for (c = xts.dead; c; c = c->next_dead) {
		c->sleepers = 0;
		for (struct held *h = c->held_oldest; h; h = h->newer) {
			h->piece->held = NULL;
			h->piece->bytes = 0;
		}
	}
	channel_reap();
}
