/*
 * A TLS connection goes to another process of the proxy: all that is known of it as one record, with both directions
 * (tls_direction.h). There is one owner: who has written the record wipes the directions before anybody reads it, so
 * that no number is used twice under one key. Records that were sealed and not sent go as they are.
 *
 * Only what our record layer carries can go. An SSL that stays for a client's tickets ends (tls_tickets.c): a ticket
 * that comes later is dropped, and so is the session's place in the cache, which is of this process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tls_direction.h"
#include "ulp/lasting.h"
#include "ulp/tls_keys/key_memory.h"

/* --- giving ------------------------------------------------------------------------------------------------------- */

const char *tls_stays(const struct ulp_layer *l)
{
	const struct tls *t = l->state;

	if (!t->done || t->failed)
		return "it shakes hands, or has failed";
	return tls_kept_because(t);
}

static struct xts_record_bytes text_of(const char *text)
{
	return (struct xts_record_bytes){ (const uint8_t *)text, text ? (uint32_t)strlen(text) : 0 };
}

static void describe_about(const struct tls_about_text *a, struct tls_state *s)
{
	s->cipher_id = a->cipher_id;
	s->resumed = a->resumed;
	s->verified = a->verified;
	s->cipher = a->cipher;
	s->server_name = a->server_name;
	s->alpn = a->alpn;
	if (!a->chain)
		return;
	s->chain = (struct xts_record_bytes){ a->chain->der, a->chain->bytes };
	s->own_bytes = a->chain->own_bytes;
}

ssize_t tls_save_as(const struct tls *t, const struct tls_about_text *a, void *out, size_t room)
{
	struct xts_record_attached attached;
	struct tls_state s = { .client = t->client, .in_pdu = t->in_pdu, .crypto = t->crypto };
	ssize_t n;

	s.receive = tls_direction_describe(t, false);
	s.send = tls_direction_describe(t, true);
	s.part = (struct xts_record_bytes){ t->part, t->part_bytes };
	s.reason = text_of(t->crypto_reason);
	s.keeps_session = t->keeps_session;
	describe_about(a, &s);
	n = xts_record_encode(&tls_state_record, tls_state_record.version, &s, out, room, &attached);
	OPENSSL_cleanse(&s, sizeof s);
	return n;
}

ssize_t tls_save(const struct ulp_layer *l, void *out, size_t room)
{
	struct tls *t = l->state;
	const struct tls_about *a = t->about;
	const struct tls_about_text about = {
		.cipher_id = a->cipher_id,
		.resumed = a->resumed,
		.verified = a->verified,
		.cipher = text_of(a->cipher),
		.server_name = { a->text, a->name_bytes },
		.alpn = { a->text + a->name_bytes, a->alpn_bytes },
		.chain = a->chain,
	};

	if (t->ssl) {
		tls_give_ssl(t);
		tls_recount(t);
	}
	if (!tls_direction_is_here(t, true) || !tls_direction_is_here(t, false))
		return -EBUSY;
	return tls_save_as(t, &about, out, room);
}

void tls_wipe(struct ulp_layer *l)
{
	struct tls *t = l->state;

	tls_direction_wipe(t, true);
	tls_direction_wipe(t, false);
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

static struct tls_chain *chain_of(const struct tls_state *s)
{
	struct tls_chain *c = lasting_take(sizeof *c + s->chain.bytes);

	if (!c)
		return NULL;
	memset(c, 0, sizeof *c);
	c->bytes = s->chain.bytes;
	c->own_bytes = s->own_bytes;
	memcpy(c->der, s->chain.data, c->bytes);
	if (EVP_Digest(c->der, c->bytes, c->hash, NULL, EVP_sha256(), NULL) == 1)
		return c;
	lasting_give(c);
	return NULL;
}

static int take_about(struct tls *t, const struct tls_state *s)
{
	const struct xts_record_bytes texts[] = { s->server_name, s->alpn, s->cipher };
	uint32_t bytes = s->server_name.bytes + s->alpn.bytes + s->cipher.bytes;
	struct tls_about *a = lasting_take(sizeof *a + bytes + 1);
	uint8_t *to;

	if (!a)
		return -ENOMEM;
	memset(a, 0, sizeof *a + bytes + 1);
	t->about = a;
	to = a->text;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		if (texts[i].bytes)
			memcpy(to, texts[i].data, texts[i].bytes);
		to += texts[i].bytes;
	}
	a->version = s->receive.tls13 ? TLS1_3_VERSION : TLS1_2_VERSION;
	a->cipher_id = s->cipher_id;
	a->cipher = (const char *)to - s->cipher.bytes; /* with a NUL behind it */
	a->name_bytes = (uint16_t)s->server_name.bytes;
	a->alpn_bytes = (uint16_t)s->alpn.bytes;
	a->resumed = s->resumed;
	a->verified = s->verified;
	a->chain = s->chain.bytes ? chain_of(s) : NULL;
	if (s->chain.bytes && !a->chain)
		return -ENOMEM;
	tls_about_share(t);
	return 0;
}

static int take_directions(struct tls *t, const struct tls_state *s)
{
	struct tls_ours *o = key_memory_take(sizeof *o);
	int r;

	if (!o)
		return -ENOMEM;
	t->ours = o;
	o->tls13 = s->receive.tls13;
	o->digest = s->send.secret_bytes == 48 ? EVP_sha384() : EVP_sha256();
	o->in.one_fault = true;
	r = tls_direction_take(t, false, &s->receive);
	return r ? r : tls_direction_take(t, true, &s->send);
}

static int take_part(struct tls *t, const struct tls_state *s)
{
	t->in_pdu = s->in_pdu;
	if (!s->part.bytes)
		return 0;
	t->part = malloc(TLS_RECORD_BYTES);
	if (!t->part)
		return -ENOMEM;
	memcpy(t->part, s->part.data, s->part.bytes);
	t->part_bytes = s->part.bytes;
	return 0;
}

/* What bounds cannot say; of directions tls_direction_take() does. */
static bool is_possible(const struct tls_state *s)
{
	return s->send.tls13 == s->receive.tls13 && s->send.secret_bytes == s->receive.secret_bytes &&
	       s->own_bytes <= s->chain.bytes && s->part.bytes <= s->send.payload_max && (s->in_pdu || !s->part.bytes);
}

static int take(struct tls *t, const struct tls_state *s)
{
	int r = is_possible(s) ? 0 : -EBADMSG;

	if (!r)
		r = take_directions(t, s);
	if (!r)
		r = take_about(t, s);
	if (!r)
		r = take_part(t, s);
	if (r)
		return r;
	tls_send_lengths(t, t->record_max);
	t->client = s->client;
	t->done = true;
	t->crypto = s->crypto;
	t->send_by = t->receive_by = XTS_TLS_CRYPTO_USER;
	t->crypto_reason = tls_fallback_named(s->reason.data, s->reason.bytes);
	t->keeps_session = s->keeps_session;
	tls_recount(t);
	return 0;
}

int tls_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	const struct xts_record_attached nothing = { 0 };
	struct tls *t = calloc(1, sizeof *t);
	struct tls_state s;
	int r;

	if (!t)
		return -ENOMEM;
	l->state = t;
	t->layer = l;
	r = xts_record_decode(&tls_state_record, state, bytes, &nothing, &s);
	if (r)
		return r;
	r = take(t, &s);
	xts_record_drop(&tls_state_record, &s);
	OPENSSL_cleanse(&s, sizeof s);
	return r;
}
