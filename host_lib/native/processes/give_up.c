/*
 * Giving up a connection that other processes have too: the holder sends PARK, and after the answer it returns the
 * unread bytes in RETURN messages. Both leave through the outbox, whichever thread flushes it. What else the next
 * process has to know (half-closed? which protocols?) is in the entry of the relatives' file. inherit.h has the theory
 * of operation.
 */
#include <sys/epoll.h>

#include "core/received_data.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/next_proxy.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "processes/wipe.h"
#include "queues/queue.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"

/* a holder that has not used it for so long gives it to a process that waits for events */
#define IDLE_NS (20 * NS_PER_MS)
/* one that uses it all the time keeps it for so long, or going to and fro would take most of the time */
#define BUSY_NS (200 * NS_PER_US)
#define SLICE_NS (10 * NS_PER_MS)
/* and one that uses it all the time gives it up after so long, since there may be what the other one waits for */
#define POLLED_NS (50 * NS_PER_MS)

/* Does the protocol allow to give it to another process now? PARK that cannot leave any more would leave it to
 * nobody. */
static bool is_between_calls(const struct xts_sock *s)
{
	return s->proxy_id && !move_is_between(&s->stack->channel->move) && !s->opening && !s->call && !s->pushing &&
	       !s->closing && !s->lost && !s->disconnecting && !s->cold->ulps.handshaking && !s->cold->ulps.sending &&
	       !s->cold->ulps.peeking && !(s->todo & (TODO_ACCEPTED | TODO_GIVE_BACK | TODO_CLOSE));
}

/* Has it been taken not long ago, and is it in use ever since? */
static bool is_in_its_slice(const struct xts_sock *s)
{
	const struct sharing *sh = &s->cold->sharing;
	uint64_t now = now_ns();

	return now - sh->taken_ns < SLICE_NS &&
	       (s->writers || (sh->used_ns > sh->taken_ns && now - sh->used_ns < BUSY_NS));
}

/* Does its holder need it less than the process that asks? */
static bool is_spare(const struct xts_sock *s, uint32_t purpose)
{
	if (!s->open)
		return true;
	if (purpose == PURPOSE_POLL) {
		uint64_t now = now_ns();

		if (s->readers || s->polled)
			return false;
		return (!s->writers && now - s->cold->sharing.used_ns > IDLE_NS) ||
		       (s->cold->sharing.polled_ns && now - s->cold->sharing.polled_ns > POLLED_NS);
	}
	if (purpose == PURPOSE_RECEIVE && is_in_its_slice(s))
		return false;
	return purpose == PURPOSE_USE || !s->readers;
}

bool turn_give_up(struct xts_sock *s)
{
	struct stack *st = s->stack;

	if (!is_between_calls(s))
		return false;
	if (s->own.common) {
		s->own.common->shutdown |= s->shutdown & SEND_SHUTDOWN;
		s->own.common->ulps = s->cold->ulps;
		s->own.common->pdu_read = s->cold->pdu_first && !s->cold->pdu_first->stream ? s->cold->pdu_first->read :
											      0;
	}
	s->cold->sharing.asked_for = 0;
	s->cold->sharing.polled_ns = 0;
	s->cold->sharing.park_token = ++st->token;
	outbox_add(s, TODO_PARK);
	s->own.moved = PARKING;
	st->moving++;
	/* a thread that waits for it finds it gone, and asks for it */
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLHUP);
	progress_need(st);
	return true;
}

void turn_yield_some(struct stack *st)
{
	struct xts_sock *s = NULL;

	st->asked_to_yield = false;
	while ((s = table_next(st, s))) {
		if (!s->cold->sharing.asked_for || s->own.inherited != NOT_INHERITED || s->own.moved != NOT_MOVED)
			continue;
		if (!is_spare(s, s->cold->sharing.asked_for) || !turn_give_up(s))
			st->asked_to_yield |= s->cold->sharing.asked_for != PURPOSE_POLL;
	}
}

void turn_yield_read(struct stack *st, const uint16_t *subject)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		if (subject == &s->readers && s->cold->sharing.asked_for == PURPOSE_USE &&
		    s->own.inherited == NOT_INHERITED && s->own.moved == NOT_MOVED)
			(void)turn_give_up(s);
}

bool message_yield(struct stack *st, const struct xts_head *head, const struct xts_yield *m, struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	(void)frame;
	if (!s || s->closing || s->own.moved != NOT_MOVED || !s->cold->sharing.key || !m->purpose)
		return false;
	if (share_by_key(s))
		return false; /* its processes have it at the same time, so nobody asks for it */
	if (s->own.inherited != NOT_INHERITED) {
		/* TAKE has been answered, but the thread that sent it has not run since: that thread answers this
		 * request too. */
		if (s->own.taking)
			s->cold->sharing.asked_for = (uint8_t)m->purpose;
		return false;
	}
	if (key_renew(s))
		return false; /* whoever asks has to know the new key; SHARE is the answer */
	if (is_spare(s, m->purpose) && turn_give_up(s))
		return false;
	s->cold->sharing.asked_for = (uint8_t)m->purpose;
	turn_is_asked_for(s);
	return false;
}

