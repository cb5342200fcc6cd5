/* Another process of the proxy takes the queue over. next_proxy.h has the theory of operation. */
#include "processes/next_proxy.h"

#include <errno.h>
#include <stdlib.h>

#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/message_dispatch.h"
#include "core/name_query.h"
#include "core/outbox.h"
#include "core/received_data.h"
#include "core/socket.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/wait.h"
#include "link/credit.h"
#include "common/notice.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "waiting/progress_thread.h"

/* A host that has looked at its queue so short a time ago has seen the MOVE after which the proxy waited for
 * XTS_MOVE_QUIET_MS. */
#define LOOK_NS (XTS_MOVE_QUIET_MS / 4 * NS_PER_MS)

#define REOPENING_MS 10000u /* to wait for the answer to HELLO: the next process is there, and may be slow */
#define SETTLE_NS NS_PER_S
#define SETTLE_LOOK_NS NS_PER_MS
#define GOODBYE_NS (10 * NS_PER_S) /* it answers MOVE_ACK, and comes at once: a proxy that does not say it is broken */

/* --- before ------------------------------------------------------------------------------------------------------- */

static void look_first(struct stack *st)
{
	const struct channel *c = st->channel;

	if (c->link.features & XTS_FEATURE_MOVE && now_coarse_ns() - c->looked_ns > LOOK_NS)
		channel_pump(st);
}

bool message_move(struct stack *st, const struct xts_head *head, const struct xts_move *m, struct xts_rx_frame *frame)
{
	struct move *move = &st->channel->move;

	(void)head;
	(void)frame;
	if (!m->ticket || move->ticket || !(st->channel->link.features & XTS_FEATURE_MOVE)) {
		channel_violation(st, "MOVE without its feature or ticket, or twice");
		return false;
	}
	move->ticket = m->ticket;
	move->deadline_ns = now_ns() + m->within_ms * NS_PER_MS;
	progress_need(st);
	wake_sleepers_on_queue(st); /* it may be answered when their calls end */
	return false;
}

static bool is_claimable(const struct xts_sock *s)
{
	/* one that is away is made again there, from the beginning: a part of it may be here */
	if (!s->proxy_id || s->opening || s->lost || s->away || s->cancelled || s->own.moved != NOT_MOVED || s->pushing)
		return false;
	if (s->own.common && !(s->stack->channel->link.features & XTS_FEATURE_MOVE_NAMED))
		return false;
	return !s->cold->ulps.peeking && kind_of(s)->moves(s);
}

/* What it has to send leaves as well behind its claim. While its host sends more than the proxy takes, something waits
 * all the time. */
static bool may_send_later(const struct xts_sock *s)
{
	return is_claimable(s) && kind_of(s)->lingers && !s->own.common &&
	       !(s->todo & ~(unsigned)(TODO_DATA | TODO_ADVERT | TODO_FIN));
}

/* Does the proxy still have to say something about it, or would be told something first? */
static bool is_under_way(const struct xts_sock *s)
{
	return s->call || s->opening || s->closing || s->pushing || s->making || s->own.moved != NOT_MOVED ||
	       s->cold->ulps.handshaking;
}

static bool is_quiet(struct channel *c)
{
	struct stack *st = c->stack;

	if (c->refused_count || c->making.of || st->name_queries)
		return false;
	for (const struct xts_sock *s = c->outbox_first; s; s = s->outbox_next)
		if (!may_send_later(s))
			return false;
	for (struct xts_sock *s = table_next(st, NULL); s; s = table_next(st, s))
		if (is_under_way(s))
			return false;
	return true;
}

static bool ack(struct channel *c)
{
	struct xts_move_ack m = { .ticket = c->move.ticket };
	struct xts_tx_slot slot;

	if (!is_quiet(c) && now_ns() < c->move.deadline_ns)
		return false;
	if (!xts_link_credits(&c->link) || xts_queue_acquire(c->queue, &slot))
		return false;
	c->move.deadline_ns = 0;
	c->move.acked = true;
	c->move.goodbye_ns = now_ns() + GOODBYE_NS;
	xts_head_encode(slot.data, XTS_CMD_MOVE_ACK, 0, 0, 0);
	xts_move_ack_encode(slot.data, &m);
	channel_submit(c->stack, &slot, XTS_MOVE_ACK_BYTES);
	return true;
}

/* --- between two epochs ------------------------------------------------------------------------------------------- */

bool move_is_of_state(const struct xts_sock *s)
{
	if (asked_pushes(s) && (s->own.shared || !(s->stack->channel->link.features & XTS_FEATURE_MOVE_PUSHED)))
		return false;
	return s->state != TCP_STATE_CLOSE && s->state != TCP_STATE_SYN_SENT;
}

