/* All connections of a worker's channels, one after the other, over as many rounds as it takes. */
#include "channel/channel.h"
#include "connection/connection_walk.h"

void walk_goes_on(struct walk *at, struct worker_state *w)
{
	struct list *node = w->channels.next;

	/* Channels come at the end of the list, with ever larger numbers. */
	while (node != &w->channels && list_entry(node, struct channel, member)->number < at->number)
		node = node->next;
	at->node = node;
}

struct channel *walk_channel(struct walk *at, struct worker_state *w)
{
	struct channel *ch;

	if (at->node == &w->channels)
		return NULL;
	ch = list_entry(at->node, struct channel, member);
	if (at->number != ch->number) {
		at->number = ch->number;
		at->index = 0;
	}
	return ch;
}

void walk_leaves_channel(struct walk *at)
{
	at->node = at->node->next;
	at->number++;
	at->index = 0;
}

struct connection *walk_connection(struct walk *at, struct worker_state *w)
{
	struct channel *ch;

	while ((ch = walk_channel(at, w))) {
		while (at->index < ch->id_used) {
			struct connection *c = ch->ids[at->index + 1].connection;

			if (c)
				return c;
			at->index++;
		}
		walk_leaves_channel(at);
	}
	return NULL;
}
