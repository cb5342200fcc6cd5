/* SHARE, PARK, RETURN, CLAIM and TAKE of the host (PROTOCOL.md): checked and answered. share.h says what they do. */
#include <errno.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "channel/ledger.h"
#include "connection/socket_kind.h"
#include "processes/move.h"
#include "processes/parked.h"
#include "processes/share.h"

/* A connection that other processes may ask for. */
static bool can_be_named(const struct connection *c)
{
	return c->channel->link.features & XTS_FEATURE_TAKE && !c->announced && !c->connect_reply &&
	       (c->state == CONNECTION_ESTABLISHED || c->state == CONNECTION_FAILED);
}

enum command_result command_share(struct channel *ch, const struct xts_head *head, const struct xts_share *m,
				  struct batch_entry *e)
{
	struct connection *l;
	int error = 0;

	(void)e;
	if (head->id) {
		l = command_target(ch, head->id, m->xts_socket, 0, &error);
		if (l && can_be_named(l))
			error = held_name(l, m->key, m->keep_ms);
		else if (l)
			error = kind_of(l)->can_be_shared(l) ? share_start(l, m->key, m->keep_ms) : EINVAL;
		if (l && !error)
			kind_of(l)->named(l, !m->token);
	} else if (ch->worker->draining) {
		l = NULL;
		error = command_refuse(ch, XTS_REFUSED_STOPPING);
	} else {
		l = share_join(ch, m->key, &error);
		if (l)
			l->xts_socket = m->xts_socket;
		if (l && kind_of(l)->streams)
			share_tell_joined(l);
	}
	command_reply_local(ch, XTS_REPLY_SHARE_ACK, m->xts_socket, m->token, l, error);
	return COMMAND_REPLIES;
}

enum command_result command_park(struct channel *ch, const struct xts_head *head, const struct xts_park *m,
				 struct batch_entry *e)
{
	struct xts_park_ack ack;
	struct connection *c;
	int error = EBADF;

	(void)e;
	c = head->id ? command_target(ch, head->id, m->xts_socket, 0, &error) : NULL;
	if (c)
		error = park_start(c, m->key, m->keep_ms);
	if (error == ENOBUFS)
		(void)command_refuse(ch, XTS_REFUSED_PARKED);
	ack.token = m->token;
	xts_park_ack_encode(command_reply(ch, XTS_REPLY_PARK_ACK, XTS_PARK_ACK_BYTES, m->xts_socket, error), &ack);
	return COMMAND_REPLIES;
}

static int unknown(const struct channel *ch)
{
	int error;

	registry_lock();
	error = registry_unknown(ch->tenant, ch->worker->now_ns);
	registry_unlock();
	return error;
}

static enum command_result claim_answer(struct channel *ch, const struct xts_claim *m, const struct claim_counts *counts)
{
	struct xts_claim_ack ack = { 0 };
	struct parked_facts facts = { 0 };
	struct connection *c;
	int error = 0;

	c = park_claim(ch, m->key, counts, &facts, &error);
	if (error == ENOENT && m->token && !counts) /* a program's, which asks again: not one that its host had moved */
		error = unknown(ch);
	ack.token = m->token;
	if (c) {
		c->xts_socket = m->xts_socket;
		c->held = m->post_credits;
		/* as if they had been sent over this channel: CLOSE will say how many of them were read */
		c->tcp.received_bytes = m->unread;
		/* not from the beginning of its life */
		ledger_count_as(c, facts.counted && !counts ? &facts.counts : NULL);
		ack.proxy_id = c->proxy_id;
		ack.post_credits = c->grant.outstanding;
		ack.local = facts.local;
		ack.peer = facts.peer;
		if (!facts.known) {
			socket_local(c->tcp.fd, &ack.local);
			socket_peer(c->tcp.fd, &ack.peer);
		}
	}
	xts_claim_ack_encode(command_reply(ch, XTS_REPLY_CLAIM_ACK, XTS_CLAIM_ACK_BYTES, m->xts_socket, error), &ack);
	return COMMAND_REPLIES;
}

enum command_result command_claim(struct channel *ch, const struct xts_head *head, const struct xts_claim *m,
				  struct batch_entry *e)
{
	(void)head;
	(void)e;
	return claim_answer(ch, m, NULL);
}

/* After the process before this one has died: did anything get lost between it and its host? */
enum command_result command_resume(struct channel *ch, const struct xts_head *head, const struct xts_resume *m,
				   struct batch_entry *e)
{
	const struct xts_claim claim = {
		.xts_socket = m->xts_socket,
		.token = m->token,
		.key = m->key,
		.post_credits = m->post_credits,
		.unread = m->unread,
	};
	const struct claim_counts counts = {
		.received_bytes = m->received_bytes,
		.sent_bytes = m->sent_bytes,
		.fin_sent = m->fin_sent != 0,
	};

	(void)head;
	(void)e;
	if (m->key)
		return claim_answer(ch, &claim, &counts);
	move_unclaimed_end(ch, true);
	return COMMAND_DONE;
}

enum command_result command_take(struct channel *ch, const struct xts_head *head, const struct xts_take *m,
				 struct batch_entry *e)
{
	struct xts_take_ack ack = { .token = m->token };
	struct taken_over of = { 0 };
	struct connection *c;
	int error = 0;

	(void)head;
	(void)e;
	c = held_take(ch, m->key, m->purpose, &of, &error);
	if (c) {
		c->xts_socket = m->xts_socket;
		c->held = m->post_credits;
		ledger_count(c); /* not from the beginning of its life */
		ack.proxy_id = c->proxy_id;
		ack.post_credits = c->grant.outstanding;
		ack.died = of.died;
		ack.delivered_bytes = of.delivered_bytes;
		ack.accepted_bytes = of.accepted_bytes;
		socket_local(c->tcp.fd, &ack.local);
		socket_peer(c->tcp.fd, &ack.peer);
	}
	xts_take_ack_encode(command_reply(ch, XTS_REPLY_TAKE_ACK, XTS_TAKE_ACK_BYTES, m->xts_socket, error), &ack);
	return COMMAND_REPLIES;
}

enum command_result command_return(struct channel *ch, const struct xts_head *head, const struct xts_return *m,
				   struct batch_entry *e)
{
	e->skip = XTS_RETURN_BYTES;
	e->bytes = m->length;
	if (!parked_return(ch, m, head->flags & XTS_FLAG_MORE, e))
		ch->worker->stats.bad_identifiers++;
	return COMMAND_DONE;
}