static void tick(struct stack *st, uint64_t now)
{
	const struct move *m = &st->channel->move;

	if (m->deadline_ns && now >= m->deadline_ns)
		channel_flush(st, true);
	else if (m->goodbye_ns && now >= m->goodbye_ns)
		channel_die(st, ETIMEDOUT);
}

/* What its call has changed nobody knows, and it cannot be asked twice. */
static bool has_lost_call(const struct xts_sock *s)
{
	return s->call && !call_may_be_repeated(s->call);
}

bool move_connects_again(const struct xts_sock *s)
{
	return s->state == TCP_STATE_SYN_SENT && s->opening && !s->proxy_id && s->open && !s->cancelled &&
	       !s->closing && !s->disconnecting && !s->pushing && !has_lost_call(s) && !s->lost &&
	       (!s->cold->ulps.with_connect || s->cold->asked_connect);
}

/* Its program has sent, and closed it, and no answer to CLOSE has come: what it has sent may not have arrived. If the
 * process that has died had carried CLOSE out, the next one does not know the connection, which is as good. */
static bool closes_again(const struct xts_sock *s)
{
	return s->closing && !s->open && !s->abort && !s->disconnecting && kind_of(s)->lingers;
}

/* The same when the proxy's process has died: an answer that is due will not come. */
static bool is_resumable(const struct xts_sock *s)
{
	if (move_connects_again(s))
		return true;
	return is_claimable(s) && !has_lost_call(s) && (!s->closing || s->todo & TODO_CLOSE || closes_again(s));
}

static bool collect(struct stack *st, struct move *m)
{
	bool (*is_wanted)(const struct xts_sock *) = m->died ? is_resumable : is_claimable;
	uint32_t count = 0;

	for (struct xts_sock *s = table_next(st, NULL); s; s = table_next(st, s))
		count += is_wanted(s);
	m->sockets = calloc(count + 1u, sizeof *m->sockets);
	if (!m->sockets)
		return false;
	for (struct xts_sock *s = table_next(st, NULL); s; s = table_next(st, s))
		if (is_wanted(s))
			m->sockets[m->count++] = (struct moved_socket){ .socket = s,
									.id = s->id,
									.proxy_id = s->proxy_id };
	return true;
}

static void wait_for_claim(struct xts_sock *s, bool died)
{
	s->proxy_id = 0;
	s->opening = s->claiming = true;
	s->had_room |= s->credits && s->credits >= socket_credits_worth_waiting_for(s);
	s->credits = s->peer_window = 0;
	s->in_deficit = false;
	s->todo &= TODO_DATA | TODO_FIN | TODO_CLOSE;
	if (died && closes_again(s))
		s->todo |= TODO_CLOSE;
	kind_of(s)->leaves(s);
	if (!s->todo)
		outbox_remove(s);
}

/* TAKE was not answered: another process may have the connection as before. */
static void takes_ask_again(struct stack *st)
{
	for (struct xts_sock *s = table_next(st, NULL); s; s = table_next(st, s)) {
		if (!s->own.taking || s->own.inherited == NOT_INHERITED || s->proxy_id || !s->call ||
		    s->call->type != XTS_CMD_TAKE)
			continue;
		s->call->error = EBUSY;
		s->call->done = true;
		s->call = NULL;
		s->opening = false;
		wake(st, &s->callers);
	}
}

static void calls_go_again(struct stack *st)
{
	for (struct xts_sock *s = table_next(st, NULL); s; s = table_next(st, s))
		if (s->call && s->open && call_may_be_repeated(s->call))
			call_goes_again(s);
}

/* The process that was to answer these claims has died as well: they are as before. */
static void take_claims_back(struct move *m)
{
	for (uint32_t i = 0; i < m->count; i++) {
		const struct moved_socket *moved = &m->sockets[i];
		struct xts_sock *s = moved->socket;

		if (!socket_is(s, moved->id) || !s->claiming)
			continue;
		s->claiming = s->opening = false;
		s->proxy_id = moved->proxy_id;
		if (i >= m->claimed)
			continue;
		s->cold->sent_base = moved->sent_base;
		s->cold->received_base = moved->received_base;
	}
}

/* Has the link ended because another process of the proxy goes on, in a way in which this side can? */
static bool can_restart(struct channel *c, int error)
{
	struct move *m = &c->move;

	if (error != ERESTART || m->opening)
		return false;
	m->died = c->link.replaced_ticket;
	if (!m->died)
		return m->ticket && m->claimed == m->count && xts_link_unacknowledged(&c->link) <= m->acked;
	m->ticket = c->link.replaced_ticket;
	if (c->making.of)
		c->making.submit(c); /* nobody will receive it, but its slot comes back */
	return true;
}

