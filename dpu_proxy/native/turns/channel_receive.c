/* A channel's turn to receive: takes a batch of frames, carries them out, and writes what was gathered for connections.
 * channel.h has the theory of operation. */
#include "channel/tickets.h"
#include "common/probe.h"
#include "processes/ended_epochs.h"
#include "pushed/pushed.h"
#include "turns/replay.h"

#include <errno.h>
#include <string.h>

#define BATCH_BYTES (256u * 1024) /* payload gathered before a write: TCP starts sending while the host still copies */

_Static_assert(CHANNEL_BATCH < BATCH_NONE, "connection.gathered_first");

void channel_flush(struct channel *ch)
{
	channel_flush_dirty(ch);
	for (uint32_t i = 0; i < ch->batch_used; i++) {
		xts_queue_recycle(ch->queue, &ch->batch[i].frame);
		xts_link_recycled(&ch->link);
	}
	ch->batch_used = 0;
	ch->batch_bytes = 0;
}

/* Handles a message in the batch's next entry. True: the entry is kept until the flush. */
static bool deliver(struct channel *ch, const struct xts_head *head, struct batch_entry *e)
{
	struct iovec *first = &e->frame.segment[0];
	uint64_t epoch = ch->link.epoch;
	enum command_result result;

	if (head->type != XTS_CMD_SEND && head->type != XTS_CMD_SEND_PDU && head->type != XTS_CMD_SEND_DATAGRAMS)
		channel_flush(ch); /* data sent before a call takes effect first; e stays valid */
	ch->refusal = XTS_REFUSED_NONE;
	tickets_call_begins(ch);
	result = command_dispatch(ch, relay_features(ch), head, first->iov_base, e->frame.bytes, e);
	tickets_call_ends(ch, head->type, result);
	if (result == COMMAND_MALFORMED)
		channel_violation(ch, xts_type_name(head->type), head->id);
	/* wipes keys that may have been pushed */
	if ((head->type == XTS_CMD_IOCTL || head->type == XTS_CMD_CONNECT) && result != COMMAND_UNFINISHED)
		explicit_bzero(first->iov_base, first->iov_len);
	if (result == COMMAND_KEPT)
		ch->batch_bytes += e->bytes;
	else if (result != COMMAND_REPLIES && result != COMMAND_UNFINISHED && ch->link.epoch == epoch)
		xts_link_recycled(&ch->link);
	return result == COMMAND_KEPT;
}

/* Carries out a message in the batch's next entry. True: the entry is kept until the flush. */
static bool carry_out(struct channel *ch, const struct xts_head *head, struct batch_entry *e)
{
	bool kept = deliver(ch, head, e);

	channel_check(ch, head->id);
	return kept;
}

/* The batch's next entry has been handled. */
static void settle(struct channel *ch, const struct batch_entry *e, bool kept)
{
	if (kept)
		ch->batch_used++;
	else if (!ch->continuation.has_frame)
		xts_queue_recycle(ch->queue, &e->frame);
	if (ch->link.state != XTS_LINK_UP)
		channel_link_closed(ch);
}

/* Takes the next frame: -EPIPE, or one of these. */
enum taken { TAKEN_NONE, TAKEN_CHEAP, TAKEN_CALL };

static int receive_one(struct channel *ch)
{
	struct batch_entry *e = &ch->batch[ch->batch_used];
	struct xts_head head;
	int got = xts_queue_receive(ch->queue, &e->frame);
	bool kept = false;

	if (got <= 0)
		return got;
	got = TAKEN_CHEAP;
	switch (xts_link_receive(&ch->link, e->frame.segment[0].iov_base, e->frame.segment[0].iov_len, e->frame.bytes,
				 ch->worker->now_ns, &head)) {
	case XTS_LINK_DELIVER:
		ledger_received(ch);
		if (head.type == XTS_RELAY_CARRIED && relay_take(ch, &head, &e->frame))
			return TAKEN_CHEAP; /* a relayed frame: the channel that it is carried to recycles it */
		kept = carry_out(ch, &head, e);
		if (!kept)
			got = TAKEN_CALL;
		break;
	case XTS_LINK_REPLAYED:
		replay_take(ch, &head, &e->frame, ch->link.replay_follows);
		break;
	case XTS_LINK_SAID:
		over_said(ch, &e->frame);
		got = TAKEN_CALL;
		break;
	case XTS_LINK_OPENED:
		channel_link_opened(ch);
		got = TAKEN_CALL;
		break;
	default:
		break;
	}
	settle(ch, e, kept);
	return got;
}

