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

#define SHARE_LEAST 4096u
#define LENGTH_BYTES 2u   /* before each message */
#define MESSAGES_A_TURN 2 /* data, and the end of the stream behind it */
#define ACCEPTS_A_TURN 64 /* connections that a listener announces before the next connection has its turn */
#define COUNTED_MAX 8192u /* with more connections each has the least share in any case */

void gather_init(struct gather *g)
{
	list_init(&g->asked);
}

static void submit_frame(struct channel *ch)
{
	struct gather *g = &ch->gather;
	struct xts_gathered m = { .length = g->bytes - XTS_GATHERED_BYTES };

	if (!g->open)
		return;
	g->open = false;
	if (!m.length) {
		xts_queue_abandon(ch->queue, &g->slot);
		return;
	}
	xts_head_encode(g->slot.data, XTS_REPLY_GATHERED, 0, 0, 0);
	xts_gathered_encode(g->slot.data, &m);
	g->on = false;
	channel_submit(ch, &g->slot, g->bytes);
	g->on = true;
}

/* Is there room for a message of the whole share? Takes another frame if the present one is too full. */
static bool has_room(struct channel *ch)
{
	struct gather *g = &ch->gather;
	uint32_t largest = ch->link.largest_message;

	if (g->open && g->slot.capacity - g->bytes >= LENGTH_BYTES + g->share)
		return true;
	submit_frame(ch);
	g->on = false;
	g->open = channel_slot(ch, &g->slot);
	g->on = true;
	if (g->slot.capacity > largest)
		g->slot.capacity = largest;
	g->bytes = XTS_GATHERED_BYTES;
	return g->open;
}

bool gather_room(struct channel *ch, struct xts_tx_slot *slot)
{
	struct gather *g = &ch->gather;

	if (!has_room(ch))
		return false;
	*slot = (struct xts_tx_slot){ .data = g->slot.data + g->bytes + LENGTH_BYTES, .capacity = g->share };
	memset(slot->data, 0, XTS_HEAD_BYTES);
	return true;
}

void gather_add(struct channel *ch, uint32_t bytes)
{
	struct gather *g = &ch->gather;

	xts_put16(g->slot.data + g->bytes, (uint16_t)bytes);
	g->bytes += LENGTH_BYTES + bytes;
}

/* What each connection may send, so that all fit into the frames that the host has room for; half of these, since other
 * frames and the rest of large messages need some too. */
static uint32_t share_of(const struct channel *ch)
{
	uint32_t frame_bytes = ch->link.largest_message - XTS_GATHERED_BYTES, count = 1;
	uint64_t share = (uint64_t)frame_bytes * xts_link_credits(&ch->link) / 2;

	for (struct list *node = ch->gather.asked.next; node != &ch->gather.asked && count < COUNTED_MAX;
	     node = node->next)
		count++;
	share /= count;
	if (share < SHARE_LEAST)
		share = SHARE_LEAST;
	return share < frame_bytes - LENGTH_BYTES ? (uint32_t)share : frame_bytes - LENGTH_BYTES;
}

static void begin(struct channel *ch)
{
	while (!list_empty(&ch->ready))
		list_append(&ch->gather.asked, list_pop(&ch->ready));
	ch->gather.share = share_of(ch);
}

static void serve(struct channel *ch, struct connection *c)
{
	uint32_t budget = c->state == CONNECTION_LISTENER ? ACCEPTS_A_TURN : MESSAGES_A_TURN;
	bool more;

	if (c->state == CONNECTION_DATAGRAM) {
		submit_frame(ch);
		ch->gather.on = false;
	}
	/* a listener goes on: its post credits bound how many may wait for accept() */
	more = connection_send(c, budget);
	if (more && c->state == CONNECTION_LISTENER && list_empty(&c->ready))
		list_append(&ch->gather.asked, &c->ready);
	else if (more)
		connection_wake(c);
	ch->gather.on = true;
	connection_check(c);
}

static bool may_serve(struct channel *ch)
{
	const struct connection *c = list_entry(ch->gather.asked.next, struct connection, ready);

	return c->state == CONNECTION_DATAGRAM ? xts_link_credits(&ch->link) > 0 : has_room(ch);
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
	submit_frame(ch);
	g->on = false;
	if (list_empty(&g->asked))
		xts_link_caught_up(&ch->link);
	return ch->cut_short || ch->link.stats.sent_frames != before;
}
