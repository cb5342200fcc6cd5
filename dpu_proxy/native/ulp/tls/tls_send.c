/*
 * Sending over TLS: what the host sends becomes records.
 *
 * The host's pieces are encrypted in records that are as long as they can be, except the first ones after a pause
 * (tls_seal.c), from where they lie if one piece fills a record; what fits into the buffer of tls_bio.c leaves with one
 * write. The PDUs of a message socket begin a record each, so that one that is no longer than a record can be is one
 * record. Once the kernel has the keys for sending, the host's pieces go to the socket as they are, and OpenSSL writes
 * alerts and the like only.
 *
 * Who makes the records, our record layer (tls_seal.c) or OpenSSL, is settled at the end of the handshake.
 *
 * How long a record can be is the peer's choice: a client may ask for records of 512 to 4096 bytes (RFC 6066 4), and
 * OpenSSL grants it. So what OpenSSL says it took is what counts. OpenSSL takes nothing while it is in the middle of a
 * handshake message, of which the peer has sent a part.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "tls_ours.h"

/* Changes keys long before one has encrypted more than it should. */
static void update_keys(struct tls *t)
{
	if (++t->records < t->context->config->settings.rekey_records || SSL_version(t->ssl) != TLS1_3_VERSION)
		return;
	if (SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
		t->records = 0;
		tls_count(&tls_counters.key_updates);
	}
}

void tls_send_lengths(struct tls *t, uint32_t record_max)
{
	t->record_max = record_max;
	t->write_max = TLS_GATHER_BYTES / (record_max + TLS_RECORD_EXTRA) * record_max;
}

void tls_send_settle(struct tls *t)
{
	/* what a client of ours never asks for */
	uint8_t mode = SSL_SESSION_get_max_fragment_length(SSL_get0_session(t->ssl));
	/* newer versions of OpenSSL have a value for "not negotiated", too */
	bool asked = mode >= TLSEXT_max_fragment_length_512 && mode <= TLSEXT_max_fragment_length_4096;

	tls_send_lengths(t, asked ? 256u << mode : TLS_RECORD_BYTES);
}

/* Has OpenSSL write one record; the BIO takes it even if the socket is full. */
static ssize_t write_by_openssl(struct tls *t, const void *data, size_t bytes)
{
	size_t written = 0;
	int r = SSL_write_ex(t->ssl, data, bytes, &written);

	if (r != 1) {
		r = tls_fault(t, r);
		t->send_waits = r == -EAGAIN;
		if (t->send_waits && t->cut) /* for the rest of a message that will not come */
			r = t->failed = ulp_fail(t->layer, XTS_FAULT_RECORD, "the peer's stream ended inside a message");
		return r;
	}
	update_keys(t);
	return (ssize_t)written;
}

/* Writes one record of at most so many bytes, from byte skip of the pieces on. Returns how many of the bytes are in it,
 * at least one; or -EAGAIN, or the fault. */
static ssize_t write_record(struct tls *t, const struct iovec *iov, int pieces, size_t skip, size_t bytes)
{
	static _Thread_local uint8_t together[TLS_RECORD_BYTES];
	struct iovec one;

	if (t->ours)
		return tls_seal_data(t, iov, pieces, skip, bytes);
	if (bytes > t->record_max)
		bytes = t->record_max;
	if (ulp_iov_slice(&one, 1, iov, pieces, skip, bytes) == 1 && one.iov_len == bytes)
		return write_by_openssl(t, one.iov_base, bytes);
	ulp_iov_copy(together, iov, pieces, skip, bytes);
	return write_by_openssl(t, together, bytes);
}

