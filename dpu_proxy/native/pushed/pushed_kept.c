/* Pushed protocols are written down for the next process; see pushed_kept.h. */
#include "pushed/pushed_kept.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "channel/channel.h"
#include "decorators/parts.h"
#include "pushed/pushed_move.h"
#include "ulp/lasting.h"

#define BLOCK_BYTES 512u /* at first */
#define UNPROVEN_MS 1u
#define KEPT_LATER_MS 10u /* a record takes nearly a microsecond */

/* --- its block ---------------------------------------------------------------------------------------------------- */

static uint32_t place_of(const struct pushed_kept *k)
{
	return (uint32_t)(lasting_offset(k) / LASTING_UNIT);
}

/* A block of so many bytes that others find, counted for the stack; NULL. */
static struct pushed_kept *take_block(struct pushed *p, uint32_t bytes)
{
	struct pushed_kept *k;

	if (ulp_stack_take_memory(p->stack, bytes))
		return NULL;
	k = lasting_take(bytes);
	if (k && lasting_offset(k)) {
		memset(k, 0, sizeof *k);
		k->torn = 1;
		return k;
	}
	lasting_give(k);
	ulp_stack_return_memory(p->stack, bytes);
	return NULL;
}

static void give_block(struct pushed *p, struct pushed_kept *k, uint32_t bytes)
{
	k->torn = 1;
	ledger_in_order();
	k->cookie = 0; /* what takes its place may have a line of its own */
	lasting_give(k);
	ulp_stack_return_memory(p->stack, bytes);
}

/* In place of the block that it has, if there is one. */
static void has_block(struct pushed *p, struct pushed_kept *k, uint32_t bytes)
{
	struct ulp_kept counts;

	ulp_stack_counts(p->stack, &counts);
	ulp_stack_tells(p->stack, &k->torn, &counts);
	if (p->kept)
		give_block(p, p->kept, p->kept_bytes);
	p->kept = k;
	p->kept_bytes = bytes;
}

static int make_block(struct pushed *p)
{
	struct pushed_kept *k = p->kept ? NULL : take_block(p, BLOCK_BYTES);

	if (k)
		has_block(p, k, BLOCK_BYTES);
	return p->kept ? 0 : -ENOMEM;
}

/* Of a connection whose record is longer than its block. False: there is no room. */
static bool grow_block(struct connection *c, uint32_t record_bytes)
{
	uint32_t bytes = BLOCK_BYTES;
	struct pushed *p = c->tcp.pushed;
	struct pushed_kept *k;

	while (bytes < sizeof *k + record_bytes)
		bytes *= 2;
	k = take_block(p, bytes);
	if (!k)
		return false;
	k->cookie = p->kept->cookie;
	ledger_keeps(c->tcp.fd, place_of(k));
	has_block(p, k, bytes);
	return true;
}

void pushed_keep_ends(struct pushed *p)
{
	const struct ulp_kept none = { 0 };

	if (!p->kept)
		return;
	ulp_stack_tells(p->stack, NULL, &none);
	give_block(p, p->kept, p->kept_bytes);
	p->kept = NULL;
}

/* --- what is in it ------------------------------------------------------------------------------------------------ */

/* It is whole: all of this was said at once. */
static void say(struct pushed_kept *k, const struct pushed_kept *counts)
{
	ledger_in_order();
	k->read = counts->read;
	k->written = counts->written;
	k->received = counts->received;
	k->accepted = counts->accepted;
	k->number = counts->number;
	k->sum = memory_sum(k, offsetof(struct pushed_kept, sum));
	ledger_in_order();
	*(volatile uint8_t *)&k->torn = 0;
}

static struct pushed_rest rest_of(const struct pushed *p)
{
	return (struct pushed_rest){
		.rests = p->pdu_open ? 0 : ulp_stack_rests(p->stack),
		.since_pdu = p->since_pdu,
		.pdus = p->pdus,
		.typed = p->typed,
		.event_wanted = p->event_wanted,
		.tls_wanted = p->tls_wanted,
		.finished = p->finished,
	};
}

static bool is_same_rest(const struct pushed_rest *a, const struct pushed_rest *b)
{
	return a->rests && a->rests == b->rests && a->since_pdu == b->since_pdu && a->pdus == b->pdus &&
	       a->typed == b->typed && a->event_wanted == b->event_wanted && a->tls_wanted == b->tls_wanted &&
	       a->finished == b->finished;
}

