/*
 * Offers that a member of a shared listener does not answer.
 *
 * A member that does not accept gives its offers back by itself. One whose process is stopped, or is not given a CPU,
 * does nothing; with the kernel's listeners such a process takes nothing away from those that do accept. So if a member
 * has answered none of its open offers for UNANSWERED_MS and there are others, its offers go to them, and it is offered
 * nothing until it answers again.
 *
 * It may answer a NEWCONN whose connection another member has by then. So the connection stays in its channel,
 * announced and without a socket, until the answer comes. If the answer accepts it, it is reset.
 */
#include "processes/share_inside.h"

#include <errno.h>

#define UNANSWERED_MS 1000u

static bool was_taken_back(const struct connection *c)
{
	return c->announced && c->tcp.fd < 0;
}

static uint32_t now_ms(const struct member *m)
{
	return (uint32_t)(m->connection->worker->now_ns / 1000000u);
}

void share_offer_begins(struct member *m)
{
	if (m->offer_count++)
		return;
	m->answered_ms = now_ms(m);
	connection_look_in(m->connection, UNANSWERED_MS);
}

void share_offer_ends(struct member *m)
{
	m->offer_count--;
	m->answered_ms = now_ms(m);
	if (m->stuck) {
		m->stuck = 0;
		m->connection->readable = true;
		connection_wake(m->connection);
	}
}

static bool is_alone(const struct connection *l)
{
	bool alone;

	registry_lock();
	alone = shared_has_only(l->shared, l);
	registry_unlock();
	return alone;
}

/* False: some cannot be taken back now. */
static bool take_back_all(struct connection *l)
{
	bool all = true;

	for (struct list *node = l->offers.next; node != &l->offers; node = node->next) {
		struct connection *c = list_entry(node, struct connection, offers);

		all &= was_taken_back(c) || share_take_back(c);
	}
	return all;
}

void share_take_back_unanswered(struct connection *l)
{
	struct member *m = l->shares;
	uint32_t waited_ms = now_ms(m) - m->answered_ms;

	if (!m->offer_count)
		return;
	if (waited_ms < UNANSWERED_MS) {
		connection_look_in(l, UNANSWERED_MS - waited_ms);
		return;
	}
	if (!is_alone(l)) {
		m->stuck = 1;
		if (take_back_all(l))
			return;
	}
	connection_look_in(l, UNANSWERED_MS); /* others may join later, or there may be room for what is left */
}

bool share_late_answer(struct connection *c)
{
	if (!was_taken_back(c))
		return false;
	connection_fail(c, ECONNRESET);
	return true;
}
