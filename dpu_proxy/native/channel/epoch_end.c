/*
 * The end of an epoch: the host is gone, has broken the link, or begins another epoch.
 *
 * Closing a connection takes about 10 us, and a host may have thousands. So they are closed some at a time, in the
 * turns of their channel (channel_end_some()), which is *ending* meanwhile. Nothing more is received from its queue
 * until the last one is closed, so that the next process on the queue finds ports and limits free, as after the kernel
 * has ended a process. Meanwhile nothing is sent to it either, except the link's own frames.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "processes/share.h"
#include "pushed/pushed.h"

static void end_connection(struct connection *c, bool reset)
{
	if (!reset && park_of_the_dead(c))
		return;
	if (!reset && c->state == CONNECTION_ESTABLISHED && !c->announced && !c->error && c->fd >= 0 &&
	    !orphan_would_reset(c))
		connection_orphan(c);
	else if (c->state == CONNECTION_CLOSING && c->fd >= 0)
		connection_orphan(c);
	else
		connection_free(c, reset || c->announced || c->state == CONNECTION_ESTABLISHED);
}

/* The next connection to end: the oldest first, since that is the order of orphans. The connections that a listener has
 * accepted come before the listener, one by one. */
static struct connection *next_to_end(struct channel *ch)
{
	struct connection *c = list_entry(ch->connections.next, struct connection, member), *accepted;

	if (c->state != CONNECTION_LISTENER)
		return c;
	accepted = accepting_any(c);
	if (!accepted && c->shared && !list_empty(&c->offers))
		accepted = list_entry(c->offers.next, struct connection, offers);
	return accepted ? accepted : c;
}

/* Ends one lookup, or one connection that the host has parked and will not return any more, or closes one connection,
 * or some of a listener's backlog. A connection that a shared listener has offered to this host, and that the host has
 * not taken, goes to another member. A connection that a listener has accepted and not announced ends with the
 * listener. */
static void end_one(struct channel *ch)
{
	struct connection *c;

	if (names_end_one(ch))
		return;
	if (ch->returning_left) {
		ch->returning_left = parked_end_one_of(ch);
		return;
	}
	c = next_to_end(ch);
	if (c->shared && !share_end_some(c, false))
		return;
	if (c->state == CONNECTION_LISTENER && !c->shared && !listener_refuse_some(c))
		return;
	if (c->listener && c->listener->shared)
		share_give_back(c);
	else if (c->listener && !c->announced)
		connection_free(c, true);
	else
		end_connection(c, ch->ending_reset);
}

static bool has_ended(struct channel *ch)
{
	if (!list_empty(&ch->connections) || !list_empty(&ch->names.lookups) || ch->returning_left)
		return false;
	identifiers_forget(ch);
	ch->ending = ch->ending_reset = false;
	return true;
}

void channel_end_some(struct channel *ch)
{
	while (!has_ended(ch)) {
		end_one(ch);
		if (worker_turn_is_over(ch->worker))
			break;
	}
}

static void batch_drop(struct channel *ch)
{
	for (uint32_t i = 0; i < ch->batch_used; i++)
		xts_queue_recycle(ch->queue, &ch->batch[i].frame);
	ch->batch_used = 0;
	ch->batch_bytes = 0;
	prepare_forget(ch);
	if (ch->unfinished.there)
		xts_queue_recycle(ch->queue, &ch->unfinished.frame);
	ch->unfinished.there = ch->unfinished.again = false;
}

void channel_end_epoch(struct channel *ch, bool reset)
{
	relay_close(ch);
	if (!ch->epoch_live)
		return;
	if (!reset && !ch->ending)
		channel_flush(ch);
	for (uint32_t i = 0; i < ch->dirty_count; i++) {
		struct connection *c = ch->dirty[i];

		if (!c)
			continue;
		c->gathered_first = c->gathered_last = BATCH_NONE;
		c->dirty = false;
	}
	ch->dirty_count = 0;
	batch_drop(ch);
	ch->reply_count = 0;
	ch->binding = ch->connecting = NULL;
	ch->epoch_live = false;
	ch->worker->stats.channels_up--;
	ch->ending = ch->returning_left = true;
	ch->ending_reset |= reset;
}

void channel_free(struct channel *ch, bool reset)
{
	struct worker_state *w = ch->worker;

	channel_end_epoch(ch, reset);
	while (ch->ending && !has_ended(ch))
		end_one(ch);
	(void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, ch->queue->wait_fd, NULL);
	if (ch->life_fd >= 0) {
		(void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, ch->life_fd, NULL);
		close(ch->life_fd);
	}
	relay_forget(ch);
	xts_queue_close(ch->queue);
	list_remove(&ch->member);
	account_close(&ch->account);
	w->stats.channels--;
	free(ch->ids);
	tenant_give(ch->tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
	xts_tenant_release(ch->tenant);
	free(ch->replies);
	free(ch);
}
