/*
 * The end of an epoch: the host is gone, has broken the link, or begins another epoch.
 *
 * Closing a connection takes about 10 us, and a host may have thousands. So they are closed some at a time, in the
 * turns of their channel (channel_end_some()), which is *ending* meanwhile. Nothing more is received from its queue
 * until the last one is closed, so that the next process on the queue finds ports and limits free, as after the kernel
 * has ended a process. Meanwhile nothing is sent to it either, except the link's own frames.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "connection/socket_kind.h"
#include "channel/ledger.h"
#include "decorators/headed.h"
#include "processes/ended_epochs.h"
#include "processes/move.h"
#include "processes/share.h"
#include "pushed/pushed.h"

static void end_connection(struct connection *c, bool reset)
{
	if (!reset && park_of_the_dead(c))
		return;
	if (!reset && c->state == CONNECTION_ESTABLISHED && !c->announced && !c->tcp.error && c->tcp.fd >= 0 &&
	    !orphan_would_reset(c))
		connection_orphan(c);
	else if (c->state == CONNECTION_CLOSING && c->tcp.fd >= 0)
		connection_orphan(c);
	else
		connection_free(c, reset || c->announced || c->state == CONNECTION_ESTABLISHED);
}

/* One of those that its host has not claimed, or has parked and not returned all of. */
static void end_returning(struct channel *ch)
{
	struct connection *c;
	bool reset = false;

	ch->returning_left = heard_end_one(ch, &c, &reset);
	if (c)
		end_connection(c, reset || ch->ending_reset);
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
		end_returning(ch);
		return;
	}
	/* the oldest first, since that is the order of orphans */
	c = list_entry(ch->connections.next, struct connection, member);
	c = kind_of(c)->first_to_end(c);
	if (c->shared ? !share_end_some(c, false) : !kind_of(c)->refuse_some(c))
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
	ch->ending = ch->ending_reset = ch->heard.mute = false;
	continuation_done(ch);
	return true;
}

/* Ends some, for the rest of the turn, at least one. */
static bool end_some(struct channel *ch)
{
	while (!has_ended(ch)) {
		end_one(ch);
		if (worker_turn_is_over(ch->worker))
			break;
	}
	return true;
}

static void begin_to_end(struct channel *ch, bool reset)
{
	ch->ending = ch->returning_left = true;
	continuation_cancel(ch);
	continuation_begin(ch, &(struct continuation){ .resume = end_some });
	ch->ending_reset |= reset;
}

static void batch_drop(struct channel *ch)
{
	for (uint32_t i = 0; i < ch->batch_used; i++)
		xts_queue_recycle(ch->queue, &ch->batch[i].frame);
	ch->batch_used = 0;
	ch->batch_bytes = 0;
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
	ch->epoch_live = false;
	epochs_ends(ch);
	ledger_channel(ch);
	xts_headed_no_epoch(ch->queue);
	ch->worker->stats.channels_up--;
	begin_to_end(ch, reset);
}

