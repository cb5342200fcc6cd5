/* A channel's turn to send: replies, then connections that are ready, then control frames; and when the host is woken.
 * channel.h has the theory of operation. */
#include "channel/channel.h"
#include "relay/mux.h"
#include "common/probe.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define MESSAGES_PER_TURN 4u /* messages of one connection before the next one has its turn */
#define MESSAGES_PER_ROUND 64u

/* Have the quiet frames waited long enough for others to go with, or does somebody need them? The host needs the frame
 * credits that they return; we need ours when we run out. */
static bool quiet_no_more(const struct channel *ch)
{
	uint8_t acks = (uint8_t)(ch->link.acked_to_peer - ch->rung_ack);

	if (!ch->quiet_frames)
		return false;
	return ch->quiet_frames >= CHANNEL_QUIET_FRAMES || acks >= ch->link.frame_window / 4 || !channel_credits(ch) ||
	       ch->slot_missing || ch->worker->now_ns - ch->quiet_ns >= CHANNEL_QUIET_MS * UINT64_C(1000000);
}

static bool send_replies(struct channel *ch)
{
	struct xts_tx_slot slot;
	bool any = false;

	while (ch->reply_count && channel_slot(ch, &slot)) {
		const struct reply *r = &ch->replies[ch->reply_first];

		memcpy(slot.data + XTS_ETH_BYTES, r->frame + XTS_ETH_BYTES, r->bytes - XTS_ETH_BYTES);
		xts_link_recycled(&ch->link);
		ch->reply_first = (ch->reply_first + 1) % XTS_FRAME_WINDOW_MAX;
		ch->reply_count--;
		channel_submit(ch, &slot, r->bytes);
		any = true;
	}
	return any;
}

static bool send_control(struct channel *ch)
{
	struct xts_tx_slot slot;
	bool any = false;

	while (xts_link_control_due(&ch->link)) {
		uint32_t bytes;

		if (xts_queue_acquire(ch->queue, &slot)) {
			ch->slot_missing = true;
			break;
		}
		bytes = (uint32_t)xts_link_control(&ch->link, slot.data, ch->worker->now_ns);
		if (!bytes) {
			xts_queue_abandon(ch->queue, &slot);
			break;
		}
		xts_queue_submit(ch->queue, &slot, bytes);
		ch->unkicked_bytes += bytes;
		any = true;
	}
	return any;
}

/* Gives every ready connection its turn, while there are frame credits. */
static bool send_ready(struct channel *ch)
{
	uint64_t before = ch->link.stats.sent_frames;
	uint32_t turns = 0;

	if (channel_credits(ch))
		waiting_frames_missing(ch, false);
	while (!list_empty(&ch->ready) && channel_credits(ch) && turns++ < MESSAGES_PER_ROUND) {
		struct connection *c = list_entry(list_pop(&ch->ready), struct connection, ready);

		if (connection_send(c, MESSAGES_PER_TURN))
			connection_wake(c);
		connection_check(c);
		if (ch->slot_missing || ch->link.stats.sent_frames - before >= MESSAGES_PER_ROUND)
			break;
		if (!list_empty(&ch->ready) && worker_turn_is_over(ch->worker)) {
			ch->cut_short = true;
			break;
		}
	}
	if (ch->slot_missing || !channel_credits(ch))
		waiting_frames_missing(ch, !list_empty(&ch->ready));
	return ch->cut_short || ch->link.stats.sent_frames != before;
}

static void send_fins_of(struct list *connections)
{
	for (struct list *node = connections->next; node != connections; node = node->next) {
		const struct connection *c = list_entry(node, struct connection, ready);

		if (c->state == CONNECTION_CLOSING && c->close_reply && c->tcp.fin_done && c->tcp.fd >= 0)
			(void)shutdown(c->tcp.fd, SHUT_WR);
	}
}

/* A host may close many sockets and then sleep, with no frame free for the answers. Peers do not wait for that. */
static void send_late_fins(struct channel *ch)
{
	if (!ch->late_fins || channel_credits(ch))
		return;
	ch->late_fins = false;
	send_fins_of(&ch->ready);
	send_fins_of(&ch->gather.asked);
}

/* The turn was over before everything was sent: the rest follows within a round, and a kick for each turn would cost
 * more than the turns do. */
static bool more_comes_soon(const struct channel *ch)
{
	return ch->cut_short && ch->worker->now_ns - ch->unkicked_ns < SCHEDULE_ROUND_NS;
}

bool channel_send(struct channel *ch)
{
	bool any = false;

	ch->slot_missing = ch->cut_short = false;
	if (ch->link.state == XTS_LINK_UP && !ch->ending) {
		if (!ch->link.traffic)
			any |= send_control(ch); /* HELLO_ACK comes before anything else */
		any |= send_replies(ch);
		any |= names_send(ch);
		if (!ch->reply_count && gather_turn(ch)) {
			(void)send_control(ch); /* the answer comes before what the request did not ask for */
			any = true;
		}
		if (!ch->reply_count)
			any |= send_ready(ch); /* a reply comes before what follows from it */
		send_late_fins(ch);
	}
	any |= send_control(ch);
	if ((ch->unkicked_bytes && !more_comes_soon(ch)) || ch->kick_again || quiet_no_more(ch) ||
	    (ch->relayed.mux && xts_mux_kick_due(ch->relayed.mux)))
		channel_kick(ch);
	return any;
}
