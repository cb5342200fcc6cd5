/*
 * TLS as a layer: the protocol is OpenSSL's, this file is what ulp.h asks for around it.
 *
 * OpenSSL shakes hands; then the connection leaves it, if it can (tls_leave.c, tls_ours.h). Receive: by tls_receive.c;
 * of a connection that has stayed, records are decrypted by SSL_read_ex() and copied once, into the frame for the host.
 * On a stream as many as there is room for; on a message socket a PDU is a record of application data, and a read never
 * goes beyond it. Send: tls_send.c.
 *
 * The end: close_notify is sent when the host sends no more; a peer's stream that ends without it has been cut off (RFC
 * 8446 6.1). Many clients do that behind a request, and wait for the answer. The proxy reads ahead and knows of the FIN
 * before the host has answered, so it must not prevent the answer.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>

#include "tls_kept.h"
#include "tls_ours.h"
#include "ulp/protocols.h"

#define HANDSHAKE_BYTES 24576u /* more during a handshake: messages, keys, certificates; measured: 19 KB */
#define SSL_BYTES 8192u        /* what OpenSSL takes for a connection; measured: 6 KB, without what a handshake adds */
#define READ_AHEAD_BYTES (64u << 10) /* that OpenSSL reads with one call, where it carries the connection */
#define OURS_BYTES ((uint32_t)sizeof(struct tls_ours) + 2400u) /* with a cipher context for each direction */

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
	tls_free_ssl(t);
	SSL_SESSION_free(t->session);
	tls_leave_free(t);
	if (t->about)
		tls_about_free(t);
	if (t->context)
		tls_context_put(t->context);
	tls_secrets_forget(t);
	ulp_out_free(&t->out);
	ulp_out_free(&t->slice.ahead);
	if (t->part)
		OPENSSL_cleanse(t->part, TLS_RECORD_BYTES);
	free(t->part);
	free(t->parameters);
	free(t->alpn);
	free(t);
}

static void tls_close(struct ulp_layer *l)
{
	struct tls *t = l->state;

	(void)count_memory(t, 0);
	if (t->joined)
		tls_context_leave(t->context, t->joined);
	if (!tls_handshake_end(t))
		return;
	tls_tickets_close(t);
	tls_free(t);
}

/* --- start and handshake ------------------------------------------------------------------------------------------ */

int tls_prepare(struct tls *t)
{
	int r = t->prepared ? 0 : count_context(t);

	if (r)
		return ulp_memory_fail(t->layer, r, "a set of parameters");
	if (t->prepared)
		return 0;
	tls_kernel_prepare(t);
	if (t->client)
		tls_session_prepare(t, t->parameters);
	t->prepared = true;
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
	return 0;
}

void tls_recount(struct tls *t)
{
	uint32_t bytes = (uint32_t)sizeof *t + (t->ssl ? SSL_BYTES : 0) +
			 (t->ours ? OURS_BYTES + t->ours->kept_bytes : 0) + tls_about_bytes(t);

	/* it has been more until now, so this is not refused; if it were, less would be counted */
	(void)count_memory(t, bytes);
}

int tls_settle(struct tls *t)
{
	if (tls_about_take(t))
		return -ENOMEM;
	tls_send_settle(t);
	t->carrier = tls_leave(t);
	tls_kernel_settle(t);
	if (t->ours && tls_tickets_may_come(t))
		SSL_set_read_ahead(t->ssl, 0);
	else if (t->ours)
		tls_free_ssl(t);
	else
		SSL_set_default_read_buffer_len(t->ssl, READ_AHEAD_BYTES);
	return 0;
}

/* Our record layer has the connection. */
static void leave(struct tls *t)
{
	tls_in_begin(&t->ours->in, &t->slice.ahead);
	free(t->alpn);
	t->alpn = NULL;
	if (tls_tickets_may_come(t))
		tls_tickets_expect(t);
}

/* 0, or the fault. */
static int handshake_done(struct tls *t)
{
	if (!t->about && tls_settle(t))
		return t->failed = ulp_memory_fail(t->layer, -ENOMEM, "a connection");
	t->done = true;
	tls_flood_calm(t);
	tls_count(t->client ? &tls_counters.client_handshakes : &tls_counters.server_handshakes);
	if (t->about->resumed)
		tls_count(&tls_counters.resumed);
	tls_count(&tls_counters.carried[t->carrier]);
	tls_handshake_forget(t);
	tls_session_store(t);
	tls_about_share(t);
	if (t->ours)
		leave(t);
	tls_recount(t);
	return 0;
}

/* As tls_handshake_step(), in this thread. */
static int handshake_here(struct tls *t)
{
	int r = 0;

	if (!t->ssl) {
		if (!t->context)
			r = tls_context_get(t->layer, t->parameters, &t->context);
		if (!r)
			r = tls_prepare(t);
		if (!r && tls_make_ssl(t, ulp_socket(t->layer)))
			r = ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for TLS");
		if (r)
			return r;
	}
	r = tls_shake_hands(t);
	if (t->flooded) {
		tls_flood_alert(t);
		return tls_flood_fail(t);
	}
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
		if (r == 1)
			r = handshake_done(t);
		if (r)
			return r;
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
		.control = { TLS_CONTENT_APPLICATION_DATA },
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

	if (t->ours)
		return tls_receive(t, out, room, mark);
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
			tls_flood_alert(t);
			r = tls_flood_fail(t);
		} else {
			r = tls_fault(t, r);
			if (r == -EAGAIN && t->cut)
				r = ulp_fail(l, XTS_FAULT_TRUNCATED, "the peer's stream ended without close_notify");
			if (r == -EAGAIN && !t->refused && ulp_step(l, 1))
				r = 0; /* this was a message without data: read what is behind it */
		}
	}
	if (!t->failed && tls_rekey_settle(t) && t->failed)
		r = t->failed;
	if (!t->failed)
		tls_bio_flush(t); /* answers to what was read, such as a key update */
	if (t->send_waits && !SSL_in_init(t->ssl)) {
		t->send_waits = false;
		ulp_wake_after(l, 0);
	}
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

	if (t->ours)
		return tls_receive_pending(t);
	return t->failed || t->ended || (t->done && !t->starved && (t->slice.ahead.bytes || SSL_has_pending(t->ssl))) ||
	       ulp_pending_below(l);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static int tls_flush(struct ulp_layer *l)
{
	struct tls *t = l->state;
	int r = t->away ? -EAGAIN : tls_rekey_settle(t); /* the socket may have room for the KeyUpdate now */

	if (!r && t->ours) {
		tls_tickets_time(t);
		tls_idle_time(l, &t->ours->idle, &t->ours->out, &t->ours->in.aead);
	}
	return r == -EAGAIN ? r : tls_bio_flush(t); /* also after a fault, to send the alert */
}

static int tls_finish(struct ulp_layer *l)
{
	struct tls *t = l->state;
	int r = t->failed ? t->failed : t->away ? -EAGAIN : tls_rekey_settle(t);

	if (!r && t->done && !t->notified) {
		ERR_clear_error();
		r = t->ours ? tls_seal_alert(t, TLS_WARNING, TLS_CLOSE_NOTIFY) : SSL_shutdown(t->ssl);
		r = r < 0 ? t->ours ? r : tls_fault(t, r) : 0;
		t->notified = !r;
		if (t->ours)
			tls_kept_sent(t);
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
	.carrier = tls_carrier,
	.move = tls_handshake_move,
	.stays = tls_stays,
	.save = tls_save,
	.wipe = tls_wipe,
	.restore = tls_restore,
	.moves_since = 1,
	.keep = tls_keep,
	.close = tls_close,
};