void turn_is_asked_for(struct xts_sock *s)
{
	if (s->cold->sharing.asked_for == PURPOSE_POLL) {
		s->cold->sharing.asked_for = 0; /* the other process asks again */
		if (!s->cold->sharing.polled_ns)
			s->cold->sharing.polled_ns = now_ns();
	} else {
		s->stack->asked_to_yield = true; /* it is given up when the call that needs it has ended */
	}
	outbox_add(s, TODO_SHARE); /* sends the answer */
}

int turn_send_park(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct xts_park m = { .xts_socket = s->id,
			      .token = s->cold->sharing.park_token,
			      .key = s->cold->sharing.key,
			      .keep_ms = CONNECTION_KEEP_MS };
	struct xts_tx_slot slot;
	int r = channel_slot(st, &slot);

	if (r)
		return r;
	xts_head_encode(slot.data, XTS_CMD_PARK, 0, 0, s->proxy_id);
	xts_park_encode(slot.data, &m);
	channel_submit(st, &slot, XTS_PARK_BYTES);
	wipe(&m.key, sizeof m.key);
	s->todo &= (uint8_t)~TODO_PARK;
	return 0;
}

static void over(struct xts_sock *s)
{
	struct stack *st = s->stack;

	s->own.moved = NOT_MOVED;
	st->moving--;
	wake(st, &s->callers);
	wake(st, &st->close_waiters);
}

static void given_up(struct xts_sock *s)
{
	buffer_drop(s);
	outbox_remove(s);
	over(s);
	status_state(s);
	if (!s->open && !s->own.taking && !s->cold->sharing.close_waits) {
		if (s->own.common && !common_kept(s)) {
			/* The other processes have gone meanwhile, and relied on this one: takes it back and closes
			 * it. */
			common_detach(s);
			s->own.ending = true;
			common_look_soon(s->stack);
			return;
		}
		inherit_is_here(s);
		socket_free(s);
		return;
	}
	if (s->polled || s->watches || s->mirror)
		common_look_soon(s->stack);
}

void turn_parked(struct xts_sock *s, int error)
{
	if (error) {
		over(s);
		outbox_add(s, TODO_SHARE); /* the answer to YIELD: the proxy does not ask again before it */
		socket_changed(s, socket_events(s));
		if (!s->open && !s->own.ending && !s->cold->sharing.close_waits)
			socket_end(s);
		return;
	}
	s->proxy_id = 0;
	s->credits = 0;
	socket_asked(s, false);
	s->own.moved = NOT_MOVED; /* a state in which the outbox handles it */
	outbox_add(s, TODO_PARK);
	s->own.moved = RETURNING;
	inherit_is_elsewhere(s);
}

/* Takes the first PDU, or the part of it that fits into a frame. Returns the number of bytes. */
static uint32_t next_return(const struct xts_sock *s, uint32_t largest, struct xts_return *m, uint8_t *flags)
{
	const struct pdu *p = s->cold->pdu_first;

	*m = (struct xts_return){ .key = s->cold->sharing.key, .kind = 1 };
	if (!p) {
		m->length = s->unread < largest ? s->unread : largest;
		return m->length;
	}
	m->length = p->bytes < largest ? p->bytes : largest;
	if (p->stream)
		return m->length;
	m->kind = 2;
	m->record_bytes = p->record_bytes;
	m->control_type = p->control_type;
	m->control_bytes = p->control_bytes;
	m->control_high = xts_get64(p->control);
	m->control_low = xts_get64(p->control + 8);
	if (!p->whole || m->length < p->bytes)
		*flags = XTS_FLAG_MORE;
	return m->length;
}

static bool has_more(const struct xts_sock *s)
{
	return s->unread || (s->cold->pdu_first && s->cold->pdu_first->whole);
}

int turn_send_returns(struct xts_sock *s)
{
	struct stack *st = s->stack;
	bool more = true;

	while (more) {
		uint32_t largest = st->channel->link.largest_message - XTS_RETURN_BYTES;
		struct xts_return m = { .key = s->cold->sharing.key };
		struct xts_tx_slot slot;
		struct iovec out = { 0 };
		uint8_t flags = 0;
		int r = channel_slot(st, &slot);

		if (r)
			return r;
		more = has_more(s);
		if (more)
			out.iov_len = next_return(s, largest, &m, &flags);
		out.iov_base = slot.data + XTS_RETURN_BYTES;
		xts_head_encode(slot.data, XTS_CMD_RETURN, flags, 0, 0);
		xts_return_encode(slot.data, &m);
		if (m.length)
			buffer_copy(s, 0, &out, 0, m.length);
		if (s->cold->pdu_first)
			pdu_consume(s, m.length);
		else
			buffer_consume(s, m.length);
		channel_submit(st, &slot, XTS_RETURN_BYTES + m.length);
		wipe(&m.key, sizeof m.key);
	}
	given_up(s);
	return 0;
}

/* Bytes that were not yet returned are lost, and the proxy knows that. */
void turn_channel_died(struct xts_sock *s)
{
	if (s->own.moved == RETURNING)
		given_up(s);
	else
		over(s);
}
