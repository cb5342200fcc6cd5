/* Records that our record layer sends: data, alerts, and KeyUpdate, after which there are other keys. */
#include <errno.h>
#include <string.h>

#include "tls_ours.h"

/* What one key may encrypt (RFC 8446 5.5; RFC 9147 B.1 for CCM, of which a quarter is taken). */
#define RECORDS_MAX (1u << 24)
#define RECORDS_MAX_CCM (1u << 21)

#define SHORT_BYTES 4096u
#define FIRST_BYTES 32768u /* two round trips of TCP */
#define PAUSE_NS UINT64_C(1000000000)

static int fail(struct tls *t, const char *why)
{
	t->failed = ulp_fail(t->layer, XTS_FAULT_RECORD, "no TLS record can be made: %s", why);
	return t->failed;
}

/* Seals one record behind what waits to be sent. It is sealed once: what TCP does not take is kept as it is. */
static int seal(struct tls *t, uint8_t type, const struct iovec *iov, int pieces, size_t skip, uint32_t bytes)
{
	struct tls_ours *o = t->ours;
	uint8_t *out = tls_bio_room(t, TLS_HEADER_BYTES + bytes + tls_aead_overhead(&o->out));
	ssize_t n;

	if (!out)
		return t->failed = t->below_error;
	n = tls_aead_seal(&o->out, type, iov, pieces, skip, bytes, out);
	if (n < 0)
		return fail(t, strerror((int)-n));
	tls_bio_add(t, out, (uint32_t)n);
	if (type == TLS_APPLICATION_DATA) {
		tls_kept_tears(t);
		o->kept.taken += bytes;
	}
	tls_kept_sealed(t, out + n, (uint32_t)n);
	return 0;
}

static int seal_bytes(struct tls *t, uint8_t type, const void *data, uint32_t bytes)
{
	struct iovec piece = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };

	return seal(t, type, &piece, 1, 0, bytes);
}

int tls_seal_alert(struct tls *t, uint8_t level, uint8_t alert)
{
	uint8_t record[] = { level, alert };

	return seal_bytes(t, TLS_ALERT, record, sizeof record);
}

/* The last record under the old keys says that there are others from now on. */
static int update(struct tls *t)
{
	static const uint8_t message[] = { SSL3_MT_KEY_UPDATE, 0, 0, 1, SSL_KEY_UPDATE_NOT_REQUESTED };
	struct tls_ours *o = t->ours;
	union tls_crypto_info_any info;
	int r = seal_bytes(t, TLS_HANDSHAKE, message, sizeof message);

	if (r)
		return r;
	o->kept.changes = true;
	tls_kept_tears(t);
	o->update_due = false;
	t->records = 0;
	if (!tls_secret_next(&o->send_secret, o->digest) ||
	    !tls_secret_keys(&o->send_secret, o->digest, o->out.cipher, &info) || tls_aead_set(&o->out, &info, true))
		r = fail(t, "there are no other keys");
	OPENSSL_cleanse(&info, sizeof info);
	o->kept.changes = false;
	tls_kept_sent(t);
	return r;
}

static void count(struct tls *t)
{
	uint32_t most = tls_config_of(t)->settings.rekey_records;
	struct tls_ours *o = t->ours;
	uint32_t safe = o->out.cipher->ccm ? RECORDS_MAX_CCM : RECORDS_MAX;

	if (++t->records < (most < safe ? most : safe) || !o->tls13 || o->update_due)
		return;
	o->update_due = true;
	tls_count(&tls_counters.key_updates);
}

/*
 * How long the next record of data may be. A peer can open a record only when it has all of it. So the first ones after
 * a pause are short: a long one is more than TCP sends before the first acknowledgement (ten segments), and takes long
 * on a slow link. What follows is in long ones, which cost less.
 */
static uint32_t longest_record(struct tls *t)
{
	uint64_t now = ulp_now_ns(t->layer);

	if (now - t->sent_ns > PAUSE_NS)
		t->burst_bytes = 0;
	t->sent_ns = now;
	return t->in_stream && t->burst_bytes < FIRST_BYTES && t->record_max > SHORT_BYTES ? SHORT_BYTES : t->record_max;
}

ssize_t tls_seal_data(struct tls *t, const struct iovec *iov, int pieces, size_t skip, size_t bytes)
{
	uint32_t longest = longest_record(t), n = bytes < longest ? (uint32_t)bytes : longest;
	int r = t->ours->update_due ? update(t) : 0;

	if (!r)
		r = seal(t, TLS_APPLICATION_DATA, iov, pieces, skip, n);
	if (r)
		return r;
	if (t->burst_bytes < FIRST_BYTES)
		t->burst_bytes += n;
	count(t);
	return n;
}
