/* What the process before has written down of a TLS connection (tls_kept.h). It may have been broken into: nothing here
 * is more than bytes until it has been through the decoder of records, as if it had come from another process
 * (tls_move.c). */
#include "tls_kept.h"

#include <stdlib.h>
#include <string.h>

#include "tls_direction.h"
#include "ulp/lasting.h"
#include "ulp/tls_keys/key_memory.h"

#define WAITS_MAX (16u << 20) /* as of a record */
#define CHAIN_MAX (256u << 10)
#define TEXT_MAX 255u

/* Enough of a connection for its record to be written. */
struct tls_came {
	struct tls t;
	struct tls_ours *ours; /* a copy, in the memory for keys */
	uint8_t *out, *in;
	struct tls_chain *chain;
	uint8_t text[3 * TEXT_MAX + 1];
};

/* A copy of these bytes of lasting memory. False: there are no such, or there is no memory. */
static bool copy(uint64_t offset, uint64_t bytes, uint8_t **out)
{
	const uint8_t *from = lasting_at(offset, bytes);

	*out = bytes && from ? malloc(bytes) : NULL;
	if (*out)
		memcpy(*out, from, bytes);
	return *out || !bytes;
}

/* --- what waits --------------------------------------------------------------------------------------------------- */

static bool take_sent(struct tls_came *c, uint64_t written)
{
	const struct tls_kept *k = &c->ours->kept;
	uint64_t waits = k->sealed - written;

	if (k->torn || k->sum != tls_kept_sum(k) || c->ours->out.sequence != k->sequence ||
	    memcmp(k->explicit_nonce, c->ours->out.explicit_nonce, sizeof k->explicit_nonce) || waits > WAITS_MAX ||
	    (waits && k->end <= waits) || !copy(k->end - waits, waits, &c->out))
		return false;
	c->t.out = (struct ulp_out){ .data = c->out, .bytes = (uint32_t)waits };
	c->t.records = k->records;
	c->t.notified = k->notified;
	c->t.record_max = k->record_max;
	return true;
}

static bool take_received(struct tls_came *c, uint64_t read)
{
	const struct tls_in_kept *k = &c->ours->kept.in;
	uint64_t more = read - k->read, bytes;
	struct tls_record_in *in = &c->ours->in;

	if (k->torn || k->sum != tls_in_sum(k) || more > TLS_IN_BYTES)
		return false;
	bytes = k->bytes + more;
	if ((more && bytes > k->room) || bytes > WAITS_MAX || !copy(k->at, bytes, &c->in))
		return false;
	in->data = c->in;
	in->first = 0;
	in->bytes = (uint32_t)bytes;
	in->opened = k->opened;
	in->type = k->type;
	in->payload_bytes = k->payload_bytes;
	in->taken = k->taken;
	in->aead.sequence = k->sequence;
	in->delivered = k->delivered;
	in->ended = k->ended;
	return true;
}

/* --- what is known ------------------------------------------------------------------------------------------------ */

static bool take_chain(struct tls_came *c)
{
	const struct tls_kept *k = &c->ours->kept;
	const uint8_t *from = lasting_at(k->chain, k->chain_bytes);

	if (!k->chain_bytes)
		return true;
	if (!from || k->chain_bytes > CHAIN_MAX)
		return false;
	c->chain = calloc(1, sizeof *c->chain + k->chain_bytes);
	if (!c->chain)
		return false;
	c->chain->bytes = k->chain_bytes;
	c->chain->own_bytes = k->own_bytes;
	memcpy(c->chain->der, from, k->chain_bytes);
	return true;
}

static bool take_about(struct tls_came *c)
{
	const struct tls_kept *k = &c->ours->kept;
	uint32_t bytes = (uint32_t)k->name_bytes + k->alpn_bytes + k->cipher_bytes;
	const uint8_t *text = lasting_at(k->text, bytes);

	if (!text || k->name_bytes > TEXT_MAX || k->alpn_bytes > TEXT_MAX || k->cipher_bytes > TEXT_MAX)
		return false;
	memcpy(c->text, text, bytes);
	return take_chain(c);
}

/* Numbers by which others index. */
static bool is_possible(const struct tls_ours *o)
{
	return o->kept.on && o->send_secret.bytes <= sizeof o->send_secret.data &&
	       o->receive_secret.bytes <= sizeof o->receive_secret.data &&
	       o->message.head_bytes <= sizeof o->message.head && tls_cipher_find(o->kept.cipher);
}

static bool take(struct tls_came *c, uint64_t read, uint64_t written)
{
	struct tls_ours *o = c->ours;

	if (!is_possible(o))
		return false;
	o->out.cipher = o->in.aead.cipher = tls_cipher_find(o->kept.cipher);
	o->out.ctx = o->in.aead.ctx = NULL;
	o->idle = (struct tls_idle){ 0 };
	c->t.ours = o;
	c->t.client = o->kept.client;
	c->t.crypto = o->kept.crypto;
	c->t.keeps_session = o->kept.keeps_session;
	c->t.crypto_reason = tls_fallback_is(o->kept.reason);
	return take_sent(c, written) && take_received(c, read) && take_about(c);
}

size_t tls_came_bytes(void)
{
	return sizeof(struct tls_ours);
}

struct tls_came *tls_came_take(void *at, uint64_t read, uint64_t written)
{
	struct tls_came *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->ours = key_memory_take(sizeof *c->ours);
	if (c->ours) {
		memcpy(c->ours, at, sizeof *c->ours);
		explicit_bzero(at, sizeof *c->ours);
		if (take(c, read, written))
			return c;
	}
	tls_came_free(c);
	return NULL;
}

void tls_came_free(struct tls_came *c)
{
	if (!c)
		return;
	key_memory_give(c->ours);
	free(c->out);
	free(c->in);
	free(c->chain);
	explicit_bzero(c, sizeof *c);
	free(c);
}

/* --- as a record -------------------------------------------------------------------------------------------------- */

void tls_came_counts(const struct tls_came *c, struct ulp_kept *k)
{
	*k = (struct ulp_kept){ .read = c->ours->in.delivered, .written = c->ours->kept.taken };
}

bool tls_came_is_client(const struct tls_came *c)
{
	return c->t.client;
}

ssize_t tls_came_save(const struct tls_came *c, void *out, size_t room)
{
	const struct tls_kept *k = &c->ours->kept;
	const struct tls_about_text about = {
		.cipher_id = k->cipher_id,
		.resumed = k->resumed,
		.verified = k->verified,
		.server_name = { c->text, k->name_bytes },
		.alpn = { c->text + k->name_bytes, k->alpn_bytes },
		.cipher = { c->text + k->name_bytes + k->alpn_bytes, k->cipher_bytes },
		.chain = c->chain,
	};

	return tls_save_as(&c->t, &about, out, room);
}