/* Takes as many frames as a turn has time for, judging by what they have cost lately; *last: the last result of
 * receive_one(). */
static uint32_t receive_batch(struct channel *ch, int *last)
{
	struct worker_state *w = ch->worker;
	uint64_t left_ns = w->turn_end_ns - w->now_ns;
	uint32_t taken = 0, max = schedule_fits(ch->account.frame_ns, list_empty(&ch->ready) ? left_ns : left_ns / 2,
						CHANNEL_BATCH);

	while (taken < max && !ch->continuation.resume && ch->batch_used < CHANNEL_BATCH &&
	       ch->batch_bytes < BATCH_BYTES) {
		*last = receive_one(ch);
		if (*last <= 0)
			break;
		taken++;
		if (*last == TAKEN_CALL && worker_turn_is_over(w))
			break;
	}
	return taken;
}

/* The channel's process is gone. What it has sent before is still received, in a few more rounds at most, in case it
 * lives and goes on sending. */
static void last_words(struct channel *ch, bool received)
{
	if (!ch->last_rounds || ch->dying || (received && --ch->last_rounds))
		return;
	ch->dying = true;
	ch->worker->stats.goodbyes++;
	channel_log(ch, "the process is gone");
}

/* Carries out the message that has waited, from the beginning. */
static bool carry_out_again(struct channel *ch)
{
	struct batch_entry *e = &ch->batch[ch->batch_used];
	struct xts_head head = ch->continuation.head;

	e->frame = ch->continuation.frame;
	ch->continuation.has_frame = false; /* it is the batch's again */
	continuation_done(ch);
	ch->again = true;
	settle(ch, e, carry_out(ch, &head, e));
	ch->again = false;
	return true;
}

/* A decorator may have received nothing that is a frame, though more is there. */
static bool has_more(struct xts_queue *queue)
{
	bool more = xts_queue_arm(queue);

	xts_queue_disarm(queue);
	return more;
}

bool channel_receive(struct channel *ch)
{
	uint64_t begun_ns = ch->worker->now_ns;
	int last = TAKEN_CHEAP;
	uint32_t taken;

	if (ch->continuation.resume) {
		bool any = ch->continuation.again ? carry_out_again(ch) : ch->continuation.resume(ch);

		if (ch->link.state != XTS_LINK_UP)
			channel_link_closed(ch);
		return any;
	}
	taken = receive_batch(ch, &last);
	if (taken)
		XTS_PROBE2(worker_frames, ch->queue_id, taken);
	if (last < 0 && !ch->dying) {
		/* A process that exits closes its end of the queue and its attach connection in either order, so it has
		 * most likely exited. If it lives and broke the queue, it loses nothing more by this. */
		channel_log(ch, "the host's end of the queue is gone");
		xts_link_fail(&ch->link, ESHUTDOWN);
		channel_link_closed(ch);
		ch->dying = ch->life_fd >= 0;
	}
	if (last == TAKEN_NONE && xts_link_replays(&ch->link) && !has_more(ch->queue))
		replay_ends(ch);
	ch->dying |= relay_has_ended(ch);
	if (ch->batch_used || ch->dirty_count)
		channel_flush(ch);
	if (taken) {
		(void)worker_turn_is_over(ch->worker); /* reads the clock */
		schedule_learn(&ch->account.frame_ns, taken, ch->worker->now_ns - begun_ns);
	}
	channel_clock_set(ch);
	if (ch->move)
		channel_left_look(ch);
	last_words(ch, taken);
	return taken || ch->dying;
}
