/*
 * How a connection leaves OpenSSL.
 *
 * OpenSSL shakes hands. Then the connection is two keys, two numbers and perhaps a part of a record, and these go into
 * our own record layer (tls_keys/tls_record.h), which costs a record a fraction of what SSL_write() costs it; the SSL,
 * of some 25 KB, is freed. What has to be known for that:
 *
 * The keys: tls_secret.c. The numbers: how many records OpenSSL has sent and read with these keys. In TLS 1.3 a server
 * has sent its tickets, and else there are none; in 1.2 there is each side's Finished. OpenSSL's message callback tells
 * of each record, and the counts begin again where the keys change: in 1.3 when the key log callback tells the secret,
 * in 1.2 at ChangeCipherSpec. What was read ahead: during the handshake OpenSSL reads no more than the record it needs,
 * so it is between two records at the end.
 *
 * The nonce that a record of AES carries in TLS 1.2: OpenSSL begins with a random one (CCM: with the number) and adds
 * one for each record. So we read the one of its Finished as it goes to the wire, and go on behind it. Nonces of
 * OpenSSL's and ours cannot meet.
 *
 * A number is never used twice under one key: from here on OpenSSL may seal what it likes (an alert about a ticket that
 * it cannot read), but nothing of it goes to the wire (tls_tickets.c).
 *
 * What stays with OpenSSL: ciphers that are not AEAD (CBC), connections of which the kernel has a key already, and what
 * the configuration says. Each is counted with its reason.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls_ours.h"
#include "ulp/config_inside.h"
#include "ulp/tls_keys/key_memory.h"

static const char *const reasons[] = {
	[TLS_OURS] = "",
	[TLS_KEPT_CONFIGURED] = "the proxy's configuration says openssl",
	[TLS_KEPT_CIPHER] = "the cipher is not an AEAD",
	[TLS_KEPT_KERNEL] = "the kernel has the other direction",
	[TLS_KEPT_MEMORY] = "the memory for keys is full: proxy.key_memory_mib",
	[TLS_KEPT_UNKNOWN] = "its keys or numbers are not known, or there was no memory",
};

const char *tls_carrier_name(uint8_t by)
{
	static const char *const names[] = {
		[XTS_TLS_CRYPTO_USER] = "ours",
		[XTS_TLS_CRYPTO_KERNEL] = "kernel",
		[XTS_TLS_CRYPTO_DEVICE] = "card",
	};

	return by && by < sizeof names / sizeof *names ? names[by] : "";
}

const char *tls_kept_because(const struct tls *t)
{
	if (t->send_by != XTS_TLS_CRYPTO_USER || t->receive_by != XTS_TLS_CRYPTO_USER)
		return "the kernel has its keys";
	return t->ours ? NULL : reasons[t->carrier];
}

void tls_carrier(const struct ulp_layer *l, bool receive, char *out, size_t room)
{
	const struct tls *t = l->state;
	uint8_t by = receive ? t->receive_by : t->send_by;

	if (t->ours || by != XTS_TLS_CRYPTO_USER)
		snprintf(out, room, "%s", tls_carrier_name(by));
	else
		snprintf(out, room, "openssl (%s)", reasons[t->carrier]);
}

/* --- during the handshake ----------------------------------------------------------------------------------------- */

void tls_leave_header(struct tls *t, bool write, const uint8_t *header)
{
	uint32_t *count = write ? &t->watch.sent : &t->watch.received;

	*count = header[0] == TLS_CHANGE_CIPHER_SPEC ? 0 : *count + 1;
}

void tls_leave_wire(struct tls *t, const uint8_t *data, size_t bytes)
{
	struct tls_watch *w = &t->watch;

	while (bytes) {
		size_t n, seen;

		if (w->seen >= TLS_HEADER_BYTES && !w->left)
			w->seen = 0; /* the next record */
		if (w->seen < TLS_HEADER_BYTES) {
			w->last[w->seen++] = *data++;
			bytes--;
			if (w->seen == TLS_HEADER_BYTES)
				w->left = (uint16_t)(w->last[3] << 8 | w->last[4]);
			continue;
		}
		n = bytes < w->left ? bytes : w->left;
		seen = n < sizeof w->last - w->seen ? n : sizeof w->last - w->seen;
		memcpy(w->last + w->seen, data, seen);
		w->seen = (uint8_t)(w->seen + seen);
		w->left = (uint16_t)(w->left - n);
		data += n;
		bytes -= n;
	}
}

/* --- the end of the handshake ------------------------------------------------------------------------------------- */

