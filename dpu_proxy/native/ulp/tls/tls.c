/*
 * TLS as a layer: OpenSSL does the protocol, and this file implements the interface of ulp.h around it.
 *
 * Receive: records are decrypted by SSL_read_ex() and copied once, into the frame for the host. On a stream socket a
 * read returns as many records as there is room for. On a message socket a PDU is one record of application data, and a
 * read never goes beyond it.
 *
 * Send: the host's pieces are encrypted in records that are as long as possible, without a copy if one piece fills a
 * record; up to four records leave with one write (tls_bio.c). On a message socket each PDU begins a record, so a PDU
 * of at most 16384 bytes is one record. Once the kernel has the keys for sending, the host's pieces go to the socket as
 * they are, and OpenSSL writes only alerts and handshake messages.
 *
 * The end: close_notify is sent when the host sends no more. A peer's stream that ends without close_notify has been
 * truncated (RFC 8446 6.1).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "ulp/protocols.h"

#define APPLICATION_DATA 23u /* RFC 8446 5.1, ContentType */
#define WRITE_MAX (4 * TLS_RECORD_BYTES)
#define HANDSHAKE_BYTES 24576u /* more during a handshake: messages, keys, certificates; measured: 19 KB */
#define SSL_BYTES 8192u        /* what OpenSSL takes for a connection; measured: 6 KB, without what a handshake adds */

/* --- life --------------------------------------------------------------------------------------------------------- */

static int tls_fits(const struct ulp_layer *l, const struct ulp_layer *below)
{
	for (const struct ulp_layer *b = below; b; b = l->receive ? b->below_receive : b->below_send) {
		if (b->protocol == l->protocol)
			return ulp_refuse(l, EINVAL, "TLS is pushed already, and TLS inside TLS is not supported");
	}
	return ulp_fits_stream(l, below);
}

/* Counts the fixed memory from now on; other memory is counted when it is allocated. 0 or -ENOBUFS. */
static int count_memory(struct tls *t, uint32_t bytes)
{
	int r;

	ulp_memory_return(t->layer, t->counted);
	r = ulp_memory_take(t->layer, bytes);
	t->counted = r ? 0 : bytes;
	return r;
}

/* The tenant that pays for this connection also pays for its context, once for all its connections with it. 0, -ENOBUFS
 * or -ENOMEM. */
static int count_context(struct tls *t)
{
	if (!t->context || t->joined)
		return 0;
	return tls_context_join(t->context, ulp_payer(t->layer), &t->joined);
}

static int tls_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct tls *t = calloc(1, sizeof *t);
	struct tls_parameters *p = malloc(sizeof *p);
	int r;

	if (!t || !p) {
		free(t);
		free(p);
		return ulp_refuse(l, ENOMEM, "no memory for TLS");
	}
	l->state = t;
	t->layer = l;
	t->parameters = p;
	r = count_memory(t, (uint32_t)(sizeof *t + sizeof *p));
	if (r)
		return ulp_refuse(l, -r, "tls: no room: %s", ULP_MEMORY_LIMIT);
	r = tls_parameters_read(l, attributes, bytes, p);
	if (r || p->role == TLS_BY_CONNECT)
		return r;
	r = tls_parameters_settle(l, p, p->role == TLS_CLIENT);
	if (!r)
		r = tls_context_get(l, p, &t->context);
	if (!r && count_context(t))
		r = ulp_refuse(l, ENOBUFS, "tls: no room: %s", ULP_MEMORY_LIMIT);
	return r;
}

void tls_free(struct tls *t)
{
	if (t->ssl && t->done && !t->failed) /* else OpenSSL marks the session as one that must not be resumed */
		SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(t->ssl);
	BIO_free(t->socket);
	if (t->context)
		tls_context_put(t->context);
	tls_rekey_forget(t);
	ulp_out_free(&t->out);
	ulp_out_free(&t->slice.ahead);
	if (t->part)
		OPENSSL_cleanse(t->part, TLS_RECORD_BYTES);
	free(t->part);
	free(t->parameters);
	free(t->alpn);
	free(t);
	ERR_clear_error();
}

static void tls_close(struct ulp_layer *l)
{
	struct tls *t = l->state;

	(void)count_memory(t, 0);
	if (t->joined)
		tls_context_leave(t->context, t->joined);
	if (tls_handshake_end(l->state))
		tls_free(l->state);
}

/* --- start and handshake ------------------------------------------------------------------------------------------ */

