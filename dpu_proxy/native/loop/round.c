/* A round of the worker, channel by channel: each works until its turn is over by the clock, and is charged for the
 * time. schedule.h has the theory of operation. */
#include "channel/channel.h"
#include "loop/worker_inside.h"
#include "connection/unowned.h"
#include "processes/share.h"
#include "worker/histogram.h"

#define CHEAP_EVENTS 8u /* events handled between two reads of the clock */

/* An account begins, or continues, its turn of this round. Returns the time. */
static uint64_t turn_begins(struct worker_state *w, const struct account *a)
{
	w->turn_end_ns = w->now_ns + (a->left_ns > 0 ? (uint64_t)a->left_ns : 0);
	return w->now_ns;
}

static void turn_ends(struct worker_state *w, struct account *a, struct xts_tenant *tenant, uint64_t begun_ns)
{
	uint64_t took_ns;

	w->now_ns = w->config.clock_ns();
	took_ns = w->now_ns - begun_ns;
	account_charge(&w->schedule, a, w->now_ns, took_ns);
	tenant_take_anyway(tenant, XTS_USE_CPU_NS, took_ns);
}

/* A queue that had been idle has messages. The time they have waited is what the worker did meanwhile; the time to wake
 * the worker does not count, since that is the kernel's. */
static void note_delay(struct worker_state *w, struct channel *ch, uint64_t begun_ns)
{
	uint64_t since_ns = ch->looked_ns > w->woken_ns ? ch->looked_ns : w->woken_ns;

	if (ch->looked_ns)
		histogram_add(&w->stats.turn_delay, begun_ns - since_ns);
	ch->looked_ns = 0;
}

/* Whether a channel without a turn has work is not known, so the worker stays awake until the channel has had one. */
bool round_receive(struct worker_state *w)
{
	struct list *node;
	bool any = false;

	for (node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);
		uint64_t begun_ns;

		if (!ch->account.has_turn) {
			any = true;
			continue;
		}
		begun_ns = turn_begins(w, &ch->account);
		worker_doing(w, XTS_PHASE_RECEIVE, ch->queue_id);
		if (!channel_receive(ch)) {
			ch->looked_ns = begun_ns;
			continue;
		}
		note_delay(w, ch, begun_ns);
		turn_ends(w, &ch->account, ch->tenant, begun_ns);
		any = true;
	}
	return any;
}

/* Handles noted events, at least one, until the turn is over. True: there were some. */
static bool carry_out(struct worker_state *w, struct list *noted)
{
	uint32_t cheap = 0;
	bool over = false;

	while (!list_empty(noted) && !over) {
		struct connection *c = list_entry(list_pop(noted), struct connection, noted);
		bool dear = c->tcp.pushed;

		connection_turn(c);
		if (dear || ++cheap % CHEAP_EVENTS == 0)
			over = worker_turn_is_over(w);
	}
	return over;
}

/* Handles the events of orphans. One parked connection comes first, so that none waits for ever. At least a part of
 * what was kept for too long, or was returned and dropped, is ended or freed. */
static void carry_out_unowned(struct worker_state *w, struct unowned *u)
{
	uint64_t begun_ns = turn_begins(w, &u->account);
	bool over;

	worker_doing(w, XTS_PHASE_ELSE, 0);
	unowned_drain_some(u, w);
	if (u->expiring)
		registry_end_some(u, w);
	if (u->dropped.last)
		returned_drop_some(u, w);
	over = carry_out(w, &u->noted);
	while (!list_empty(&u->drains) && !over) {
		over = worker_turn_is_over(w);
		unowned_drain_some(u, w);
	}
	turn_ends(w, &u->account, u->tenant, begun_ns);
}

bool round_carry_out(struct worker_state *w)
{
	struct list *node;
	bool any = false;

	for (node = w->unowned.next; node != &w->unowned; node = node->next) {
		struct unowned *u = list_entry(node, struct unowned, member);

		any |= unowned_has_work(u);
		if (unowned_has_work(u) && u->account.has_turn)
			carry_out_unowned(w, u);
	}
	for (node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		uint64_t begun_ns;

		if (!ch->account.has_turn || ch->ending || (list_empty(&ch->noted) && list_empty(&ch->names.noted)))
			continue;
		worker_doing(w, XTS_PHASE_EVENTS, ch->queue_id);
		begun_ns = turn_begins(w, &ch->account);
		if (!carry_out(w, &ch->noted))
			(void)names_turn(ch);
		turn_ends(w, &ch->account, ch->tenant, begun_ns);
		any = true;
	}
	return any;
}

bool round_send(struct worker_state *w)
{
	struct list *node = w->channels.next;
	bool any = false;

	while (node != &w->channels) {
		struct channel *ch = list_entry(node, struct channel, member);
		uint64_t begun_ns;

		node = node->next;
		if (!ch->account.has_turn)
			continue;
		begun_ns = turn_begins(w, &ch->account);
		worker_doing(w, XTS_PHASE_SEND, ch->queue_id);
		if (channel_send(ch)) {
			turn_ends(w, &ch->account, ch->tenant, begun_ns);
			any = true;
		}
		if (ch->dying) {
			channel_end_epoch(ch, false);
			channel_end_moved(ch, false);
		}
		if (ch->dying && !ch->ending)
			channel_free(ch, false);
	}
	return any;
}
