/* What a host has sent, where nobody says so; heard.h has the theory of operation. */
#include "processes/heard.h"

#include "channel/channel.h"
#include "channel/ledger.h"
#include "connection/socket_kind.h"
#include "connection/unowned.h"
#include "processes/held_arrived.h"
#include "processes/move.h"
#include "processes/parked.h"

/* --- counting ----------------------------------------------------------------------------------------------------- */

bool heard_frame(struct heard_frames *h, const struct xts_head *head, bool follows)
{
	uint32_t next = h->number + 1, number;

	if (h->any && !follows)
		return false;
	if (!xts_type_sequenced(head->type))
		return true;
	/* Those that had come and are not acknowledged are not more than a window. */
	number = h->any ? next : next - (uint8_t)(next - (head->seqno + 1u));
	h->any = true;
	h->number = number;
	return next - number <= XTS_FRAME_WINDOW_MAX;
}

void heard_begins(const struct xts_tenant *t, uint64_t key, uint64_t taken, bool kept)
{
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(t, key, KEYED_PARKED));
	if (p && p->state == CONNECTION_ESTABLISHED) {
		p->heard.known = true;
		p->heard.kept = kept;
		p->heard.bytes = (uint32_t)(taken >> 32);
		p->heard.number = (uint32_t)taken & LEDGER_NUMBER_MASK;
		p->heard.fin = taken & LEDGER_TAKEN_FIN;
	}
	registry_unlock();
}

bool heard_more(struct parked *p, const struct heard_frames *h, uint32_t bytes, uint8_t flags)
{
	bool is_new = ((p->heard.number - h->number) & LEDGER_NUMBER_MASK) > XTS_FRAME_WINDOW_MAX;

	if (is_new)
		p->heard.bytes += bytes;
	p->heard.fin |= (flags & XTS_FLAG_FIN) != 0;
	p->heard.close |= (flags & XTS_FLAG_CLOSE) != 0;
	p->heard.abort |= (flags & XTS_FLAG_ABORT) != 0;
	/* This frame may be given back now: should this process die, too, what is found then is not all. */
	ledger_heard(p->tcp.fd, p->heard.bytes, h->number, p->heard.fin);
	return is_new;
}

/* How many bytes its host has sent that TCP has not got. */
static uint32_t missing(const struct parked *p)
{
	return p->heard.bytes - (uint32_t)p->tcp.accepted_bytes;
}

/* --- a host that sleeps ------------------------------------------------------------------------------------------- */

static bool may_deliver(const struct parked *p)
{
	return p->heard.known && !p->heard.torn && !p->heard.settled && !p->tcp.pushed && !p->returner && !p->unowned;
}

/* With the lock held. */
static void settle(struct channel *ch, struct parked *p)
{
	if (!may_deliver(p) || !parked_join_spilled(p, missing(p)))
		return;
	p->tcp.fin_wanted |= p->heard.fin || (p->heard.close && !p->heard.abort);
	p->heard.settled = true;
	p->unowned = unowned_hold(ch->worker, p->keyed.tenant);
	if (p->unowned)
		move_deliver(p, ch->worker);
}

void heard_again(struct parked *p)
{
	p->tcp.fin_wanted |= !p->heard.torn && (p->heard.fin || (p->heard.close && !p->heard.abort));
	if (!p->heard.torn)
		park_event(&p->watch);
}

void heard_deliver(struct channel *ch)
{
	registry_lock();
	for (struct list *node = ch->returning.next; node != &ch->returning; node = node->next)
		settle(ch, list_entry(node, struct parked, returning));
	registry_unlock();
}

/* With the lock held. */
static bool is_delivered(struct parked *p)
{
	if (p->unowned || (!p->tcp.out.spill.bytes && (!p->tcp.fin_wanted || p->tcp.fin_done)))
		return true;
	p->unowned = unowned_hold(p->keyed.keeper, p->keyed.tenant);
	if (p->unowned)
		move_deliver(p, p->keyed.keeper);
	return p->unowned;
}

bool heard_completes(struct parked *p)
{
	if (!p->heard.known || p->heard.torn || p->tcp.pushed)
		return !p->tcp.out.spill.bytes && !p->spilled && !returned_bytes(&p->tcp.returned);
	if (!p->heard.settled && !parked_join_spilled(p, missing(p)))
		return false;
	p->heard.settled = false;
	p->tcp.fin_wanted |= p->heard.fin;
	p->tcp.accepted_bytes += p->tcp.out.spill.bytes;
	p->tcp.received_bytes -= returned_bytes(&p->tcp.returned);
	return is_delivered(p);
}

/* --- a host that has ended ---------------------------------------------------------------------------------------- */

/* Was it this host's alone, and is it known what it has sent? */
static bool can_be_claimed(const struct channel *ch, const struct parked *p)
{
	if (!p->moved || p->returner || held_others_have(p) || p->state != CONNECTION_ESTABLISHED ||
	    (p->keyed.key ^ ch->moved_ticket) >> 32)
		return false;
	return p->heard.known ? !p->heard.torn : !ch->link.lost_early;
}

/* With the lock held: nobody else can ask for it. Its key. */
static uint64_t alone(struct parked *p)
{
	held_name_ends(p);
	return p->keyed.key;
}

/* With the lock held. Returns its key if it can be claimed; 0: it has ended, or others have it. */
static uint64_t end_or_key(struct channel *ch, struct parked *p)
{
	if (!p->moved)
		parked_is_left(p);
	else if (ch->heard.mute && held_outlives(p))
		return 0;
	else if (!can_be_claimed(ch, p))
		parked_end(&p->keyed);
	else
		return alone(p);
	return 0;
}

static void end_by_key(struct channel *ch, uint64_t key)
{
	struct keyed *k;

	registry_lock();
	k = registry_find(ch->tenant, key, KEYED_PARKED);
	if (k)
		parked_end(k);
	registry_unlock();
}

bool heard_end_one(struct channel *ch, struct connection **c, bool *reset)
{
	struct claim_counts counts = { 0 };
	bool any, known = false;
	uint64_t key = 0;
	int error;

	*c = NULL;
	registry_lock();
	any = !list_empty(&ch->returning);
	if (any) {
		struct parked *p = list_entry(ch->returning.next, struct parked, returning);

		known = p->heard.known;
		*reset = p->heard.abort;
		counts = (struct claim_counts){ .received_bytes = p->tcp.received_bytes,
						.sent_bytes = p->tcp.accepted_bytes + missing(p),
						.fin_sent = p->heard.fin || p->heard.close };
		key = end_or_key(ch, p);
	}
	registry_unlock();
	if (!key)
		return any;
	*c = park_claim(ch, key, known ? &counts : NULL, NULL, &error);
	if (!*c)
		end_by_key(ch, key);
	return true;
}
