/*
 * Datagrams that a host has received on a shared socket, has not read, and gives back (RETURN_DATAGRAMS). The next
 * member of the socket that has credits gets them, before anything that the kernel has. They are kept as they arrive,
 * one block per message, and the tenant is charged for them as kept. Beyond the tenant's limit they are dropped and
 * counted, like datagrams that the kernel has no room for.
 *
 * A pending error that its program has not been told comes back in the same way. It is for the next member that waits
 * or reads, and so has posted credits, or that sends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "datagrams/datagram_record.h"
#include "datagrams/datagram_socket.h"
#include "processes/share_inside.h"

#define ERROR_MAX 4095u  /* of the kernel: include/linux/err.h */
#define BLOCKS_MAX 4096u /* blocks of one socket, which are all freed at once when it is closed */

struct returned_block {
	struct returned_block *next;
	struct xts_tenant *tenant; /* a reference */
	uint32_t at, bytes;        /* of the records: the next one, and the end */
	uint32_t missing;          /* bytes missing of the last record's data, which the next message has */
	uint32_t datagrams;
	uint8_t records[];
};

static uint64_t charge(uint32_t bytes)
{
	return sizeof(struct returned_block) + bytes;
}

static void free_block(struct returned_block *b)
{
	tenant_give(b->tenant, XTS_USE_KEPT_BYTES, charge(b->bytes));
	xts_tenant_release(b->tenant);
	free(b);
}

/* --- from a host -------------------------------------------------------------------------------------------------- */

static void copy(uint8_t *to, struct xts_datagram_cursor *cursor, uint32_t bytes)
{
	while (bytes) {
		struct iovec iov[XTS_SEGMENTS_MAX];
		uint32_t count = XTS_SEGMENTS_MAX, n = xts_datagram_data(cursor, bytes, iov, &count);

		for (uint32_t i = 0; i < count; i++) {
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
			to += iov[i].iov_len;
		}
		bytes -= n;
	}
}

/* Checks the headers of the records that have come, in our own copy. Returns what is wrong, or NULL. */
static const char *check(struct connection *c, struct returned_block *b, bool more)
{
	for (uint32_t at = 0; at < b->bytes;) {
		uint32_t left, credits;
		struct xts_datagram d;
		int head = xts_datagram_read(&d, b->records + at, b->bytes - at);

		if (head < 0 || d.controls & 1u << XTS_DATAGRAM_ERROR)
			return "a malformed record of a datagram";
		credits = xts_datagram_credits(&d.record);
		if (credits > c->datagrams->delivered)
			return "more datagrams are returned than were sent";
		c->datagrams->delivered -= credits;
		at += (uint32_t)head;
		left = b->bytes - at;
		b->missing = d.record.data_bytes > left ? d.record.data_bytes - left : 0;
		at += d.record.data_bytes - b->missing;
		b->datagrams++;
	}
	if (b->missing && !more)
		return "a truncated datagram";
	return more && !b->missing ? "MORE, and no datagram that goes on" : NULL;
}

static void lose(struct connection *c, uint32_t datagrams)
{
	c->worker->stats.datagrams_dropped += datagrams;
	c->datagrams->dropped += datagrams;
}

static bool append(struct returned_datagrams *r, struct returned_block *b)
{
	if (r->blocks == BLOCKS_MAX)
		return false;
	r->blocks++;
	b->next = NULL;
	if (r->last)
		r->last->next = b;
	else
		r->first = b;
	r->last = b;
	atomic_store(&r->any, true);
	return true;
}

/* Gives the block to the shared socket, and wakes its members. False: it has ended, or has too many. */
static bool give_back(struct connection *c, struct returned_block *b)
{
	struct shared *s = c->shared;
	bool here;

	registry_lock();
	here = !s->ended && append(&s->returned, b);
	if (here)
		shared_tell_members(s, c->worker);
	registry_unlock();
	return here;
}

/* Adds a complete block, which the shared socket owns from now on, if there is one. */
static void add(struct connection *c, struct returned_block *b)
{
	if (!c->shared || !give_back(c, b)) {
		lose(c, b->datagrams);
		free_block(b);
	}
}

/* Drops the block: the rest of its datagram will not be kept. */
static void give_up(struct connection *c, struct returned_block *b)
{
	c->datagrams->returning = NULL;
	c->datagrams->skipping = b->missing;
	lose(c, b->datagrams);
	free_block(b);
}

