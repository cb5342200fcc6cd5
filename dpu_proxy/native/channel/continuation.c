/* A command that takes several turns; see continuation.h. */
#include "channel/channel.h"

#include <assert.h>
#include <string.h>

void continuation_begin(struct channel *ch, const struct continuation *c)
{
	assert(!ch->continuation.resume);
	ch->continuation = *c;
}

void continuation_keep_frame(struct continuation *c, const struct xts_head *head, const struct batch_entry *e)
{
	c->head = *head;
	c->frame = e->frame;
	c->has_frame = true;
}

/* The credit of a frame that is kept is due when it is recycled, unless its epoch has ended. */
static void forget(struct channel *ch, bool epoch_lives)
{
	if (ch->continuation.has_frame) {
		if (epoch_lives)
			xts_link_recycled(&ch->link);
		xts_queue_recycle(ch->queue, &ch->continuation.frame);
	}
	memset(&ch->continuation, 0, sizeof ch->continuation);
}

void continuation_done(struct channel *ch)
{
	forget(ch, true);
}

void continuation_cancel(struct channel *ch)
{
	if (ch->continuation.drop)
		ch->continuation.drop(ch);
	forget(ch, false);
}

void continuation_connection_gone(struct channel *ch, const struct connection *c)
{
	if (ch->continuation.connection != c)
		return;
	if (ch->continuation.drop)
		ch->continuation.drop(ch);
	forget(ch, true);
}
