/*
 * Catching up, and messages that come gathered in a frame.
 *
 * Theory of operation
 *
 * A program asks what is ready in two ways. A call that waits ends with the first thing that comes, and the next call
 * finds the rest. A call that does not wait (a timeout of 0, a non-blocking recv) must know. But in the queue is only
 * what the frame window allowed: if the program made no call for a while, 64 of 10,000 readable connections, say.
 *
 * This side can tell when that is possible. While the queue was empty, the proxy could send as many frames as it had
 * credits; if at least so many have come when the queue is empty again, it may have stopped for lack of credits, and
 * the stack is *behind*. Then the next call that does not wait, and would say that something is not there, first asks
 * the proxy (CATCH_UP). The proxy sends something of each socket that has something, many in a frame (GATHERED), and
 * then the answer (CAUGHT_UP; dpu_proxy/native/turns/gather.c). So in the common case no message is added, and what a
 * call says is true of the connections.
 *
 * The same goes for a listener or a datagram socket that several processes have. A process that is busy elsewhere gives
 * back what it was sent, and is sent nothing until it shows interest again (listener_offers.c, shared_datagram.c). If
 * it does so by a call that does not wait, it would find nothing, and would have given back what comes then before its
 * next call. So it asks, after the post credits by which it shows interest.
 *
 * A stack asks once in a millisecond at most. So what is ready for longer than that is known, and a program that calls
 * all the time under load, and is therefore behind all the time, pays for one exchange in a millisecond.
 *
 * The wait for the answer is a wait for the device, which takes as long as its worker needs to look at this queue, and
 * to send. It is bounded by silence, since ten thousand connections take a while, and in all. If the proxy is stopped,
 * one call takes SILENCE_NS: as long as a request is not answered, nobody waits for it again.
 *
 * Peers are hostile: gathered messages are copied before they are looked at, and each is handled as if it had come in
 * a frame of its own. None is a gathering itself. The frame is bounded as any other, and takes a frame credit.
 */
#include "core/catch_up.h"

#include <stdlib.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/received_data.h"
#include "core/stack.h"
#include "core/wait.h"

#define LENGTH_BYTES 2u
#define AGAIN_NS (1 * NS_PER_MS)    /* an answer holds for so long */
#define SILENCE_NS (50 * NS_PER_MS) /* to wait while nothing comes at all */
#define MOST_NS (200 * NS_PER_MS)   /* to wait in all */

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* Takes all frames that are in the queue. True: there were some. */
static bool empty_queue(struct stack *st)
{
	uint64_t before = st->channel->link.stats.received_frames;
	struct channel *c = st->channel;

	for (unsigned i = 0; st->channel == c && !c->catch_up.emptied && i < XTS_FRAME_WINDOW_MAX; i++)
		channel_pump(st);
	return st->channel != c || c->link.stats.received_frames != before;
}

/* Waits for the answer to the request that is open. */
static void wait_for_answer(struct stack *st)
{
	struct channel *c = st->channel;
	uint64_t last_ns = c->catch_up.asked_ns + MOST_NS, until_ns = c->catch_up.asked_ns + SILENCE_NS;
	int r = 0;

	while (!r && st->channel == c && xts_link_catching_up(&c->link)) {
		r = wait_for(st, &st->catch_up_waiters, until_ns < last_ns ? until_ns : last_ns, false);
		if (r != -ETIMEDOUT || st->channel != c || now_ns() >= last_ns)
			continue;
		if (c->link.heard_ns + SILENCE_NS > until_ns) {
			until_ns = c->link.heard_ns + SILENCE_NS;
			r = 0;
		}
	}
}

static bool has_to_ask(const struct channel *c)
{
	return c->catch_up.behind || c->catch_up.interest;
}

bool channel_catch_up(struct stack *st)
{
	struct channel *c = st->channel;
	bool any;
	uint64_t now;

	if (!c || (c->catch_up.emptied && !has_to_ask(c)))
		return false;
	any = empty_queue(st);
	if (st->channel != c || !has_to_ask(c))
		return any;
	now = now_ns();
	if (!xts_link_catching_up(&c->link)) {
		if (now - c->catch_up.asked_ns < AGAIN_NS || !xts_link_catch_up(&c->link))
			return any;
		c->catch_up.asked_ns = now;
		c->catch_up.behind = c->catch_up.interest = false;
		channel_flush(st, true);
		if (st->channel != c)
			return true;
	} else if (now - c->catch_up.asked_ns >= SILENCE_NS) {
		return any; /* it has not answered another call */
	}
	wait_for_answer(st);
	return true;
}

void channel_shows_interest(struct stack *st)
{
	if (st->channel)
		st->channel->catch_up.interest = true;
}

/* --- gathered messages -------------------------------------------------------------------------------------------- */

/* Handles a message; false: the channel has ended. */
static bool handle(struct stack *st, const uint8_t *message, uint32_t bytes)
{
	struct channel *c = st->channel;
	struct xts_rx_frame inner = { .bytes = bytes,
				      .segments = 1,
				      .segment[0] = { .iov_base = (void *)message, .iov_len = bytes } };
	struct xts_head head;
	int taken = -EPROTO;

	if (!xts_head_decode(&head, message, bytes) && head.type != XTS_REPLY_GATHERED) {
		c->inner = &inner;
		taken = message_handle(st, &head, message, bytes, &inner);
		c->inner = NULL;
	}
	if (taken < 0)
		channel_violation(st, "a malformed message among gathered ones");
	return st->channel == c;
}

bool message_gathered(struct stack *st, const struct xts_head *head, const struct xts_gathered *m,
		      struct xts_rx_frame *frame)
{
	struct channel *c = st->channel;
	uint32_t at = 0;

	(void)head;
	if (!(c->link.features & XTS_FEATURE_CATCH_UP)) {
		channel_violation(st, "GATHERED without its feature");
		return true;
	}
	if (!c->gathered)
		c->gathered = malloc(c->link.largest_message);
	if (!c->gathered) {
		channel_fail(st, ENOMEM);
		return true;
	}
	frame_copy(c->gathered, frame, XTS_GATHERED_BYTES, m->length);
	while (at < m->length) {
		uint32_t bytes = m->length - at >= LENGTH_BYTES ? xts_get16(c->gathered + at) : UINT32_MAX;

		at += LENGTH_BYTES;
		if (bytes > m->length || at + bytes > m->length) {
			channel_violation(st, "a message longer than what it is gathered in");
			return true;
		}
		if (!handle(st, c->gathered + at, bytes))
			return true;
		at += bytes;
	}
	return false;
}