/* The message begins with the rest, or a further part, of the last message's last datagram. */
static void go_on(struct connection *c, struct xts_datagram_cursor *cursor)
{
	struct returned_block *b = c->datagrams->returning, *larger;
	uint32_t bytes = b->missing < cursor->left ? b->missing : cursor->left;

	if (!tenant_take(c->tenant, XTS_USE_KEPT_BYTES, bytes)) {
		give_up(c, b);
		return;
	}
	larger = realloc(b, sizeof *b + b->bytes + bytes);
	if (!larger) {
		tenant_give(c->tenant, XTS_USE_KEPT_BYTES, bytes);
		give_up(c, b);
		return;
	}
	b = c->datagrams->returning = larger;
	copy(b->records + b->bytes, cursor, bytes);
	b->bytes += bytes;
	b->missing -= bytes;
	if (b->missing)
		return;
	c->datagrams->returning = NULL;
	add(c, b);
}

/* Handles a message that begins with a record. Returns what is wrong, or NULL. */
static const char *begin(struct connection *c, struct xts_datagram_cursor *cursor, bool more)
{
	uint32_t bytes = cursor->left;
	struct returned_block *b = malloc(sizeof *b + bytes);
	const char *wrong;

	if (!b)
		return "no memory for returned datagrams";
	*b = (struct returned_block){ .bytes = bytes };
	copy(b->records, cursor, bytes);
	wrong = check(c, b, more);
	if (wrong) {
		free(b);
		return wrong;
	}
	if (!tenant_take(c->tenant, XTS_USE_KEPT_BYTES, charge(bytes))) {
		lose(c, b->datagrams);
		c->datagrams->skipping = b->missing;
		free(b);
		return NULL;
	}
	b->tenant = tenant_hold(c->tenant);
	if (b->missing)
		c->datagrams->returning = b;
	else
		add(c, b);
	return NULL;
}

/* Skips the rest of a datagram whose beginning was dropped. */
static void skip(struct connection *c, struct xts_datagram_cursor *cursor)
{
	while (cursor->left && c->datagrams->skipping) {
		struct iovec iov[XTS_SEGMENTS_MAX];
		uint32_t count = XTS_SEGMENTS_MAX;

		c->datagrams->skipping -= xts_datagram_data(cursor, c->datagrams->skipping, iov, &count);
	}
}

static const char *take_message(struct connection *c, struct xts_datagram_cursor *cursor, bool more)
{
	struct datagrams *d = c->datagrams;

	if (d->returning)
		go_on(c, cursor);
	skip(c, cursor);
	if (cursor->left)
		return begin(c, cursor, more);
	return more == (d->returning || d->skipping) ? NULL : "MORE, and no datagram that goes on";
}

/* A pending error that the program of the host has not been told: it is for the next member that uses the socket. */
static void give_back_error(struct connection *c, int error)
{
	struct shared *s = c->shared;

	if (!s || atomic_load(&s->ended)) {
		datagram_fails(c, error); /* nobody else has the socket, or it is about its end */
		return;
	}
	registry_lock();
	atomic_store(&s->returned.error, (uint16_t)error);
	shared_tell_members(s, c->worker);
	registry_unlock();
}

bool datagram_has_returned_error(const struct connection *c)
{
	return c->shared && atomic_load_explicit(&c->shared->returned.error, memory_order_relaxed);
}

void datagram_take_returned_error(struct connection *c)
{
	int error = datagram_has_returned_error(c) ? atomic_exchange(&c->shared->returned.error, 0) : 0;

	if (error)
		datagram_fails(c, error);
}

enum command_result command_return_datagrams(struct channel *ch, const struct xts_head *head,
					     const struct xts_return_datagrams *m, struct batch_entry *e)
{
	struct connection *c = connection_find(ch, head->id);
	struct xts_datagram_cursor cursor;
	const char *wrong;

	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return COMMAND_DONE;
	}
	if (c->state != CONNECTION_DATAGRAM || c->close_reply || c->datagrams->closing) {
		channel_violation(ch, "datagrams are returned that were not received on a shared socket", head->id);
		return COMMAND_DONE;
	}
	if (head->error > ERROR_MAX) {
		channel_violation(ch, "an error is returned that no socket has", head->id);
		return COMMAND_DONE;
	}
	if (head->error)
		give_back_error(c, head->error);
	if (!m->length)
		return COMMAND_DONE;
	xts_datagram_begin(&cursor, &e->frame, XTS_RETURN_DATAGRAMS_BYTES, m->length);
	wrong = take_message(c, &cursor, head->flags & XTS_FLAG_MORE);
	if (wrong)
		channel_violation(ch, wrong, head->id);
	return COMMAND_DONE;
}

