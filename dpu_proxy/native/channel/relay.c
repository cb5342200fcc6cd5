/* Channels behind a relay; see relay.h. */
#include "channel/relay.h"

#include <errno.h>
#include <string.h>

#include "channel/channel.h"
#include "channel/ledger.h"
#include "relay/mux.h"

int relay_open(struct channel *trunk)
{
	trunk->relayed.full_told = false;
	return xts_mux_open(&trunk->relayed.mux, trunk->queue, &trunk->link);
}

struct channel *relay_next(const struct channel *trunk, const struct channel *after)
{
	struct list *channels = &trunk->worker->channels, *node = after ? after->member.next : channels->next;

	for (; node != channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		if (ch->relayed.trunk == trunk && !ch->dying)
			return ch;
	}
	return NULL;
}

void relay_close(struct channel *trunk)
{
	struct list *channels = &trunk->worker->channels;

	if (!trunk->relayed.mux)
		return;
	/* Ends their queues and links (-EPIPE). The connections of the processes behind the relay are reset, as they
	 * cannot be used any more. */
	for (struct list *node = channels->next; node != channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		if (ch->relayed.trunk == trunk)
			xts_link_fail(&ch->link, ENETRESET);
	}
	xts_mux_close(trunk->relayed.mux);
	trunk->relayed.mux = NULL;
}

/* Is it a message that begins a link? */
static bool begins(const struct xts_rx_frame *frame)
{
	uint8_t type = xts_mux_type(frame);

	return type == XTS_LINK_HELLO || type == XTS_LINK_TOKEN;
}

int relay_add(struct channel **out, struct channel *trunk, uint32_t number, struct xts_tenant *tenant)
{
	struct worker_state *w = trunk->worker;
	struct xts_queue *queue;
	struct channel *ch;
	int error = xts_mux_add(&queue, trunk->relayed.mux, number, XTS_RELAYED_WINDOW);

	if (error)
		return error;
	error = channel_open(&ch, w, queue, -1, trunk->queue_id, tenant);
	if (error) {
		xts_queue_close(queue);
		return error;
	}
	if (trunk->link.features & XTS_FEATURE_MOVE_RELAYED)
		ch->link.config.features |= MOVE_FEATURES;
	if (trunk->link.features & XTS_FEATURE_RESUME_RELAYED)
		ch->relayed.page = ledger_take_relayed(trunk->queue_id, number);
	if (ch->relayed.page)
		ch->link.config.features |= XTS_FEATURE_RESUME;
	ch->relayed.trunk = trunk;
	ch->relayed.number = number;
	trunk->relayed.count++;
	w->stats.relayed++;
	/* Channels behind the relay send before the trunk does, so that the trunk's kick at the end of a round is for
	 * all of them. */
	list_remove(&ch->member);
	list_append(&trunk->member, &ch->member);
	*out = ch;
	return 0;
}

/* Answers a HELLO for which there is no room. If the answer cannot be sent now, the process will repeat its HELLO. */
static void refuse(struct channel *trunk, uint32_t number, const struct xts_rx_frame *frame, int error)
{
	const uint8_t *inner = (const uint8_t *)frame->segment[0].iov_base + XTS_CARRIED_BYTES;
	struct xts_hello_ack answer = { .version = XTS_WIRE_VERSION };
	uint8_t out[XTS_HELLO_ACK_BYTES] = { 0 }, refusal = 0;
	struct xts_hello hello;

	if (xts_mux_type(frame) != XTS_LINK_HELLO ||
	    xts_hello_decode(&hello, inner, frame->segment[0].iov_len - XTS_CARRIED_BYTES))
		return;
	answer.epoch = hello.epoch;
	memcpy(out, trunk->queue->peer_mac, 6);
	memcpy(out + 6, trunk->queue->local_mac, 6);
	xts_put16(out + 12, trunk->link.config.ethertype);
	if (error == -EUSERS && (hello.features & XTS_FEATURE_REFUSAL))
		refusal = XTS_REFUSED_RELAYED;
	xts_head_encode(out, XTS_LINK_HELLO_ACK, refusal, (uint16_t)-error, 0);
	xts_hello_ack_encode(out, &answer);
	(void)xts_mux_answer(trunk->relayed.mux, number, out, sizeof out);
}

/* A frame for a channel that does not exist: makes the channel. True: there is one now. */
static bool add_for(struct channel *trunk, uint32_t number, const struct xts_rx_frame *frame)
{
	uint32_t max = trunk->worker->config.relayed_max;
	struct channel *ch;
	int error;

	if (!begins(frame) || !number || number >= XTS_RELAY_SELF) {
		trunk->worker->stats.relayed_unknown++;
		return false;
	}
	error = trunk->relayed.count < max ? relay_add(&ch, trunk, number, trunk->tenant) : -EUSERS;
	if (!error)
		return true;
	trunk->worker->stats.relayed_refused++;
	if (!trunk->relayed.full_told)
		channel_log(trunk, "a channel behind its relay was refused: %s; it has %u of at most %u (relayed_max)",
			    strerror(-error), trunk->relayed.count, max);
	trunk->relayed.full_told = true;
	refuse(trunk, number, frame, error);
	return false;
}

bool relay_take(struct channel *trunk, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	struct xts_mux *mux = trunk->relayed.mux;
	enum xts_mux_verdict verdict;

	if (!mux)
		return false;
	verdict = xts_mux_take(mux, head, frame);
	if (verdict == XTS_MUX_UNKNOWN && add_for(trunk, head->id, frame))
		verdict = xts_mux_take(mux, head, frame);
	if (verdict == XTS_MUX_TAKEN)
		return true;
	if (verdict == XTS_MUX_DROPPED)
		trunk->worker->stats.relayed_dropped++;
	xts_queue_recycle(trunk->queue, frame);
	xts_link_recycled(&trunk->link);
	return true;
}

uint64_t relay_features(const struct channel *ch)
{
	return ch->link.features | (ch->link.features & XTS_FEATURE_MOVE_RELAYED ? XTS_FEATURE_MOVE : 0);
}

bool relay_has_ended(const struct channel *ch)
{
	if (!ch->relayed.number)
		return false;
	return !ch->relayed.trunk || !ch->relayed.trunk->relayed.mux ||
	       (ch->link.state == XTS_LINK_DOWN && !xts_link_control_due(&ch->link));
}

void relay_forget(struct channel *ch)
{
	struct list *channels = &ch->worker->channels;

	if (ch->relayed.trunk)
		ch->relayed.trunk->relayed.count--;
	if (ch->relayed.page)
		ledger_leave_relayed(ch->queue_id, ch->relayed.number);
	if (ch->relayed.number)
		ch->worker->stats.relayed--;
	for (struct list *node = channels->next; node != channels; node = node->next) {
		struct channel *other = list_entry(node, struct channel, member);

		if (other->relayed.trunk == ch)
			other->relayed.trunk = NULL;
	}
}
