/* Sockets are claimed from the next process of the proxy. next_proxy.h has the theory of operation. */
#include "processes/next_proxy.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "link/credit.h"
#include "common/own_memory.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "processes/wipe.h"
#include "ulps/pdu.h"

void claims_forget(struct channel *c)
{
	xts_release(c->move.sockets);
	c->move.sockets = NULL;
	c->move.count = c->move.claimed = c->move.unanswered = 0;
}

/* Of a listener that is shared again first, that gets its protocols first, or that its program has closed: what it is
 * given then would be nobody's. */
static bool promises_nothing(const struct xts_sock *s)
{
	return s->own.shared || asked_pushes(s) || (kind_of(s)->accepts && !s->open);
}

uint32_t move_promises(struct xts_sock *s)
{
	uint32_t window = s->grant.window ? s->grant.window : WINDOW_BYTES_MIN,
		 taken = s->cold->accept_count + s->unread + pdu_credits(s);

	xts_credit_grant_init(&s->grant, window);
	s->grant.outstanding = taken < window && !promises_nothing(s) ? window - taken : 0;
	s->grant.unadvertised = 0;
	s->consumed = 0;
	return s->grant.outstanding;
}

void move_base(struct xts_sock *s)
{
	s->cold->received_base = s->received_bytes - s->unread;
	s->cold->sent_base = s->sent_bytes - s->pending_bytes;
	s->read_bytes = 0;
	s->cold->sharing.sent_before = s->cold->sent_base;
}

static bool has_sent_fin(const struct xts_sock *s)
{
	return s->shutdown & SEND_SHUTDOWN && !(s->todo & TODO_FIN);
}

/* Writes CLAIM or RESUME. Returns its length. */
static uint32_t write_claim(const struct move *m, struct moved_socket *moved, uint8_t *frame)
{
	struct xts_sock *s = moved->socket;
	struct xts_resume r = {
		.xts_socket = moved->id,
		.key = (m->ticket & ~(uint64_t)UINT32_MAX) | moved->proxy_id,
		.unread = s->unread,
		.received_bytes = s->received_bytes - s->cold->received_base,
		.sent_bytes = s->sent_bytes - s->pending_bytes - s->cold->sent_base,
		.fin_sent = has_sent_fin(s),
	};
	struct xts_claim claim = { .xts_socket = r.xts_socket, .key = r.key, .unread = r.unread };

	claim.post_credits = r.post_credits = kind_of(s)->promises(s);
	moved->sent_base = s->cold->sent_base;
	moved->received_base = s->cold->received_base;
	move_base(s);
	if (s->own.inherited == NOT_INHERITED) /* else the thread that has taken it does so, and compares them first */
		common_tell_counts(s);
	xts_head_encode(frame, m->died ? XTS_CMD_RESUME : XTS_CMD_CLAIM, 0, 0, 0);
	if (m->died)
		xts_resume_encode(frame, &r);
	else
		xts_claim_encode(frame, &claim);
	wipe(&claim.key, sizeof claim.key);
	wipe(&r.key, sizeof r.key);
	return m->died ? XTS_RESUME_BYTES : XTS_CLAIM_BYTES;
}

/* Writes CONNECT, as it was sent to the process that has died. Returns its length. */
static uint32_t write_connect(struct xts_sock *s, uint8_t *frame)
{
	const struct asked *e = s->cold->asked_connect;
	struct xts_connect m = { .xts_socket = s->id, .domain = s->family, .peer = s->peer, .length = e ? e->length : 0 };

	m.post_credits = s->grant.window;
	xts_credit_grant_init(&s->grant, s->grant.window);
	xts_head_encode(frame, XTS_CMD_CONNECT, 0, 0, 0);
	xts_connect_encode(frame, &m);
	if (e)
		memcpy(frame + XTS_CONNECT_BYTES, e->value, e->length);
	return XTS_CONNECT_BYTES + m.length;
}

/* What was not asked for, nobody has any more. */
static void say_that_is_all(struct stack *st, struct move *m)
{
	struct xts_resume none = { 0 };
	struct xts_tx_slot slot;

	if (channel_slot(st, &slot))
		return;
	m->died = m->all_due = false;
	xts_head_encode(slot.data, XTS_CMD_RESUME, 0, 0, 0);
	xts_resume_encode(slot.data, &none);
	channel_submit(st, &slot, XTS_RESUME_BYTES);
}

void claims_send(struct stack *st)
{
	struct channel *c = st->channel;
	struct move *m = &c->move;
	struct xts_tx_slot slot;
	bool any = m->claimed < m->count;

	while (!m->opening && m->claimed < m->count) {
		struct moved_socket *moved = &m->sockets[m->claimed];
		struct xts_sock *s = moved->socket;

		if (socket_is(s, moved->id) && (s->claiming || (!moved->proxy_id && move_connects_again(s)))) {
			if (channel_slot(st, &slot))
				return;
			channel_submit(st, &slot,
				       moved->proxy_id ? write_claim(m, moved, slot.data) : write_connect(s, slot.data));
			m->unanswered += moved->proxy_id != 0;
		}
		m->claimed++;
	}
	if (m->opening)
		return;
	if (any)
		m->ticket = 0; /* the next MOVE may come */
	if (any && !m->unanswered)
		claims_forget(c);
	if (m->all_due)
		say_that_is_all(st, m);
}

/* What was accepted from the program before has taken credits of the last epoch. */
bool move_takes_pending(struct xts_sock *s)
{
	uint32_t credits = s->credits < s->pending_bytes ? s->credits : s->pending_bytes;

	s->credits -= credits;
	outbox_set_deficit(s, s->pending_bytes - credits);
	return true;
}

/* The key of a listener is told again: the first member names the socket, and the others join it by that. Credits
 * follow it, as after listen(2), or when a thread waits. */
static void share_once_more(struct xts_sock *s)
{
	s->cold->sharing.key_is_told = false;
	s->todo |= TODO_SHARE;
	if (!s->cold->sharing.others_may_have || share_is_awaited(s) || share_waits_elsewhere(s))
		kind_of(s)->interest(s, false);
}

static bool goes_on(struct xts_sock *s)
{
	if (!kind_of(s)->takes_pending(s))
		return false;
	s->own.offered = false; /* it is this process's now */
	if (s->own.shared) {
		share_once_more(s);
	} else if (s->cold->sharing.stays && s->cold->sharing.key) { /* closed: the others join it by its key */
		s->cold->sharing.key_is_lost = true;
		s->todo |= TODO_SHARE;
	}
	if (s->own.common)
		s->todo |= TODO_SHARE; /* the key may be a new one, of which the process before has not heard */
	if (s->todo)
		outbox_add(s, s->todo);
	socket_changed(s, EPOLLOUT);
	return true;
}

bool move_claimed(struct xts_sock *s, uint32_t post_credits, uint16_t error)
{
	struct channel *c = s->stack->channel;

	s->claiming = s->had_room = false;
	if (c->move.unanswered && !--c->move.unanswered && !move_is_claiming(&c->move))
		claims_forget(c);
	if (!error && !message_credits(s, post_credits))
		return false;
	if (!error && !asked_pushes(s) && goes_on(s))
		return true;
	s->opening = false; /* else it is made again, or what is missing of it: asked_push_again() */
	if (again_keeps(s)) {
		again_attached(s->stack);
		return true;
	}
	s->opening = true; /* for message_reply(), which has its identifier */
	s->stack->not_inherited++;
	socket_fail(s, ECONNRESET);
	return true;
}