static void drop_block(struct connection *c, struct returned_block **block)
{
	if (!*block)
		return;
	lose(c, (*block)->datagrams);
	free_block(*block);
	*block = NULL;
}

void datagram_drop_returning(struct connection *c)
{
	drop_block(c, &c->datagrams->returning);
	drop_block(c, &c->datagrams->come);
}

/* --- to another process of the proxy, and from one ------------------------------------------------------------------ */

int returned_copy(const struct returned_datagrams *r, struct xts_record_bytes *out)
{
	uint32_t bytes = 0;
	uint8_t *all;

	for (const struct returned_block *b = r->first; b; b = b->next)
		bytes += b->bytes - b->at;
	all = bytes ? malloc(bytes) : NULL;
	if (bytes && !all)
		return -ENOMEM;
	*out = (struct xts_record_bytes){ .data = all, .bytes = bytes };
	for (const struct returned_block *b = r->first; b; b = b->next) {
		memcpy(all, b->records + b->at, b->bytes - b->at);
		all += b->bytes - b->at;
	}
	return 0;
}

struct xts_record_bytes datagram_returning(const struct connection *c)
{
	const struct returned_block *b = c->datagrams->returning;

	return b ? (struct xts_record_bytes){ .data = b->records, .bytes = b->bytes } : (struct xts_record_bytes){ 0 };
}

/* A block of records that were checked: 0 or -ENOMEM. It exists, whatever the limits are here. */
static int make_again(struct connection *c, const struct xts_record_bytes *records, struct returned_block **out)
{
	struct returned_block *b = records->bytes ? malloc(sizeof *b + records->bytes) : NULL;
	struct xts_datagram d;
	uint32_t at = 0;

	if (!b)
		return records->bytes ? -ENOMEM : 0;
	*b = (struct returned_block){ .bytes = records->bytes };
	memcpy(b->records, records->data, records->bytes);
	while (datagram_record_next(records, &at, &d, &b->missing))
		b->datagrams++;
	tenant_take_anyway(c->tenant, XTS_USE_KEPT_BYTES, charge(b->bytes));
	b->tenant = tenant_hold(c->tenant);
	*out = b;
	return 0;
}

int datagram_take_returned(struct connection *c, const struct datagram_side *s)
{
	int error = make_again(c, &s->returned, &c->datagrams->come);

	if (!error)
		error = make_again(c, &s->returning, &c->datagrams->returning);
	c->datagrams->come_error = s->returned_error;
	c->datagrams->skipping = s->skipping;
	return error;
}

void returned_join_shared(struct shared *s, struct connection *c)
{
	struct datagrams *d = c->datagrams;

	if (d->come && append(&s->returned, d->come))
		d->come = NULL;
	if (d->come_error)
		atomic_store(&s->returned.error, (uint16_t)d->come_error);
	d->come_error = 0;
}

/* --- to a host ---------------------------------------------------------------------------------------------------- */

bool returned_drop_block(struct returned_datagrams *r)
{
	struct returned_block *b = r->first;

	if (!b)
		return false;
	r->blocks--;
	r->first = b->next;
	if (!r->first) {
		r->last = NULL;
		atomic_store(&r->any, false);
	}
	free_block(b);
	return true;
}

const uint8_t *returned_first(const struct returned_datagrams *r, struct xts_datagram *d)
{
	const struct returned_block *b = r->first;
	int head;

	if (!b)
		return NULL;
	head = xts_datagram_read(d, b->records + b->at, b->bytes - b->at);
	if (head < 0)
		abort(); /* it was checked on arrival */
	return b->records + b->at + head;
}

void returned_taken(struct returned_datagrams *r)
{
	struct returned_block *b = r->first;
	struct xts_datagram d;

	b->at += (uint32_t)xts_datagram_read(&d, b->records + b->at, b->bytes - b->at);
	b->at += d.record.data_bytes;
	if (b->at == b->bytes)
		(void)returned_drop_block(r);
}

bool datagrams_have_returned(const struct connection *c)
{
	return c->shared && atomic_load_explicit(&c->shared->returned.any, memory_order_relaxed);
}