/* Writes the pieces as records, at most t->write_max: how many bytes, or -EAGAIN, or the fault. */
static ssize_t write_records(struct tls *t, const struct iovec *iov, int pieces)
{
	size_t total = ulp_iov_bytes(iov, pieces), done = 0;

	if (total > t->write_max)
		total = t->write_max;
	while (done < total) {
		ssize_t n = write_record(t, iov, pieces, done, total - done);

		if (n < 0)
			return done && n == -EAGAIN ? (ssize_t)done : n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* Writes all that was kept of a PDU. fresh: how many of its last bytes came with this write. Returns how many of these
 * were not taken: they are not kept, because the host offers them again; or the fault. */
static ssize_t write_kept(struct tls *t, size_t fresh)
{
	uint32_t done = 0;

	while (done < t->part_bytes) {
		struct iovec kept = { .iov_base = t->part, .iov_len = t->part_bytes };
		ssize_t n = write_record(t, &kept, 1, done, t->part_bytes - done);

		if (n < 0 && n != -EAGAIN)
			return n;
		if (n < 0)
			break;
		done += (uint32_t)n;
	}
	t->part_bytes -= done;
	if (!t->part_bytes)
		return 0;
	if (fresh > t->part_bytes)
		fresh = t->part_bytes;
	t->part_bytes -= (uint32_t)fresh;
	memmove(t->part, t->part + done, t->part_bytes);
	return (ssize_t)fresh;
}

static void drop_part(struct tls *t)
{
	OPENSSL_cleanse(t->part, TLS_RECORD_BYTES);
	free(t->part);
	t->part = NULL;
}

/* Takes a part of a PDU: keeps it until the rest is here, or as much as fills a record. */
static ssize_t write_part(struct tls *t, const struct iovec *iov, int pieces, bool more)
{
	size_t total = ulp_iov_bytes(iov, pieces), done = 0;
	bool whole = false;

	if (!t->part)
		t->part = malloc(TLS_RECORD_BYTES);
	if (!t->part) {
		t->failed = ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for TLS");
		return t->failed;
	}
	do {
		size_t n = ulp_iov_copy(t->part + t->part_bytes, iov, pieces, done, t->record_max - t->part_bytes);
		ssize_t left;

		t->part_bytes += (uint32_t)n;
		whole = !more && done + n == total;
		if (t->part_bytes < t->record_max && !whole) {
			done += n;
			break;
		}
		left = write_kept(t, n);
		if (left < 0)
			return left;
		done += n - (size_t)left;
		whole = whole && !left && !t->part_bytes;
		if (left || t->part_bytes)
			break;
	} while (done < total && done < t->write_max);
	t->in_pdu = !whole;
	if (whole)
		drop_part(t);
	return total ? (ssize_t)done : whole;
}

static int check_pdu(struct tls *t, size_t bytes, const struct ulp_mark *mark)
{
	if (mark->control_bytes && mark->control_type == XTS_ULP_TLS && mark->control[0] != TLS_CONTENT_APPLICATION_DATA)
		t->failed = ulp_fail(t->layer, XTS_FAULT_USE,
				     "a TLS record of type %u cannot be sent; 23 is application data", mark->control[0]);
	else if (!bytes && !mark->more && !t->in_pdu)
		t->failed = ulp_fail(t->layer, XTS_FAULT_USE, "an empty PDU cannot be a TLS record");
	return t->failed;
}

/* The kernel makes the records. It makes no empty record, so an empty last part of a PDU is taken here. */
static ssize_t write_kernel(struct tls *t, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	size_t bytes = ulp_iov_bytes(iov, pieces);
	bool pdu = mark && mark->pdu;
	int r = tls_rekey_settle(t);
	ssize_t n;

	if (r)
		return r == -EAGAIN ? 0 : r;
	n = !bytes && pdu ? 1 : ulp_write_below(t->layer, iov, pieces, NULL);
	if (n > 0)
		tls_rekey_count(t, bytes ? (size_t)n : 0);
	if (n > 0 && pdu)
		t->in_pdu = mark->more || (size_t)n < bytes;
	return n;
}

ssize_t tls_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct tls *t = l->state;
	bool pdu = mark && mark->pdu;
	ssize_t n;
	int r;

	t->in_stream = !pdu;
	if (pdu)
		tls_kept_ends(t);
	if (t->failed || (pdu && check_pdu(t, ulp_iov_bytes(iov, pieces), mark)))
		return t->failed;
	if (t->send_by != XTS_TLS_CRYPTO_USER)
		return write_kernel(t, iov, pieces, mark);
	r = tls_bio_flush(t);
	if (r)
		return r == -EAGAIN ? 0 : r;
	ERR_clear_error();
	n = pdu && (mark->more || t->in_pdu) ? write_part(t, iov, pieces, mark->more) : write_records(t, iov, pieces);
	if (n < 0)
		return n == -EAGAIN ? 0 : n;
	if (t->ours)
		tls_idle_time(l, &t->ours->idle, &t->ours->out, &t->ours->in.aead);
	r = tls_bio_flush(t);
	return r && r != -EAGAIN ? r : n;
}
