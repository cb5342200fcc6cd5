/*
 * Catching up: readiness is a property of connections, not of the queue.
 *
 * Theory of operation
 *
 * A channel stops sending when the host has as many frames as the window allows, and goes on when the host has recycled
 * some. A host that looks at its sockets once in a while, and never waits, finds in its queue what fitted there; of the
 * other connections it would not know that they are readable. So it asks (CATCH_UP), which it does when as many frames
 * have come as it allows. The request takes no frame credit, and brings the acknowledgement of all that the host has
 * recycled.
 *
 * The answer is data, and no list of what is ready. So a host has no second kind of readiness to keep, which would have
 * to follow each connection through reading, protocols, failures and hand-over: what it is told, it has. Each
 * connection that was on the ready list when the request came has a turn, and is served by the code that always serves
 * it. But its messages are parts of a frame (GATHERED), which takes one frame credit; and it may send only a share
 * of what the free frames hold, at least SHARE_LEAST bytes. So ten thousand connections with a few bytes each need a
 * window of frames or less, and one exchange. When all have had their turn, CAUGHT_UP says so. What they have beyond
 * their share follows by itself. A listener announces all connections that wait, as its post credits allow.
 *
 * If the frames do not suffice, the rest goes on when the host has recycled some, and where turns of the channel are
 * over before (schedule.h), in its next ones. A request that comes meanwhile takes the place of the first and begins
 * with what is ready by then, so requests do not add up.
 *
 * Datagrams are not divided, so a datagram socket gets frames of its own.
 */
#include "channel/gather.h"

#include <string.h>

#include "channel/channel.h"
#include "connection/socket_kind.h"

#define SHARE_LEAST 4096u
#define COUNTED_MAX 8192u /* with more connections each has the least share in any case */

/* What each connection may send, so that all fit into the frames that the host has room for; half of these, since other
 * frames and the rest of large messages need some too. */
static uint32_t share_of(const struct channel *ch)
{
	uint32_t frame_bytes = ch->link.largest_message - XTS_GATHERED_BYTES, count = 1;
	uint64_t share = (uint64_t)frame_bytes * channel_credits(ch) / 2;

	for (struct list *node = ch->gather.asked.next; node != &ch->gather.asked && count < COUNTED_MAX;
	     node = node->next)
		count++;
	share /= count;
	if (share < SHARE_LEAST)
		share = SHARE_LEAST;
	return share < frame_bytes - XTS_GATHERED_LENGTH_BYTES ? (uint32_t)share :
								 frame_bytes - XTS_GATHERED_LENGTH_BYTES;
}

static void begin(struct channel *ch)
{
	while (!list_empty(&ch->ready))
		list_append(&ch->gather.asked, list_pop(&ch->ready));
	ch->gather.share = share_of(ch);
}

static void serve(struct channel *ch, struct connection *c)
{
	const struct socket_kind *kind = kind_of(c);
	bool more;

	if (!kind->shares_frames) {
		gather_submit(ch);
		ch->gather.on = false;
	}
	more = connection_send(c, kind->messages_a_turn);
	if (more && kind->asks_again && list_empty(&c->ready))
		list_append(&ch->gather.asked, &c->ready);
	else if (more)
		connection_wake(c);
	ch->gather.on = true;
	connection_check(c);
}

static bool may_serve(struct channel *ch)
{
	const struct connection *c = list_entry(ch->gather.asked.next, struct connection, ready);

	return kind_of(c)->shares_frames ? gather_has_room(ch) : channel_credits(ch) > 0;
}

bool gather_turn(struct channel *ch)
{
	struct gather *g = &ch->gather;
	uint64_t before = ch->link.stats.sent_frames;

	if (xts_link_catch_up_begins(&ch->link))
		begin(ch);
	if (list_empty(&g->asked) && !xts_link_catching_up(&ch->link))
		return false;
	g->on = true;
	while (!list_empty(&g->asked) && may_serve(ch)) {
		serve(ch, list_entry(list_pop(&g->asked), struct connection, ready));
		if (ch->slot_missing)
			break;
		if (!list_empty(&g->asked) && worker_turn_is_over(ch->worker)) {
			ch->cut_short = true;
			break;
		}
	}
	gather_submit(ch);
	g->on = false;
	if (list_empty(&g->asked))
		xts_link_caught_up(&ch->link);
	return ch->cut_short || ch->link.stats.sent_frames != before;
}