static bool restarts(struct stack *st, int error)
{
	struct channel *c = st->channel;
	struct xts_link_config config = c->link.config;
	struct move *m = &c->move;
	bool watching = c->link.watching;
	uint64_t features = c->link.features;

	if (!can_restart(c, error))
		return false;
	buffer_evict_all(c);
	if (m->died)
		take_claims_back(m);
	claims_forget(c);
	if ((c->making.of && !c->making.keep(c)) || !collect(st, m))
		return false;
	config.token_bytes = 0;
	config.features &= ~XTS_FEATURE_TOKEN;
	config.dead_ms = REOPENING_MS;
	if (!m->died && xts_attach_is_proxy(&c->attachment))
		c->attachment.reply.relatives = 0; /* until HELLO is answered: it may be of another version */
	xts_packets_end(&c->packets);
	c->refused_count = 0;
	for (uint32_t i = 0; i < m->count; i++)
		if (m->sockets[i].proxy_id)
			wait_for_claim(m->sockets[i].socket, m->died);
	takes_ask_again(st);
	if (m->died)
		calls_go_again(st);
	sockets_lose_unclaimed(st);
	name_queries_lose(st);
	c->catch_up = (struct catch_up){ 0 };
	m->deadline_ns = m->goodbye_ns = 0;
	m->acked = false;
	m->opening = true;
	(void)xts_link_init(&c->link, &config, now_ns());
	c->link.watching = watching;
	/* Until HELLO is answered, calls decide by what the last process had: without, a new datagram socket would stay
	 * with the kernel for good, as with a proxy that knows none. They can send nothing before the answer. */
	c->link.features = features;
	c->unkicked++; /* HELLO leaves at once */
	progress_need(st);
	xts_log(XTS_LOG_DEBUG, "another process of the proxy at %s takes over; %u of %u sockets move",
		st->settings.endpoint, m->count, st->sockets);
	return true;
}

/* --- after -------------------------------------------------------------------------------------------------------- */

/* Another process serves the attachment now, perhaps of another version. It has not got the files of relatives. */
static void tell_next_server(struct channel *c)
{
	c->attachment.reply.relatives = c->link.features & XTS_FEATURE_OVER ? 1 : 0;
	c->relatives_told = 0;
	common_tell_server(c);
}

static void opened(struct stack *st)
{
	struct channel *c = st->channel;

	xts_packets_begin(&c->packets, &c->link);
	xts_link_ask_clock(&c->link);
	c->link.config.dead_ms = st->settings.dead_ms - PING_MS;
	if (!c->move.died && xts_attach_is_proxy(&c->attachment))
		tell_next_server(c);
	c->move.opening = false;
	c->move.all_due = c->link.features & XTS_FEATURE_RESUME;
	if (c->move.died && c->link.replaced_ticket)
		c->move.ticket = c->link.replaced_ticket;
	c->link.replaced_ticket = 0;
	if (!c->move.count)
		c->move.ticket = 0;
	status_link(st);
	claims_send(st);
	again_attached(st);
	wake_all(st); /* those who wait for frames, or for answers that do not come any more */
}

void move_settle(struct stack *st)
{
	uint64_t until_ns = now_ns() + SETTLE_NS;

	while (st->channel && (move_is_between(&st->channel->move) || st->channel->move.unanswered) &&
	       now_ns() < until_ns)
		if (wait_a_while(st, SETTLE_LOOK_NS))
			return;
}

bool move_has_room(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	if (!c || s->pushing || s->cold->ulps.handshaking)
		return false;
	return s->claiming ? s->had_room :
			     c->move.acked && s->credits && s->credits >= socket_credits_worth_waiting_for(s);
}

static bool wait_for_room(struct xts_sock *s)
{
	uint64_t until_ns = now_ns() + SETTLE_NS;

	if (!move_has_room(s))
		return false;
	while (s->open && move_has_room(s) && now_ns() < until_ns)
		if (wait_a_while(s->stack, SETTLE_LOOK_NS))
			break;
	if (!s->open || !move_has_room(s))
		return true;
	s->had_room = false;
	return false;
}

const struct next_proxy next_proxy = {
	.look_first = look_first,
	.ack = ack,
	.claim_some = claims_send,
	.tick = tick,
	.restarts = restarts,
	.opened = opened,
	.wait_for_room = wait_for_room,
	.release = claims_forget,
};
