/* Channels behind a relay that have come from another process of the proxy, until the relay says HELLO. move.h has the
 * theory of operation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "processes/move.h"

struct move_expected {
	uint32_t number;
	struct xts_tenant *tenant; /* a reference */
	uint64_t ticket, epoch;
	struct xts_owner owner;
	struct identity identity;
};

/* A channel goes on that the process before has had. */
static int go_on(struct channel *trunk, const struct move_expected *e)
{
	struct channel *ch;
	int error = relay_add(&ch, trunk, e->number, e->tenant);

	if (error)
		return error;
	move_pass(trunk, ch, e->ticket);
	ch->moved_epoch = e->epoch;
	ch->moved_ticket = e->ticket;
	ch->identity = e->identity;
	ch->owner = e->owner;
	xts_link_expect(&ch->link, e->epoch);
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

		*e = (struct move_expected){ r->number, tenant_hold(how->tenants[i]), r->ticket, r->epoch, r->owner,
					     { 0 } };
		memcpy(&e->identity, how->known + (i + 1u) * sizeof e->identity, sizeof e->identity);
		move_collect(trunk->worker, trunk, e->tenant, e->ticket);
	}
	return 0;
}

void move_expect_none(struct channel *trunk)
{
	for (uint32_t i = 0; i < trunk->relayed.expected_count; i++)
		xts_tenant_release(trunk->relayed.expected[i].tenant);
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
