/*
 * Connections that have a key while a channel holds them, and how other processes take them. share.h has the theory of
 * operation.
 *
 * The registry's entry (struct held) belongs to its connection, and so to that connection's worker. Another worker that
 * asks for the connection writes the purpose into the entry, under the lock, and pokes the first worker, which sends
 * YIELD. Nobody waits here: the request is answered at once with EBUSY (the holder has been asked) or EAGAIN (the
 * holder has answered that it needs the connection), and the process that wants the connection repeats it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "channel/ledger.h"
#include "processes/move_record.h"
#include "processes/share.h"
#include "pushed/pushed.h"

static struct held *held_of(struct keyed *k)
{
	return k ? list_entry(k, struct held, keyed) : NULL;
}

bool held_tell(const struct connection *c, struct move_note *n)
{
	if (!c->key_held)
		return false;
	registry_lock();
	n->name = c->key_held->keyed.key; /* its host may have changed it */
	registry_unlock();
	n->kind = NOTE_HELD;
	n->keep_ms = c->key_held->keep_ms;
	return true;
}

/* With the lock held. Makes the entry for c, which has none yet; NULL with *error. */
static struct held *add(struct connection *c, uint64_t key, uint32_t keep_ms, int *error)
{
	struct held *h = calloc(1, sizeof *h);

	*error = h ? registry_add(&h->keyed, c->tenant, key, KEYED_HELD) : ENOBUFS;
	if (*error) {
		free(h);
		return NULL;
	}
	list_init(&h->wanted);
	h->channel = c->channel;
	h->connection = c;
	h->worker = c->worker;
	h->keep_ms = keep_ms;
	c->key_held = h;
	return h;
}

int held_name(struct connection *c, uint64_t key, uint32_t keep_ms)
{
	struct held *h = c->key_held;
	bool renews = h && h->keyed.key != key;
	int error = 0;

	if (!key || (renews && !(c->channel->link.features & XTS_FEATURE_RENEW_KEY)))
		return EINVAL;
	registry_lock();
	if (renews)
		error = registry_rename(&h->keyed, key);
	if (h && !error) {
		h->keep_ms = keep_ms;
		h->answered = true;
	} else if (!h && keep_ms) {
		(void)add(c, key, keep_ms, &error);
	}
	registry_unlock();
	if (!keep_ms && !error)
		held_forget(c);
	if (!error)
		ledger_named(c);
	return error;
}

void held_remove(struct connection *c)
{
	struct held *h = c->key_held;

	c->key_held = NULL;
	registry_remove(&h->keyed);
	list_remove(&h->wanted);
	free(h);
}

void held_forget(struct connection *c)
{
	if (!c->key_held)
		return;
	registry_lock();
	held_remove(c);
	registry_unlock();
}

/* Has the holder asked, unless it has been asked for the same purpose or more and has not answered yet: a YIELD is
 * never lost. */
static int ask(struct held *h, uint32_t purpose)
{
	int error = h->answered ? EAGAIN : EBUSY;

	if (!purpose)
		return EBUSY;
	if (h->answered) {
		h->answered = false;
		h->asked = 0;
	}
	if (purpose <= h->asked)
		return error;
	h->asked = h->purpose = (uint8_t)purpose;
	if (list_empty(&h->wanted)) {
		list_append(&h->worker->wanted, &h->wanted);
		worker_poke(h->worker);
	}
	return error;
}

void held_again(struct connection *c, uint64_t key, const struct taken_over *of)
{
	int error;
	struct held *h = of->keep_ms ? add(c, key, of->keep_ms, &error) : NULL;

	if (!h) {
		take_queue_free(of->queue, c->tenant); /* it belongs to this process, and nobody can ask for it */
		return;
	}
	h->keyed.queue = of->queue;
	take_queue_served(&h->keyed, c->channel);
}

/* It may come, or be claimed by the process that has it. */
static int arrived(const struct channel *ch, uint64_t key, struct keyed **k)
{
	*k = registry_find(ch->tenant, key, KEYED_ARRIVED);
	return *k ? EBUSY : registry_unknown(ch->tenant, ch->worker->now_ns);
}

struct connection *held_take(struct channel *ch, uint64_t key, uint32_t purpose, struct taken_over *out, int *error)
{
	struct connection *c = NULL;
	struct keyed *k;

	registry_lock();
	k = registry_find(ch->tenant, key, KEYED_PARKED);
	if (k) {
		c = parked_take(ch, k, purpose, out, error);
		if (c)
			held_again(c, key, out);
	} else {
		struct held *h = held_of(registry_find(ch->tenant, key, KEYED_HELD));

		*error = h ? h->channel == ch ? EISCONN : ask(h, purpose) : arrived(ch, key, &k);
		k = h ? &h->keyed : k;
	}
	if (k && purpose && (*error == EBUSY || *error == EAGAIN))
		take_queue_wait(k, ch, purpose);
	registry_unlock();
	if (c)
		parked_taken(c);
	return c;
}

void held_poked(struct worker_state *w)
{
	registry_lock();
	while (!list_empty(&w->wanted)) {
		struct held *h = list_entry(list_pop(&w->wanted), struct held, wanted);

		h->yield_due = h->purpose;
		h->purpose = 0;
		connection_wake(h->connection);
	}
	registry_unlock();
}

bool held_has_news(const struct connection *c)
{
	return c->key_held && c->key_held->yield_due && !c->close_reply && !c->connect_reply && !c->announced;
}

void held_send_yield(struct connection *c, const struct xts_tx_slot *slot)
{
	struct xts_yield m = { .purpose = c->key_held->yield_due };

	c->key_held->yield_due = 0;
	xts_head_encode(slot->data, XTS_REPLY_YIELD, 0, 0, c->xts_socket);
	xts_yield_encode(slot->data, &m);
	channel_submit(c->channel, slot, XTS_YIELD_BYTES);
}
