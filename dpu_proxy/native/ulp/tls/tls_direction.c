/* Directions of TLS connections as records: see tls_direction.h. */
#include "tls_direction.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void describe_received(const struct tls *t, struct tls_direction *d)
{
	const struct tls_record_in *in = &t->ours->in;
	const struct tls_message *m = &t->ours->message;

	d->ended = t->ours->in.ended;
	d->waiting = (struct xts_record_bytes){ .data = in->data ? in->data + in->first : NULL, .bytes = in->bytes };
	d->opened = in->opened;
	if (in->opened) {
		d->type = in->type;
		d->payload_bytes = in->payload_bytes;
		d->taken = in->taken;
	}
	d->payload_max = in->payload_max;
	memcpy(d->message_head, m->head, m->head_bytes);
	d->message_head_bytes = m->head_bytes;
	d->message_first = m->first;
	d->in_message = m->in_body;
	d->message_left = m->left;
}

static void describe_sent(const struct tls *t, struct tls_direction *d)
{
	d->ended = t->notified;
	d->waiting = (struct xts_record_bytes){ .data = t->out.data ? t->out.data + t->out.first : NULL,
						.bytes = t->out.bytes };
	d->records = t->records;
	d->update_due = t->ours->update_due;
	d->payload_max = t->record_max;
}

struct tls_direction tls_direction_describe(const struct tls *t, bool send)
{
	const struct tls_ours *o = t->ours;
	const struct tls_aead *key = send ? &o->out : &o->in.aead;
	const struct tls_secret *secret = send ? &o->send_secret : &o->receive_secret;
	struct tls_direction d = { .tls13 = o->tls13, .cipher = key->cipher->type, .sequence = key->sequence };

	memcpy(d.secret, secret->data, secret->bytes);
	d.secret_bytes = secret->bytes;
	if (!o->tls13) {
		memcpy(d.iv, key->iv, key->cipher->explicit_bytes ? key->cipher->salt_bytes : sizeof d.iv);
		memcpy(d.explicit_nonce, key->explicit_nonce, key->cipher->explicit_bytes);
	}
	if (send)
		describe_sent(t, &d);
	else
		describe_received(t, &d);
	return d;
}

bool tls_direction_is_here(const struct tls *t, bool send)
{
	return t->ours && !t->ssl && (send ? &t->ours->out : &t->ours->in.aead)->cipher;
}

ssize_t tls_direction_write(const struct tls *t, bool send, void *out, size_t room)
{
	struct xts_record_attached attached;
	struct tls_direction d;
	ssize_t n;

	if (!tls_direction_is_here(t, send))
		return -EBUSY;
	d = tls_direction_describe(t, send);
	n = xts_record_encode(&tls_direction_record, tls_direction_record.version, &d, out, room, &attached);
	OPENSSL_cleanse(&d, sizeof d);
	return n;
}