static bool is_ip_address(const char *name)
{
	uint8_t address[16];

	return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

/* Sets SNI, and the name or address that the certificate must be for. */
static bool set_server_name(SSL *ssl, const struct tls_parameters *p)
{
	bool address = is_ip_address(p->server_name);

	if (!p->server_name[0])
		return true;
	if (!address && SSL_set_tlsext_host_name(ssl, p->server_name) != 1)
		return false;
	if (!p->verify_host)
		return true;
	/* Only names in subjectAltName count (RFC 9110 4.3.4), as in Python's ssl. */
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	return address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), p->server_name) == 1 :
			 SSL_set1_host(ssl, p->server_name) == 1;
}

/* Contexts are shared by connections that differ in ALPN; sessions are not. */
static bool set_alpn(struct tls *t, const struct tls_parameters *p)
{
	struct {
		uint8_t context[TLS_KEY_BYTES], alpn[TLS_ALPN_BYTES];
	} same = { 0 };
	uint8_t key[TLS_KEY_BYTES];

	if (!p->alpn_bytes)
		return true;
	if (t->client)
		return SSL_set_alpn_protos(t->ssl, p->alpn, p->alpn_bytes) == 0;
	t->alpn = malloc(p->alpn_bytes);
	if (!t->alpn)
		return false;
	memcpy(t->alpn, p->alpn, p->alpn_bytes);
	t->alpn_bytes = p->alpn_bytes;
	memcpy(same.context, t->context->key, sizeof same.context);
	memcpy(same.alpn, p->alpn, p->alpn_bytes);
	return EVP_Digest(&same, sizeof same, key, NULL, EVP_sha256(), NULL) == 1 &&
	       SSL_set_session_id_context(t->ssl, key, sizeof key) == 1;
}

static int make_ssl(struct tls *t)
{
	t->ssl = SSL_new(t->context->ssl);
	if (!t->ssl)
		return -ENOMEM;
	SSL_set_app_data(t->ssl, t);
	if (tls_kernel_prepare(t) || tls_bio_attach(t))
		return -ENOMEM;
	tls_flood_watch(t);
	if (!set_alpn(t, t->parameters))
		return -ENOMEM;
	if (!t->client) {
		SSL_set_accept_state(t->ssl);
		return 0;
	}
	SSL_set_connect_state(t->ssl);
	if (!set_server_name(t->ssl, t->parameters))
		return -ENOMEM;
	tls_session_offer(t, t->parameters);
	return 0;
}

int tls_begin(struct tls *t)
{
	int r = count_context(t);

	if (r)
		return ulp_memory_fail(t->layer, r, "a set of parameters");
	r = make_ssl(t);
	ERR_clear_error();
	if (r)
		return ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for TLS");
	free(t->parameters);
	t->parameters = NULL;
	return 0;
}

static int tls_start(struct ulp_layer *l, bool client)
{
	struct tls *t = l->state;
	int r = 0;

	if (t->parameters->role == TLS_BY_CONNECT)
		r = tls_parameters_settle(l, t->parameters, client);
	if (!r && !t->context)
		r = tls_context_get(l, t->parameters, &t->context);
	if (r)
		return r;
	t->client = t->parameters->role == TLS_CLIENT;
	r = count_memory(t, (uint32_t)sizeof *t + SSL_BYTES + HANDSHAKE_BYTES);
	if (r)
		return ulp_memory_fail(l, r, "a connection");
	if (!t->client && ulp_bell(l))
		return 0; /* not before the peer has sent something: tls_handshake_step() */
	return t->context ? tls_begin(t) : 0;
}

static void handshake_done(struct tls *t)
{
	t->done = true;
	ulp_memory_return(t->layer, HANDSHAKE_BYTES);
	t->counted -= HANDSHAKE_BYTES;
	tls_flood_calm(t);
	t->verified = SSL_get_verify_mode(t->ssl) != SSL_VERIFY_NONE && SSL_get0_peer_certificate(t->ssl) &&
		      SSL_get_verify_result(t->ssl) == X509_V_OK;
	tls_count(t->client ? &tls_counters.client_handshakes : &tls_counters.server_handshakes);
	if (SSL_session_reused(t->ssl))
		tls_count(&tls_counters.resumed);
	tls_kernel_settle(t);
}

/* As tls_handshake_step(), in this thread. */
static int handshake_here(struct tls *t)
{
	int r = 0;

	if (!t->ssl) { /* there was a bell when the layer started */
		if (!t->context)
			r = tls_context_get(t->layer, t->parameters, &t->context);
		if (!r)
			r = tls_begin(t);
		if (r)
			return r;
	}
	ERR_clear_error();
	r = SSL_do_handshake(t->ssl);
	if (t->flooded)
		return tls_flood_end(t);
	return r == 1 ? 1 : tls_fault(t, r);
}