static bool write_record(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	size_t room = p->kept_bytes - sizeof *p->kept;
	ssize_t n = ulp_stack_can_be_kept(p->stack) ? pushed_write(p, p->kept->record, room) : -EOPNOTSUPP;

	if (n < 0 || n > PUSHED_KEPT_MAX)
		return false;
	if ((size_t)n > room && (!grow_block(c, (uint32_t)n) || pushed_write(p, p->kept->record, (size_t)n) != n))
		return false;
	p->kept->record_bytes = (uint32_t)n;
	p->kept->record_sum = memory_sum(p->kept->record, (size_t)n);
	return true;
}

/* Nothing of it is anywhere but in the stack, with its host, and with the kernel. */
static bool is_all(const struct connection *c)
{
	const struct pushed *p = c->tcp.pushed;

	return c->tcp.fd >= 0 && c->channel && c->state == CONNECTION_ESTABLISHED && p->ready && !p->failed &&
	       !p->peeking && !p->give_back_left && !c->tcp.error && !c->tcp.returned.last &&
	       !outgoing_waits(&c->tcp.out) && c->gathered_first == BATCH_NONE;
}

void pushed_sent_empty(struct connection *c)
{
	pushed_tears(c->tcp.pushed);
	c->tcp.pushed->unproven = true;
	c->tcp.pushed->unproven_kicks = c->channel->kicks;
}

/* Have all messages without bytes left? A queue may hold some until it is kicked, and where frames come in parts they
 * may wait for room, too. */
static bool is_proven(const struct connection *c)
{
	const struct channel *ch = c->channel;
	struct pushed *p = c->tcp.pushed;
	bool in_parts = xts_packets_in_parts(&ch->link);

	if (p->unproven && ch->gather.open)
		p->unproven_kicks = ch->kicks;
	else if (ch->link.sent == ch->link.acked || (p->unproven_kicks != ch->kicks && !in_parts))
		p->unproven = false;
	if (p->unproven && !in_parts)
		ulp_stack_wake_after(p->stack, UNPROVEN_MS);
	return !p->unproven;
}

/* Within a PDU the record is another one with each turn: it is not written in each of them, but some time later. The
 * first one is written at once. */
static bool is_due(struct connection *c, const struct pushed_rest *rest)
{
	struct pushed *p = c->tcp.pushed;
	uint64_t now = c->worker->now_ns;

	if (rest->rests || !p->kept->record_bytes || (p->kept_due_ns && now >= p->kept_due_ns)) {
		p->kept_due_ns = 0;
		return true;
	}
	if (!p->kept_due_ns)
		p->kept_due_ns = now + KEPT_LATER_MS * UINT64_C(1000000);
	ulp_stack_wake_after(p->stack, KEPT_LATER_MS);
	return false;
}

/* The record is that of this moment. False: it is not. */
static bool renew_record(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	struct pushed_rest rest = rest_of(p);

	if (is_same_rest(&rest, &p->rest)) {
		p->kept_due_ns = 0;
		return true;
	}
	if (!is_due(c, &rest))
		return false;
	p->rest.rests = 0; /* until it is written */
	if (!write_record(c))
		return false;
	p->rest = rest;
	return true;
}

void pushed_keep_now(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	struct ulp_kept counts;

	if (!is_all(c) || !is_proven(c) || !renew_record(c))
		return;
	ulp_stack_counts(p->stack, &counts);
	say(p->kept, &(struct pushed_kept){ .read = counts.read,
					    .written = counts.written,
					    .received = c->tcp.received_bytes,
					    .accepted = c->tcp.accepted_bytes,
					    .number = ledger_number(c->channel) });
}

/* --- it begins ---------------------------------------------------------------------------------------------------- */

int pushed_keep_begins(struct pushed *p, const struct tcp_counts *now, uint64_t cookie, uint32_t *place)
{
	const struct ulp_kept counts = { .read = now->read, .written = now->written };
	int error = ulp_stack_can_be_kept(p->stack) ? make_block(p) : -EOPNOTSUPP;

	if (error)
		return error;
	pushed_tears(p);
	p->rest.rests = 0;
	p->kept->record_bytes = 0;
	p->kept->cookie = cookie;
	ulp_stack_tells(p->stack, &p->kept->torn, &counts);
	*place = place_of(p->kept);
	return 0;
}

int pushed_keep_found(struct pushed *p, const struct pushed_kept *found, const uint8_t *record, uint32_t *place)
{
	uint32_t bytes = (uint32_t)sizeof *found + found->record_bytes;
	struct pushed_kept *k = take_block(p, bytes);

	if (!k)
		return -ENOMEM;
	k->cookie = found->cookie;
	k->record_bytes = found->record_bytes;
	k->record_sum = found->record_sum;
	memcpy(k->record, record, found->record_bytes);
	has_block(p, k, bytes);
	say(k, found);
	*place = place_of(k);
	return 0;
}
