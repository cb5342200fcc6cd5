/*
 * The queue of a relay goes to another process of the proxy, with the channels behind the relay.
 *
 * Theory of operation. Each of these channels hears MOVE, as one that has a queue. They leave together: first all have
 * answered, or are quiet, or their time is over. Then the relay hears MOVE, and answers at once. From its answer on no
 * frame of any host is on its way. The channels are left, each with GOODBYE, and then the trunk. So no HELLO of a host
 * reaches this process any more: it waits in the relay until the next process has the queue.
 *
 * As one of them may so wait for another, their time is short.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "channel/relay.h"
#include "connection/connection.h"
#include "loop/move_inside.h"
#include "processes/move.h"
#include "relay/mux.h"

#define WITHIN_MS 1000u   /* for hosts to finish their calls */
#define OF_RELAY_MS 2000u /* for the relay to answer */

/* --- leaving ------------------------------------------------------------------------------------------------------ */

static int why_not(struct channel *trunk, struct xts_move_waits *waits)
{
	int result = 0;

	for (struct channel *ch = relay_next(trunk, NULL); ch; ch = relay_next(trunk, ch)) {
		if (ch->epoch_live && !move_is_possible(ch))
			result = -EOPNOTSUPP;
		else if (ch->epoch_live && move_waits_for_sockets(ch))
			result = result ? result : -EBUSY;
		else
			continue;
		move_tell_waiting(ch, waits);
	}
	return result;
}

int move_trunk_ask(struct channel *trunk, uint32_t within_ms, enum xts_move_urgency urgency, struct xts_move_waits *waits)
{
	int result = urgency ? 0 : why_not(trunk, waits);

	for (struct channel *ch = relay_next(trunk, NULL); ch && !result; ch = relay_next(trunk, ch))
		if (move_waits_for_handshakes(ch))
			result = -EAGAIN;
	return result ? result : move_begin(trunk, within_ms);
}

/* Its host attaches again. */
static void end(struct channel *ch)
{
	xts_link_goodbye(&ch->link, ESHUTDOWN);
	channel_end_epoch(ch, true);
}

/* True: nothing of it is awaited any more. */
static bool is_ready(struct channel *ch)
{
	if (ch->ending)
		return false; /* its process has ended */
	if (!ch->move && !ch->epoch_live)
		return !ch->moved_epoch ||
		       !move_begin(ch, 0); /* nobody has it, or its host sleeps since the last move */
	if (!ch->move && !move_is_possible(ch))
		end(ch);
	else if (!ch->move)
		(void)move_ask_host(ch, WITHIN_MS);
	else if (!ch->epoch_live && !ch->move->epoch)
		move_free(ch); /* its host has gone meanwhile */
	else
		return !ch->epoch_live ||
		       (!ch->continuation.resume && ((ch->move->acked && !ch->reply_count) ||
						     ch->worker->now_ns >= ch->move->until_ns || channel_is_quiet(ch)));
	return false;
}

static bool all_are_ready(struct channel *trunk)
{
	bool all = true;

	for (struct channel *ch = relay_next(trunk, NULL); ch; ch = relay_next(trunk, ch))
		all &= is_ready(ch);
	return all;
}

/* Says MOVE to the relay. */
static void say(struct channel *trunk)
{
	struct move_out *m = trunk->move;

	m->said = !move_ask_host(trunk, OF_RELAY_MS);
	m->asked_ns = trunk->worker->now_ns;
	m->until_ns = m->asked_ns + OF_RELAY_MS * UINT64_C(1000000);
	m->received = trunk->link.stats.received_frames;
}

/* Those that have come after the others were asked attach again. */
static void part(struct channel *trunk)
{
	for (struct channel *ch = relay_next(trunk, NULL); ch; ch = relay_next(trunk, ch)) {
		if (ch->move)
			channel_leave(ch);
		else if (ch->epoch_live)
			end(ch);
	}
	trunk->move->parted = true;
}

static bool have_said_all(struct channel *trunk)
{
	for (struct channel *ch = relay_next(trunk, NULL); ch; ch = relay_next(trunk, ch))
		if (xts_link_control_due(&ch->link))
			return false;
	return true;
}

void move_trunk_turn(struct channel *trunk)
{
	struct move_out *m = trunk->move;

	if (!m->said) {
		if (all_are_ready(trunk))
			say(trunk);
	} else if (!m->parted) {
		if (m->acked || trunk->worker->now_ns >= m->until_ns || channel_is_quiet(trunk))
			part(trunk);
	} else if (have_said_all(trunk) || trunk->worker->now_ns >= m->until_ns) {
		channel_leave(trunk);
	}
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

void move_trunk_take(struct channel *trunk, struct xts_moved *out)
{
	for (struct channel *ch = relay_next(trunk, NULL); ch; ch = relay_next(trunk, ch)) {
		if (!ch->move || !ch->move->left)
			continue;
		move_take_sockets(ch, out);
		trunk->move->reset += ch->move->reset;
		ch->move->reset = 0;
		if (out->bytes || out->fd_count)
			return;
	}
}

static void list_one(const struct channel *ch, struct xts_moved *out, uint8_t *known)
{
	struct xts_relayed *r = &out->relayed[out->relayed_count];

	*r = (struct xts_relayed){ .number = ch->relayed.number, .ticket = ch->move->ticket, .epoch = ch->move->epoch };
	r->owner = ch->owner;
	memcpy(r->tenant, ch->tenant->name, sizeof r->tenant);
	memcpy(known + out->relayed_count * sizeof ch->identity, &ch->identity, sizeof ch->identity);
	out->relayed_count++;
}

int move_trunk_list(struct channel *trunk, struct xts_moved *out)
{
	uint32_t count = trunk->relayed.count;
	struct channel *ch;

	out->relayed = calloc(count + 1u, sizeof *out->relayed);
	trunk->move->known = calloc(count + 1u, sizeof trunk->identity);
	if (!out->relayed || !trunk->move->known)
		return -ENOMEM;
	while ((ch = relay_next(trunk, NULL))) {
		if (ch->move && ch->move->left)
			list_one(ch, out, trunk->move->known);
		channel_free(ch, false);
	}
	trunk->move->known_bytes = out->relayed_count * (uint32_t)sizeof trunk->identity;
	xts_mux_close(trunk->relayed.mux);
	trunk->relayed.mux = NULL;
	return 0;
}
