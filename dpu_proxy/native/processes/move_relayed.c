/* Channels behind a relay that have come from another process of the proxy, until the relay says HELLO. move.h has the
 * theory of operation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "channel/ledger.h"
#include "processes/move.h"
#include "processes/share.h"

struct move_expected {
	uint32_t number;
	struct move_replayed of;
	struct xts_owner owner;
	struct identity identity;
	bool died; /* the process before has not left it, but died */
	bool came;
};

/* A channel goes on that the process before has had. */
static int go_on(struct channel *trunk, struct move_expected *e)
{
	struct channel *ch;
	int error = relay_add(&ch, trunk, e->number, e->of.tenant);

	if (error)
		return error;
	e->came = true;
	move_pass(trunk, ch, e->of.ticket);
	ch->moved_epoch = e->of.epoch;
	ch->moved_ticket = e->of.ticket;
	ch->identity = e->identity;
	ch->owner = e->owner;
	ch->heard = e->of.heard;
	ch->link.replay = e->of.replay; /* frames that its host has sent since follow those that came before */
	if (e->died)
		xts_link_replace(&ch->link, e->of.epoch, e->of.ticket);
	else
		xts_link_expect(&ch->link, e->of.epoch);
	if (e->of.ended)
		xts_link_fail(&ch->link, e->of.ended);
	return 0;
}

int move_expect(struct channel *trunk, const struct xts_resumed *how)
{
	struct move_expected *expected = calloc(how->relayed_count + 1u, sizeof *expected);

	if (!expected)
		return -ENOMEM;
	trunk->relayed.expected = expected;
	trunk->relayed.expected_count = how->relayed_count;
	for (uint32_t i = 0; i < how->relayed_count; i++) {
		const struct xts_relayed *r = &how->relayed[i];
		struct move_expected *e = &expected[i];

		*e = (struct move_expected){ .number = r->number, .owner = r->owner, .died = how->died };
		e->of = (struct move_replayed){ .tenant = tenant_hold(how->tenants[i]),
						.ticket = r->ticket,
						.epoch = r->epoch,
						.heard.number = ledger_came(trunk->queue_id, r->number) };
		memcpy(&e->identity, how->known + (i + 1u) * sizeof e->identity, sizeof e->identity);
		if (how->died)
			registry_moves(e->of.tenant, trunk->worker->now_ns, true);
		move_collect(trunk->worker, trunk, e->of.tenant, e->of.ticket);
	}
	return 0;
}

void move_expect_none(struct channel *trunk)
{
	for (uint32_t i = 0; i < trunk->relayed.expected_count; i++) {
		const struct move_expected *e = &trunk->relayed.expected[i];

		if (e->died && !e->came)
			ledger_leave_relayed(trunk->queue_id, e->number);
		xts_tenant_release(e->of.tenant);
	}
	free(trunk->relayed.expected);
	trunk->relayed.expected = NULL;
	trunk->relayed.expected_count = 0;
}

int move_expected_come(struct channel *trunk)
{
	int error = 0;

	for (uint32_t i = 0; i < trunk->relayed.expected_count && !error; i++)
		error = go_on(trunk, &trunk->relayed.expected[i]);
	move_expect_none(trunk);
	return error;
}

struct move_replayed *move_expected_replayed(struct channel *trunk, uint32_t number)
{
	for (uint32_t i = 0; i < trunk->relayed.expected_count; i++)
		if (trunk->relayed.expected[i].number == number && trunk->relayed.expected[i].died)
			return &trunk->relayed.expected[i].of;
	return NULL;
}

struct xts_tenant *move_expected_tenant(const struct channel *trunk, uint64_t epoch)
{
	for (uint32_t i = 0; i < trunk->relayed.expected_count; i++)
		if (trunk->relayed.expected[i].of.epoch == epoch)
			return trunk->relayed.expected[i].of.tenant;
	return NULL;
}
