/* A channel is left, for another process of the proxy. processes/move.h has the theory of operation. */
#include <errno.h>

#include "channel/channel.h"
#include "connection/connection_inside.h"
#include "connection/socket_kind.h"
#include "channel/ledger.h"
#include "processes/move.h"
#include "processes/share.h"

#define QUIET_NS (XTS_MOVE_QUIET_MS * UINT64_C(1000000))

static bool waits(struct channel *ch)
{
	(void)ch;
	return false;
}

void channel_leave(struct channel *ch)
{
	channel_flush(ch);
	xts_packets_end(&ch->packets);
	if (ch->epoch_live)
		xts_link_goodbye(&ch->link, ERESTART); /* else its host waits for the answer to a HELLO, or sleeps */
	ch->unkicked_bytes++;                          /* for what is due now, and was submitted before */
	continuation_cancel(ch);
	ch->reply_count = 0; /* there are some only if the time was over */
	if (ch->epoch_live) {
		ch->worker->stats.channels_up--;
		ch->move->epoch = ch->link.epoch;
	}
	ch->epoch_live = false;
	ledger_channel(ch);
	ch->ending = ch->move->left = true;
	continuation_begin(ch, &(struct continuation){ .resume = waits, .is_idle = true });
}

void channel_left_look(struct channel *ch)
{
	if (ch->relayed.number || ch->relayed.mux)
		return; /* all behind a relay leave together (loop/move_trunk.c) */
	if (ch->move->acked && !ch->move->left && !ch->continuation.resume && !ch->reply_count)
		channel_leave(ch);
}

enum command_result command_move_ack(struct channel *ch, const struct xts_head *head, const struct xts_move_ack *m,
				     struct batch_entry *e)
{
	(void)head;
	(void)e;
	if (!ch->move || ch->move->ticket != m->ticket)
		return COMMAND_MALFORMED;
	ch->move->acked = true;
	return COMMAND_DONE;
}

/* Has the host sent nothing since it was asked, and waits for nothing? Then it may be asleep, and nothing is under way. */
bool channel_is_quiet(struct channel *ch)
{
	const struct move_out *m = ch->move;

	if (ch->worker->now_ns - m->asked_ns < QUIET_NS || ch->link.stats.received_frames != m->received ||
	    ch->reply_count || ch->continuation.resume || !list_empty(&ch->names.lookups) || parked_is_returned(ch))
		return false;
	for (struct list *node = ch->connections.next; node != &ch->connections; node = node->next) {
		struct connection *c = list_entry(node, struct connection, member);

		if (c->connect_reply || c->close_reply || c->state == CONNECTION_CONNECTING ||
		    kind_of(c)->hand_over(c, NULL) == EAGAIN)
			return false;
	}
	return true;
}