/* What has come with the channel, and its host has not claimed: it has ended. */
void channel_end_moved(struct channel *ch, bool reset)
{
	if (!ch->moved_epoch || ch->epoch_live)
		return;
	epochs_moved_ends(ch);
	if (ch->ending || list_empty(&ch->returning))
		return;
	ch->heard.mute = true;
	begin_to_end(ch, reset);
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
	move_unclaimed_end(ch, false);
	move_free(ch);
	move_expect_none(ch);
	relay_forget(ch);
	timer_cancel(&ch->clock);
	xts_queue_close(ch->queue);
	list_remove(&ch->member);
	account_close(&ch->account);
	w->stats.channels--;
	identifiers_forget(ch);
	epochs_free(ch);
	tenant_give(ch->tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
	xts_tenant_release(ch->tenant);
	free(ch->replies);
	free(ch);
}

/* --- the link ----------------------------------------------------------------------------------------------------- */

/* From now on the tenant of the process that has opened the link is charged. What earlier processes left stays charged
 * to their tenant. */
static void take_over_costs(struct channel *ch)
{
	bool moved = ch->moved_epoch == ch->link.epoch; /* then its tenant has its sockets already */
	struct xts_tenant *tenant = ch->link.config.admit && !moved ? token_tenant(ch) : NULL;

	if (!tenant || tenant == ch->tenant)
		return;
	/* without a limit, as they are open already */
	tenant_take_anyway(tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
	tenant_give(ch->tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
	account_move(&ch->worker->schedule, &ch->account, &tenant->weight);
	xts_tenant_release(ch->tenant);
	ch->tenant = tenant_hold(tenant);
	ch->link.config.sockets_max = channel_sockets_max(tenant);
}

/* Of the processes behind a relay, which go on with it, those that have ended: a frame that was received again said so,
 * and no other will. */
static void end_those_of_before(struct channel *trunk)
{
	for (struct channel *ch = NULL; (ch = relay_next(trunk, ch));)
		if (ch->moved_epoch && ch->link.state == XTS_LINK_DOWN && ch->link.error)
			channel_link_closed(ch);
}

void channel_link_opened(struct channel *ch)
{
	channel_end_epoch(ch, false);            /* the process ended without GOODBYE */
	if (ch->moved_epoch != ch->link.epoch) { /* it is another process */
		channel_end_moved(ch, false);
		move_expect_none(ch);
	}
	ch->moved_epoch = 0;
	take_over_costs(ch);
	ch->id_generation = move_generation(ch);
	ch->epoch_live = true;
	epochs_begins(ch);
	xts_headed_epoch(ch->queue);
	ledger_channel(ch); /* with the heads */
	xts_packets_begin(&ch->packets, &ch->link);
	ch->worker->stats.channels_up++;
	ch->worker->stats.hellos++;
	channel_log(ch, "open, %s %u, window %u frames of %u bytes",
		    ch->link.features & XTS_FEATURE_RELAY ? "a relay, process" : "process", ch->link.config.pid,
		    ch->link.frame_window, ch->link.largest_message);
	if (ch->link.features & XTS_FEATURE_RELAY && (relay_open(ch) || move_expected_come(ch))) {
		xts_link_fail(&ch->link, ENOMEM);
		channel_end_epoch(ch, true);
	} else if (ch->relayed.mux) {
		end_those_of_before(ch);
	}
}

/* The host that the process before had has ended, without a HELLO to this process. The next one has another secret. */
static void moved_has_ended(struct channel *ch)
{
	channel_end_moved(ch, ch->link.error != ESHUTDOWN);
	ledger_channel(ch);
	xts_headed_no_epoch(ch->queue);
}

/* Which rule was broken, by whom. */
static const char *closed_why(const struct xts_link *link, char *out, size_t room)
{
	if (link->error != EPROTO)
		return "";
	(void)snprintf(out, room, ": %s", link->violation ? link->violation : "the host says that this proxy broke it");
	return out;
}

/* The link went down: by GOODBYE, or by a violation of the link's or our protocol. */
void channel_link_closed(struct channel *ch)
{
	struct worker_state *w = ch->worker;
	char why[128];

	if (!ch->link.replaced_ticket || ch->link.state == XTS_LINK_DOWN) /* else frames come again, in parts too */
		xts_packets_end(&ch->packets);
	if (!ch->epoch_live) {
		if (ch->moved_epoch && ch->link.state == XTS_LINK_DOWN)
			moved_has_ended(ch);
		return;
	}
	if (ch->link.error == ESHUTDOWN)
		w->stats.goodbyes++;
	else
		w->stats.link_failures++;
	channel_log(ch, "closed, %s%s", ch->link.error == ESHUTDOWN ? "the process has ended" : strerror(ch->link.error),
		    closed_why(&ch->link, why, sizeof why));
	channel_end_epoch(ch, ch->link.error != ESHUTDOWN);
}
