/*
 * TLS_KEYS done by OpenSSL's ciphers, in the worker (tls_record_in.c, tls_keys_cipher.c).
 */
#include <errno.h>
#include <string.h>

#include "tls_keys.h"

#define HANDSHAKE_KEY_UPDATE 24u

/* --- receive ------------------------------------------------------------------------------------------------------ */

void keys_control_mark(struct tls_keys *k, struct ulp_mark *mark, uint8_t type, uint8_t first, uint32_t bytes, bool more)
{
	*mark = (struct ulp_mark){ .pdu = true,
				   .more = more,
				   .control_type = XTS_ULP_TLS_KEYS,
				   .control_bytes = 1,
				   .control = { type },
				   .record_bytes = bytes };
	if (k->version == TLS_1_3_VERSION && type == TLS_HANDSHAKE && bytes && first == HANDSHAKE_KEY_UPDATE)
		k->expired = true;
}

/* Delivers a control record, or its next part. */
static ssize_t control(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct tls_keys *k = l->state;
	struct tls_record_in *in = &k->in;
	uint32_t bytes = in->payload_bytes;
	uint8_t first = bytes ? tls_in_payload(in)[0] : 0;
	int r = in->taken ? 0 : keys_quiet(l);

	if (r)
		return r;
	keys_control_mark(k, mark, in->type, first, bytes, bytes - in->taken > room);
	return (ssize_t)tls_in_take(in, out, room);
}

/* As tls_in_next(); empty records of application data are gone then. */
static ssize_t next(struct ulp_layer *l, void *out, size_t room)
{
	struct tls_keys *k = l->state;
	ssize_t n = tls_in_next(l, &k->in, out, room);

	if (n < 0 || (!n && k->in.type != TLS_APPLICATION_DATA))
		return n;
	if (n || k->in.payload_bytes) {
		k->quiet = 0;
		return n;
	}
	tls_in_drop(&k->in);
	return keys_quiet(l);
}

/* Delivers payloads of application data, as many as are here and fit, or one control record. */
ssize_t keys_user_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct tls_keys *k = l->state;
	struct tls_record_in *in = &k->in;
	size_t done = 0;
	ssize_t n = 0;
	int r;

	in->exact = k->try_kernel;
	while (done < room) {
		if (!in->opened && in->exact && done)
			break; /* between two records the kernel may take over */
		if (in->opened && in->type != TLS_APPLICATION_DATA)
			break; /* it is delivered alone */
		n = in->opened ? (ssize_t)tls_in_take(in, (uint8_t *)out + done, room - done) :
				 next(l, (uint8_t *)out + done, room - done);
		if (n < 0)
			break;
		done += (size_t)n;
	}
	if (!done && n >= 0)
		n = control(l, out, room, mark);
	r = tls_in_rest(l, in);
	tls_idle_time(l, &k->idle, &k->out_key, &in->aead);
	return done ? (ssize_t)done : r ? r : n;
}

/* --- send --------------------------------------------------------------------------------------------------------- */

/* The buffer in which a record is made. The bytes that the layer below does not take are kept elsewhere. It holds only
 * ciphertext. */
static _Thread_local uint8_t sealed[TLS_RECORD_MAX];

ssize_t keys_user_write(struct ulp_layer *l, const struct iovec *iov, int pieces, uint8_t type)
{
	struct tls_keys *k = l->state;
	size_t bytes = ulp_iov_bytes(iov, pieces), done = 0;

	while (done < bytes) {
		uint32_t part = bytes - done < TLS_PAYLOAD_MAX ? (uint32_t)(bytes - done) : TLS_PAYLOAD_MAX;
		struct iovec piece = { .iov_base = sealed };
		ssize_t n = ulp_out_flush(&k->out, l);
		int error;

		if (n)
			return n == -EAGAIN ? (ssize_t)done : n;
		n = tls_aead_seal(&k->out_key, type, iov, pieces, done, part, sealed);
		if (n < 0)
			return ulp_fail(l, XTS_FAULT_USE, "no TLS record can be made: %s", strerror((int)-n));
		done += part;
		piece.iov_len = (size_t)n;
		n = ulp_write_below(l, &piece, 1, NULL);
		if (n < 0)
			return n;
		if ((size_t)n == piece.iov_len)
			continue;
		error = ulp_out_reserve(&k->out, l, (uint32_t)(piece.iov_len - (size_t)n));
		if (error)
			return ulp_memory_fail(l, error, "a TLS record");
		ulp_out_put(&k->out, sealed + n, (uint32_t)(piece.iov_len - (size_t)n));
	}
	tls_idle_time(l, &k->idle, &k->out_key, &k->in.aead);
	return (ssize_t)done;
}