void tls_direction_wipe(struct tls *t, bool send)
{
	struct tls_ours *o = t->ours;

	tls_kept_ends(t); /* before anybody else can have it */
	if (send) {
		tls_aead_clear(&o->out);
		tls_secret_forget(&o->send_secret);
		ulp_out_free(&t->out);
		return;
	}
	tls_in_free(&o->in);
	tls_secret_forget(&o->receive_secret);
	o->in = (struct tls_record_in){ .one_fault = true };
	o->message = (struct tls_message){ 0 };
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* What bounds cannot say. */
static bool is_possible(const struct tls_direction *d, const struct tls_cipher *c, bool send)
{
	uint32_t overhead = c ? c->tag_bytes + (d->tls13 ? 1u : c->explicit_bytes) : 0, body;

	if (!c || !d->payload_max || d->secret_bytes != (d->tls13 ? d->secret_bytes : c->key_bytes))
		return false;
	if (d->tls13 && d->secret_bytes != 32 && d->secret_bytes != 48)
		return false;
	if (d->in_message ? d->message_head_bytes != 4 : d->message_head_bytes == 4 || d->message_left)
		return false;
	if (!d->opened)
		return !d->payload_bytes && !d->taken;
	if (send || d->waiting.bytes < TLS_HEADER_BYTES)
		return false;
	body = (uint32_t)d->waiting.data[3] << 8 | d->waiting.data[4];
	return body >= overhead && d->payload_bytes <= body - overhead && d->taken <= d->payload_bytes &&
	       d->waiting.bytes >= TLS_HEADER_BYTES + body;
}

static int set_key(struct tls_aead *a, const struct tls_direction *d, const struct tls_secret *s,
		   const struct tls_cipher *c, bool send)
{
	const EVP_MD *digest = d->secret_bytes == 48 ? EVP_sha384() : EVP_sha256();
	union tls_crypto_info_any info;
	int r = -ENOMEM;

	if (!d->tls13)
		tls_secret_put(&info, c, s->data, d->iv, d->explicit_nonce);
	if (!d->tls13 || tls_secret_keys(s, digest, c, &info)) {
		tls_secret_put_number(&info, c, d->sequence);
		r = tls_aead_set(a, &info, send);
	}
	OPENSSL_cleanse(&info, sizeof info);
	return r;
}

static void take_received(struct tls *t, const struct tls_direction *d)
{
	struct tls_record_in *in = &t->ours->in;
	struct tls_message *m = &t->ours->message;

	t->ours->in.ended = d->ended;
	in->opened = d->opened;
	in->type = d->type;
	in->payload_bytes = d->payload_bytes;
	in->taken = d->taken;
	in->payload_max = d->payload_max;
	*m = (struct tls_message){ .head_bytes = d->message_head_bytes,
				   .first = d->message_first,
				   .in_body = d->in_message,
				   .left = d->message_left };
	memcpy(m->head, d->message_head, sizeof m->head);
}

static int put(struct tls *t, bool send, const struct tls_direction *d, const struct tls_cipher *c)
{
	struct tls_ours *o = t->ours;
	struct tls_secret *s = send ? &o->send_secret : &o->receive_secret;
	struct ulp_out waiting = { 0 };
	int r = d->waiting.bytes ? ulp_out_reserve(&waiting, t->layer, d->waiting.bytes) : 0;

	if (r)
		return r;
	ulp_out_put(&waiting, d->waiting.data, d->waiting.bytes);
	s->bytes = d->secret_bytes;
	memcpy(s->data, d->secret, s->bytes);
	r = set_key(send ? &o->out : &o->in.aead, d, s, c, send);
	if (r) {
		ulp_out_free(&waiting);
		tls_secret_forget(s);
		return r;
	}
	if (send) {
		t->out = waiting;
		t->notified = d->ended;
		t->records = d->records;
		t->record_max = d->payload_max;
		o->update_due = d->update_due;
		return 0;
	}
	tls_in_begin(&o->in, &waiting);
	take_received(t, d);
	return 0;
}

int tls_direction_take(struct tls *t, bool send, const struct tls_direction *d)
{
	const struct tls_cipher *c = tls_cipher_find(d->cipher);

	return d->tls13 == t->ours->tls13 && is_possible(d, c, send) ? put(t, send, d, c) : -EBADMSG;
}

int tls_direction_read(struct tls *t, bool send, const void *record, size_t bytes)
{
	const struct xts_record_attached nothing = { 0 };
	struct tls_direction d;
	int r = xts_record_decode(&tls_direction_record, record, bytes, &nothing, &d);

	if (r)
		return r;
	r = tls_direction_take(t, send, &d);
	xts_record_drop(&tls_direction_record, &d);
	OPENSSL_cleanse(&d, sizeof d);
	return r;
}

/* --- builds with XTS_DEBUG ---------------------------------------------------------------------------------------- */

#ifdef XTS_DEBUG

struct written {
	uint8_t *data;
	size_t bytes;
};

/* False: there is no memory for it. */
static bool write_record(const struct tls *t, bool send, struct written *w)
{
	ssize_t n = tls_direction_write(t, send, NULL, 0);

	if (n < 0)
		abort();
	w->bytes = (size_t)n;
	w->data = malloc(w->bytes);
	if (w->data && tls_direction_write(t, send, w->data, w->bytes) != n)
		abort(); /* its length changes */
	return w->data;
}

static void drop_record(struct written *w)
{
	OPENSSL_clear_free(w->data, w->bytes);
}

static void again(struct tls *t, bool send)
{
	struct written before, after;

	if (!write_record(t, send, &before))
		return;
	tls_direction_wipe(t, send);
	if (tls_direction_read(t, send, before.data, before.bytes))
		t->failed = ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for a direction");
	else if (write_record(t, send, &after)) {
		if (after.bytes != before.bytes || memcmp(after.data, before.data, after.bytes) != 0)
			abort(); /* something was lost */
		drop_record(&after);
	}
	drop_record(&before);
}

void tls_direction_again(struct tls *t)
{
	if (!t->ours || t->ssl || t->failed)
		return;
	again(t, true);
	again(t, false);
}

#else

void tls_direction_again(struct tls *t)
{
	(void)t;
}

#endif