/* The nonce behind the one that OpenSSL's last record carried. */
static void put_nonce(const struct tls *t, const struct tls_cipher *c, union tls_crypto_info_any *info)
{
	uint8_t *nonce = info->bytes + sizeof info->info;

	if (!c->explicit_bytes)
		return;
	memcpy(nonce, t->watch.last + TLS_HEADER_BYTES, c->explicit_bytes);
	for (unsigned i = c->explicit_bytes; i-- && !++nonce[i];)
		;
}

/* For another owner: in TLS 1.2 the key is its own secret. */
static void keep_key(struct tls_secret *s, const union tls_crypto_info_any *info, const struct tls_cipher *c)
{
	s->bytes = c->key_bytes;
	memcpy(s->data, info->bytes + sizeof info->info + c->iv_bytes, c->key_bytes);
}

/* These keys are not known. */
#define UNKNOWN (-ENOKEY)

static int set_keys_12(struct tls *t, struct tls_ours *o, const struct tls_cipher *c)
{
	const struct tls_watch *w = &t->watch;
	union tls_crypto_info_any info;
	/* one record, of which the whole nonce was seen: Finished */
	bool seen = w->sent == 1 && w->received && w->seen == sizeof w->last && !w->left && w->last[0] == TLS_HANDSHAKE;
	int r = seen && tls_secret_keys_12(t->ssl, t->client, c, &info) ? 0 : UNKNOWN;

	if (!r) {
		tls_secret_put_number(&info, c, w->sent);
		put_nonce(t, c, &info);
		keep_key(&o->send_secret, &info, c);
		r = tls_aead_set(&o->out, &info, true);
	}
	if (!r)
		r = tls_secret_keys_12(t->ssl, !t->client, c, &info) ? 0 : UNKNOWN;
	if (!r) {
		tls_secret_put_number(&info, c, w->received);
		keep_key(&o->receive_secret, &info, c);
		r = tls_aead_set(&o->in.aead, &info, false);
	}
	OPENSSL_cleanse(&info, sizeof info);
	return r;
}

static int set_keys_13(struct tls *t, struct tls_ours *o, const struct tls_cipher *c)
{
	union tls_crypto_info_any info;
	int r;

	o->tls13 = true;
	o->digest = SSL_CIPHER_get_handshake_digest(SSL_get_current_cipher(t->ssl));
	if (!t->secrets)
		return -ENOMEM;
	r = tls_secret_keys(&t->secrets->send, o->digest, c, &info) ? 0 : UNKNOWN;
	if (!r) {
		tls_secret_put_number(&info, c, t->watch.sent);
		r = tls_aead_set(&o->out, &info, true);
	}
	if (!r)
		r = tls_secret_keys(&t->secrets->receive, o->digest, c, &info) ? 0 : UNKNOWN;
	if (!r) {
		tls_secret_put_number(&info, c, t->watch.received);
		r = tls_aead_set(&o->in.aead, &info, false);
	}
	OPENSSL_cleanse(&info, sizeof info);
	o->send_secret = t->secrets->send;
	o->receive_secret = t->secrets->receive;
	return r;
}

void tls_leave_free(struct tls *t)
{
	struct tls_ours *o = t->ours;

	if (!o)
		return;
	tls_tickets_forget(o);
	tls_in_free(&o->in);
	tls_aead_clear(&o->out);
	key_memory_give(o);
	t->ours = NULL;
}

static bool between_records(const struct tls *t)
{
	return !SSL_has_pending(t->ssl) && !t->slice.position.in_body && !t->slice.position.header_bytes;
}

enum tls_carrier tls_leave(struct tls *t)
{
	const struct tls_cipher *cipher = tls_secret_cipher(t->ssl);
	int r;

	if (t->context->config->settings.records == XTS_TLS_RECORDS_OPENSSL)
		return TLS_KEPT_CONFIGURED;
	if (t->send_by != XTS_TLS_CRYPTO_USER || t->receive_by != XTS_TLS_CRYPTO_USER)
		return TLS_KEPT_KERNEL;
	if (!cipher)
		return TLS_KEPT_CIPHER;
	if (!between_records(t))
		return TLS_KEPT_UNKNOWN;
	t->ours = key_memory_take(sizeof *t->ours);
	if (!t->ours)
		return TLS_KEPT_MEMORY;
	t->ours->in.payload_max = t->record_max;
	t->ours->in.one_fault = true;
	r = SSL_version(t->ssl) == TLS1_3_VERSION ? set_keys_13(t, t->ours, cipher) : set_keys_12(t, t->ours, cipher);
	if (r)
		tls_leave_free(t);
	return !r ? TLS_OURS : r == -ENOMEM ? TLS_KEPT_MEMORY : TLS_KEPT_UNKNOWN;
}
