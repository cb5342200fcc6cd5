/* Which member of a shared listener is offered the next connection. share.h has the theory of operation. */
#include "processes/share_inside.h"

bool share_has_news(const struct connection *l)
{
	const struct shared *s = l->shared;

	return !atomic_load_explicit(&s->ended, memory_order_relaxed) &&
	       (l->readable || atomic_load_explicit(&s->any_waiting, memory_order_relaxed));
}

/* Members that can be sent the announcement at once come first, then those without frame credits, then those at a
 * limit. */
static int nearness(const struct connection *m)
{
	return !listener_has_room(m) ? 0 : !channel_credits(m->channel) ? 1 : 2;
}

/* Among these, members with fewer unanswered offers come first, and then those that have waited longest. */
static bool goes_before(const struct connection *a, const struct connection *b)
{
	if (nearness(a) != nearness(b))
		return nearness(a) > nearness(b);
	if (a->shares->offer_count != b->shares->offer_count)
		return a->shares->offer_count < b->shares->offer_count;
	return (int32_t)(a->shares->turn - b->shares->turn) < 0;
}

struct connection *share_turn(struct connection *l)
{
	struct connection *best = NULL, *m = l;

	do {
		if (m->held && !m->shares->stuck && !m->shares->tell && !m->channel->ending &&
		    (!best || goes_before(m, best)))
			best = m;
		m = shared_next_here(m);
	} while (m != l);
	return best;
}

void share_turn_ends(struct connection *l)
{
	if (l->shares)
		l->shares->turn = ++l->worker->share_turns;
}

void share_accepted_all(struct connection *l)
{
	struct connection *m = l;

	do {
		m->readable = false;
		m = shared_next_here(m);
	} while (m != l);
}
