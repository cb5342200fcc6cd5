/*
 * TLS_KEYS done by OpenSSL, in the worker. A record is decrypted straight into the reader's buffer if that has room for
 * all of it; else it is decrypted in place and delivered in parts. Nothing of a record is delivered before its tag has
 * been checked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tls_keys.h"
#include "ulp/tls/tls.h"

#define HANDSHAKE_KEY_UPDATE 24u

/* --- receive ------------------------------------------------------------------------------------------------------ */

/* Checks the header of the record at in_first. The limits are the kernel's: what a payload
 * of 16 KB and its type need. */
static int check_header(struct ulp_layer *l, struct tls_keys *k, uint32_t *body)
{
	const uint8_t *h = k->in + k->in_first;
	uint32_t overhead = tls_aead_overhead(&k->aead);

	*body = (uint32_t)h[3] << 8 | h[4];
	if (h[1] != TLS_1_2_VERSION_MAJOR || h[2] != TLS_1_2_VERSION_MINOR)
		return ulp_fail(l, XTS_FAULT_RECORD, "a TLS record of version %u.%u, not 3.3", h[1], h[2]);
	if (h[0] < TLS_CHANGE_CIPHER_SPEC || h[0] > TLS_HEARTBEAT || (k->aead.tls13 && h[0] != TLS_APPLICATION_DATA))
		return ulp_fail(l, XTS_FAULT_RECORD, "a TLS record of type %u, which cannot be encrypted", h[0]);
	if (*body > TLS_PAYLOAD_MAX + overhead)
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "a TLS record of %u bytes; the longest has %u", *body,
				TLS_PAYLOAD_MAX + overhead);
	if (*body < overhead)
		return ulp_fail(l, XTS_FAULT_LENGTH, "a TLS record of %u bytes, which has no room for its tag", *body);
	return 0;
}

/* Reads until a whole record is at in_first: 0 and the length of its body, or -errno. As long as the kernel may still
 * take over, which it does between two records, no byte beyond the record is read. */
static int fill(struct ulp_layer *l, struct tls_keys *k, uint32_t *body)
{
	for (;;) {
		uint32_t need = TLS_HEADER_BYTES, room;
		ssize_t n;
		int r;

		if (k->in_bytes >= need) {
			r = check_header(l, k, body);
			if (r)
				return r;
			need += *body;
			if (k->in_bytes >= need)
				return 0;
		}
		if (!k->in) {
			k->in = malloc(TLS_RECORD_MAX);
			if (!k->in)
				return ulp_fail(l, XTS_FAULT_MEMORY, "no memory for a TLS record");
		}
		if (k->in_first) {
			memmove(k->in, k->in + k->in_first, k->in_bytes);
			k->in_first = 0;
		}
		room = k->try_kernel ? need - k->in_bytes : TLS_RECORD_MAX - k->in_bytes;
		n = ulp_read_stream_below(l, k->in + k->in_bytes, room);
		if (n == -ENODATA && k->in_bytes)
			return ulp_fail(l, XTS_FAULT_TRUNCATED,
					"the stream ended within a TLS record, after %u bytes of it", k->in_bytes);
		if (n < 0)
			return (int)n;
		k->in_bytes += (uint32_t)n;
	}
}

bool keys_user_pending(const struct tls_keys *k)
{
	const uint8_t *h = k->in + k->in_first;

	return k->in_bytes >= TLS_HEADER_BYTES && k->in_bytes >= TLS_HEADER_BYTES + ((uint32_t)h[3] << 8 | h[4]);
}

static void record_done(struct tls_keys *k, uint32_t body)
{
	tls_aead_next(&k->aead);
	k->in_first += TLS_HEADER_BYTES + body;
	k->in_bytes -= TLS_HEADER_BYTES + body;
	k->opened = false;
	if (!k->in_bytes)
		k->in_first = 0;
}

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

/* Delivers the rest of a record that was decrypted in place. */
static ssize_t hand_on(struct tls_keys *k, void *out, size_t room, struct ulp_mark *mark)
{
	uint8_t *record = k->in + k->in_first, *payload = tls_aead_payload(&k->aead, record);
	uint32_t left = k->payload_bytes - k->payload_taken, n = left < room ? left : (uint32_t)room;

	memcpy(out, payload + k->payload_taken, n);
	if (k->opened_type != TLS_APPLICATION_DATA)
		keys_control_mark(k, mark, k->opened_type, payload[0], k->payload_bytes, n < left);
	k->payload_taken += n;
	if (n == left)
		record_done(k, (uint32_t)record[3] << 8 | record[4]);
	return n;
}

static int open_in_place(struct ulp_layer *l, struct tls_keys *k, uint32_t body)
{
	uint8_t *record = k->in + k->in_first, *payload = tls_aead_payload(&k->aead, record);
	ssize_t n = tls_aead_open(&k->aead, record, body, payload, &k->opened_type);

	if (n < 0)
		return ulp_fail(l, XTS_FAULT_RECORD, "TLS record %llu cannot be authenticated",
				(unsigned long long)k->aead.sequence);
	k->opened = true;
	k->payload_bytes = (uint32_t)n;
	k->payload_taken = 0;
	return 0;
}

/* Delivers payloads of application data, as many whole ones as are here and fit, or one control record. */
ssize_t keys_user_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct tls_keys *k = l->state;
	size_t done = 0;

	while (!k->opened) {
		uint32_t body = 0;
		uint8_t type;
		ssize_t n = fill(l, k, &body);

		if (!n && !ulp_step(l, TLS_RECORD_STEPS))
			n = -EAGAIN;
		if (n)
			return done ? (ssize_t)done : n;
		if (room - done < body - tls_aead_overhead(&k->aead) + k->aead.tls13) {
			if (done)
				return (ssize_t)done;
			n = open_in_place(l, k, body);
			if (n)
				return n;
			n = k->payload_bytes && k->opened_type == TLS_APPLICATION_DATA ? 0 : keys_quiet(l);
			if (n)
				return n;
			if (!k->payload_bytes && k->opened_type == TLS_APPLICATION_DATA)
				record_done(k, body);
			continue;
		}
		n = tls_aead_open(&k->aead, k->in + k->in_first, body, (uint8_t *)out + done, &type);
		if (n < 0)
			/* the record is still here, and fails again once the data has been taken */
			return done ? (ssize_t)done :
				      ulp_fail(l, XTS_FAULT_RECORD, "TLS record %llu cannot be authenticated",
					       (unsigned long long)k->aead.sequence);
		if (type != TLS_APPLICATION_DATA && done)
			return (ssize_t)done; /* it is delivered alone, by the next read */
		if (type != TLS_APPLICATION_DATA || !n) {
			int r = keys_quiet(l);

			if (r)
				return done ? (ssize_t)done : r;
		}
		if (type != TLS_APPLICATION_DATA) {
			keys_control_mark(k, mark, type, n ? *(uint8_t *)out : 0, (uint32_t)n, false);
			record_done(k, body);
			return n;
		}
		record_done(k, body);
		done += (size_t)n;
		if (n)
			k->quiet = 0;
		if (done == room || (k->try_kernel && done))
			return (ssize_t)done;
	}
	return hand_on(k, out, room, mark);
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
		n = tls_aead_seal(&k->aead, type, iov, pieces, done, part, sealed);
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
	return (ssize_t)done;
}
