/*
 * Sending over TLS: what the host sends becomes records.
 *
 * The host's pieces are encrypted in records that are as long as they can be, from where they lie if one piece
 * fills a record; up to four records leave with one write (tls_bio.c). The PDUs of a message socket begin a record
 * each, so that one of at most 16384 bytes is one record. Once the kernel has the keys for sending, the host's pieces
 * go to the socket as they are, and OpenSSL writes alerts and the like only.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>

#include "tls.h"

#define WRITE_MAX (4 * TLS_RECORD_BYTES)

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

/* Writes one record; the BIO takes it even if the socket is full. */
static int write_record(struct tls *t, const void *data, size_t bytes)
{
	size_t written;
	int r = SSL_write_ex(t->ssl, data, bytes, &written);

	if (r != 1)
		return tls_fault(t, r);
	update_keys(t);
	return 0;
}

/* Writes all bytes of the pieces, at most WRITE_MAX, as records: how many bytes, or the fault. */
static ssize_t write_records(struct tls *t, const struct iovec *iov, int pieces)
{
	static _Thread_local uint8_t together[TLS_RECORD_BYTES];
	size_t total = ulp_iov_bytes(iov, pieces), done = 0, in_piece = 0;

	if (total > WRITE_MAX)
		total = WRITE_MAX;
	while (done < total) {
		size_t bytes = total - done < TLS_RECORD_BYTES ? total - done : TLS_RECORD_BYTES;
		const void *record = together;
		int r;

		while (in_piece == iov->iov_len) {
			iov++;
			pieces--;
			in_piece = 0;
		}
		if (iov->iov_len - in_piece >= bytes)
			record = (const char *)iov->iov_base + in_piece;
		else
			ulp_iov_copy(together, iov, pieces, in_piece, bytes);
		r = write_record(t, record, bytes);
		if (r)
			return done && r == -EAGAIN ? (ssize_t)done : r;
		done += bytes;
		for (in_piece += bytes; pieces && in_piece > iov->iov_len; pieces--, iov++)
			in_piece -= iov->iov_len;
	}
	return (ssize_t)done;
}

/* Takes a part of a PDU: keeps it until the rest is here, or as much as fills a record. */
static ssize_t write_part(struct tls *t, const struct iovec *iov, int pieces, bool more)
{
	size_t total = ulp_iov_bytes(iov, pieces), done = 0;

	if (!t->part)
		t->part = malloc(TLS_RECORD_BYTES);
	if (!t->part) {
		t->failed = ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for TLS");
		return t->failed;
	}
	do {
		size_t n = ulp_iov_copy(t->part + t->part_bytes, iov, pieces, done, TLS_RECORD_BYTES - t->part_bytes);
		int r;

		done += n;
		t->part_bytes += (uint32_t)n;
		if (!t->part_bytes || (t->part_bytes < TLS_RECORD_BYTES && more))
			break;
		r = write_record(t, t->part, t->part_bytes);
		if (r)
			return r;
		t->part_bytes = 0;
	} while (done < total && done < WRITE_MAX);
	t->in_pdu = more || done < total;
	if (!t->in_pdu) {
		OPENSSL_cleanse(t->part, TLS_RECORD_BYTES);
		free(t->part);
		t->part = NULL;
	}
	return total ? (ssize_t)done : 1;
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
	r = tls_bio_flush(t);
	return r && r != -EAGAIN ? r : n;
}
