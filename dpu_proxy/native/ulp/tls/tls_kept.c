/* A TLS connection is written down for the next process; see tls_kept.h. */
#include "tls_kept.h"

#include <errno.h>
#include <string.h>

#include "tls_ours.h"
#include "ulp/lasting.h"
#include "ulp/tls_keys/key_memory.h"

/* --- what changes ------------------------------------------------------------------------------------------------- */

void tls_kept_sent(struct tls *t)
{
	struct tls_kept *k = &t->ours->kept;

	if (!k->on)
		return;
	tls_kept_tears(t);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	k->sequence = t->ours->out.sequence;
	k->records = t->records;
	k->notified = t->notified;
	memcpy(k->explicit_nonce, t->ours->out.explicit_nonce, sizeof k->explicit_nonce);
	k->sum = tls_kept_sum(k);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(volatile uint8_t *)&k->torn = k->changes;
}

void tls_kept_sealed(struct tls *t, const uint8_t *end, uint32_t bytes)
{
	struct tls_kept *k = &t->ours->kept;

	if (!k->on)
		return;
	tls_kept_tears(t);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	k->sealed += bytes;
	k->end = lasting_offset(end);
	tls_kept_sent(t);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static bool write_about(const struct tls *t, struct tls_kept *k)
{
	const struct tls_about *a = t->about;

	k->cipher = t->ours->out.cipher->type;
	k->cipher_id = a->cipher_id;
	k->resumed = a->resumed;
	k->verified = a->verified;
	k->name_bytes = a->name_bytes;
	k->alpn_bytes = a->alpn_bytes;
	k->cipher_bytes = (uint16_t)strlen(a->cipher);
	k->text = lasting_offset(a->text);
	k->chain = a->chain ? lasting_offset(a->chain->der) : 0;
	k->chain_bytes = a->chain ? a->chain->bytes : 0;
	k->own_bytes = a->chain ? a->chain->own_bytes : 0;
	return k->text && (k->chain || !a->chain);
}

static const uint8_t *end_of(const struct ulp_out *o)
{
	return o->bytes ? o->data + o->first + o->bytes : NULL;
}

int tls_keep(struct ulp_layer *l, struct ulp_kept *counts)
{
	struct tls *t = l->state;
	struct tls_kept *k = t->ours ? &t->ours->kept : NULL;

	if (!t->done || t->failed || t->part || t->in_pdu || tls_kept_because(t))
		return -EOPNOTSUPP;
	if (!k->on && !write_about(t, k))
		return -ENOMEM;
	k->client = t->client;
	k->keeps_session = t->keeps_session;
	k->crypto = t->crypto;
	k->record_max = t->record_max;
	k->reason = t->crypto_reason;
	k->sealed = counts->written;
	*(volatile bool *)&k->on = true;
	tls_kept_sealed(t, end_of(&t->out), t->out.bytes);
	tls_in_keep(&t->ours->in, &k->in, counts->read);
	*counts = (struct ulp_kept){ .read = t->ours->in.delivered,
				     .written = k->taken,
				     .place = key_memory_place(t->ours) };
	return 0;
}