static int tls_handshake(struct ulp_layer *l)
{
	struct tls *t = l->state;
	int r;

	if (t->failed)
		return t->failed;
	if (!t->done) {
		r = ulp_bell(l) ? tls_handshake_step(t) : handshake_here(t);
		if (r == -EAGAIN) {
			int flushed = t->away ? 0 : tls_bio_flush(t);

			return flushed ? flushed : r;
		}
		if (r == -ENODATA)
			return ulp_fail(l, XTS_FAULT_HANDSHAKE, "the peer ended the connection during the handshake");
		if (r != 1)
			return r;
		handshake_done(t);
	}
	return tls_bio_flush(t);
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

static void mark_record(struct tls *t, size_t bytes, struct ulp_mark *mark)
{
	/* what is left of this record: OpenSSL decrypts one record at a time */
	uint32_t rest = (uint32_t)SSL_pending(t->ssl);

	if (!t->record_bytes)
		t->record_bytes = (uint32_t)bytes + rest;
	*mark = (struct ulp_mark){
		.pdu = true,
		.more = rest > 0,
		.control_bytes = 1,
		.control_type = XTS_ULP_TLS,
		.record_bytes = t->record_bytes,
		.control = { APPLICATION_DATA },
	};
	if (!rest)
		t->record_bytes = 0;
}

static ssize_t tls_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct tls *t = l->state;
	bool records = ulp_message_socket(l);
	size_t done = 0, n;
	int r = t->failed;

	ERR_clear_error();
	while (!r && done < room && !(records && done)) {
		t->refused = false;
		r = SSL_read_ex(t->ssl, (char *)out + done, room - done, &n);
		if (r == 1) {
			t->starved = false;
			done += n;
			r = 0;
			tls_flood_calm(t);
		} else if (t->flooded) {
			r = tls_flood_end(t);
		} else {
			r = tls_fault(t, r);
			if (r == -EAGAIN && !t->refused && ulp_step(l, 1))
				r = 0; /* this was a message without data: read what is behind it */
		}
	}
	if (!t->failed && tls_rekey_settle(t) && t->failed)
		r = t->failed;
	if (!t->failed)
		tls_bio_flush(t); /* answers to what was read, such as a key update */
	t->ended = r == -ENODATA && done;
	if (!done)
		return r;
	if (mark)
		*mark = (struct ulp_mark){ 0 };
	if (mark && records)
		mark_record(t, done, mark);
	return (ssize_t)done;
}

static bool tls_pending(const struct ulp_layer *l)
{
	const struct tls *t = l->state;

	return t->failed || t->ended || (t->done && !t->starved && (t->slice.ahead.bytes || SSL_has_pending(t->ssl))) ||
	       ulp_pending_below(l);
}

/* --- send --------------------------------------------------------------------------------------------------------- */

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
	if (mark->control_bytes && mark->control_type == XTS_ULP_TLS && mark->control[0] != APPLICATION_DATA)
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

static ssize_t tls_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
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

static int tls_flush(struct ulp_layer *l)
{
	struct tls *t = l->state;
	int r = t->away ? -EAGAIN : tls_rekey_settle(t); /* the socket may have room for the KeyUpdate now */

	return r == -EAGAIN ? r : tls_bio_flush(t); /* also after a fault, to send the alert */
}

static int tls_finish(struct ulp_layer *l)
{
	struct tls *t = l->state;
	int r = t->failed ? t->failed : t->away ? -EAGAIN : tls_rekey_settle(t);

	if (!r && t->done && !t->notified) {
		ERR_clear_error();
		r = SSL_shutdown(t->ssl);
		r = r < 0 ? tls_fault(t, r) : 0;
		t->notified = !r;
	}
	return r ? r : tls_bio_flush(t);
}

const struct ulp_protocol ulp_tls = {
	.id = XTS_ULP_TLS,
	.version = XTS_ULP_TLS_VERSION,
	.name = "tls",
	.receive = true,
	.send = true,
	.duplex = true,
	.needs_both = true,
	.fits = tls_fits,
	.prepare = tls_contexts_prepare,
	.open = tls_open,
	.start = tls_start,
	.handshake = tls_handshake,
	.read = tls_read,
	.pending = tls_pending,
	.write = tls_write,
	.flush = tls_flush,
	.finish = tls_finish,
	.info = tls_info,
	.move = tls_handshake_move,
	.close = tls_close,
};
