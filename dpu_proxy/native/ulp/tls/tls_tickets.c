/*
 * Tickets of a server of TLS 1.3, for a client whose connection has left OpenSSL. Only OpenSSL can make a session of a
 * ticket. So its SSL stays until the first record that is not of a handshake, or for ticket_wait_ms. Our record layer
 * opens each record, looks whether messages are what they should be, and keeps the record as it came. When the time is
 * over, a thread of the pool shows OpenSSL these records, all that it has not seen, and frees it: to read a ticket
 * takes longer than a worker may wait, with locks that other handshakes have. What OpenSSL writes then goes nowhere.
 * Sessions wait for a worker to take them (tls_session.c).
 *
 * A ticket that comes later, or behind more records than are kept, is dropped.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "common/time_units.h"
#include "tls_ours.h"
#include "ulp/config.h"
#include "ulp/handshake_pool.h"

#define KEPT_BYTES 16384u
#define READS_MAX 64u /* messages that OpenSSL reads; tls_receive.c allows fewer in a row */

static _Thread_local uint8_t copy[TLS_RECORD_MAX];

/* --- what a ticket looks like ------------------------------------------------------------------------------------- */

/* RFC 8446 4.6.1: lifetime, age_add, nonce<0..255>, ticket<1..2^16-1>, extensions<0..2^16-2> */
enum { FIXED, NONCE_LENGTH, NONCE, TICKET_HIGH, TICKET_LOW, TICKET, EXTENSIONS_HIGH, EXTENSIONS_LOW, EXTENSIONS };

void tls_ticket_begin(struct tls_ticket_shape *s)
{
	*s = (struct tls_ticket_shape){ .part = FIXED, .left = 8 };
}

static void next_part(struct tls_ticket_shape *s, uint8_t byte)
{
	switch (s->part) {
	case NONCE_LENGTH:
		s->left = byte;
		s->part = byte ? NONCE : TICKET_HIGH;
		break;
	case TICKET_HIGH:
	case EXTENSIONS_HIGH:
		s->left = (uint16_t)(byte << 8);
		s->part++;
		break;
	case TICKET_LOW:
	case EXTENSIONS_LOW:
		s->left = (uint16_t)(s->left | byte);
		s->bad = s->bad || (s->part == TICKET_LOW && !s->left);
		s->part++;
		break;
	default: /* bytes of a length */
		s->bad = s->bad || !s->left;
		if (s->left && !--s->left && s->part != EXTENSIONS)
			s->part++;
	}
}

void tls_ticket_take(struct tls_ticket_shape *s, const uint8_t *data, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes && !s->bad; i++)
		next_part(s, data[i]);
}

bool tls_ticket_is_whole(const struct tls_ticket_shape *s)
{
	return !s->bad && s->part == EXTENSIONS && !s->left;
}

/* --- on a thread of the pool -------------------------------------------------------------------------------------- */

struct reading {
	struct ulp_job job; /* first */
	SSL *ssl;
	struct xts_ulp_config *config; /* which it holds */
	struct tls_session_place place;
	uint32_t bytes;
	uint8_t records[];
};

static void read_all(struct reading *r)
{
	uint8_t nobody[1];
	size_t n;

	for (unsigned i = 0; i < READS_MAX; i++) {
		int result;

		ERR_clear_error();
		result = SSL_read_ex(r->ssl, nobody, sizeof nobody, &n);
		if ((result == 1 && n) || SSL_get_error(r->ssl, result) != SSL_ERROR_WANT_READ ||
		    (!BIO_ctrl_pending(SSL_get_rbio(r->ssl)) && !SSL_has_pending(r->ssl)))
			break;
	}
	ERR_clear_error();
}

static void read_tickets(struct ulp_job *job)
{
	struct reading *r = list_entry(job, struct reading, job);
	BIO *records = BIO_new_mem_buf(r->records, (int)r->bytes), *nowhere = BIO_new(BIO_s_null());

	/* nothing of the connection, which may be gone, is called any more */
	SSL_set_msg_callback(r->ssl, NULL);
	SSL_set_app_data(r->ssl, NULL);
	if (records && nowhere) {
		BIO_set_mem_eof_return(records, -1);
		SSL_set_bio(r->ssl, records, nowhere);
		tls_session_reads(&r->place);
		read_all(r);
		tls_session_reads(NULL);
	} else {
		BIO_free(records);
		BIO_free(nowhere);
	}
	SSL_set_shutdown(r->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* else sessions are marked as bad */
	SSL_free(r->ssl);
	ERR_clear_error();
}

static void read_away(struct ulp_job *job)
{
	struct reading *r = list_entry(job, struct reading, job);
	struct xts_ulp_config *config = r->config;

	free(r);
	xts_ulp_config_release(config);
}

/* --- on a worker -------------------------------------------------------------------------------------------------- */

/* Gives the SSL away with what was kept for it. False: there is nothing, or no memory. */
static bool give(struct tls *t)
{
	struct tls_ours *o = t->ours;
	struct reading *r = o->kept_bytes && !t->failed ? malloc(sizeof *r + o->kept_bytes) : NULL;

	if (!r)
		return false;
	*r = (struct reading){ .job = { .run = read_tickets, .abandoned = read_away },
			       .ssl = t->ssl,
			       .config = ulp_config(t->layer),
			       .place = { .config = tls_config_of(t) },
			       .bytes = o->kept_bytes };
	memcpy(r->place.key, t->session_key, sizeof r->place.key);
	memcpy(r->records, o->kept_records, o->kept_bytes);
	xts_ulp_config_hold(r->config);
	/* when it is replaced OpenSSL still calls the BIO, and t may be gone by then */
	BIO_set_data(SSL_get_rbio(t->ssl), NULL);
	t->ssl = NULL;
	if (ulp_pool_give(&r->job, ulp_account(t->layer), ulp_weight(t->layer)))
		return true;
	read_tickets(&r->job);
	read_away(&r->job);
	return true;
}

static void end(struct tls *t)
{
	if (!give(t))
		tls_give_ssl(t);
	tls_tickets_forget(t->ours);
	tls_recount(t);
}

void tls_tickets_close(struct tls *t)
{
	if (!t->ssl || !t->ours || !give(t))
		tls_give_ssl(t);
}

void tls_tickets_forget(struct tls_ours *o)
{
	free(o->kept_records);
	o->kept_records = NULL;
	o->kept_bytes = 0;
}

bool tls_tickets_may_come(const struct tls *t)
{
	return t->client && t->keeps_session && t->about->version == TLS1_3_VERSION;
}

void tls_tickets_expect(struct tls *t)
{
	uint32_t wait_ms = t->context->config->settings.ticket_wait_ms;

	t->ours->tickets_until_ns = ulp_now_ns(t->layer) + (uint64_t)wait_ms * NS_PER_MS;
	tls_tickets_time(t);
}

void tls_tickets_time(struct tls *t)
{
	uint64_t now;

	if (!t->ssl)
		return;
	now = ulp_now_ns(t->layer);
	if (now >= t->ours->tickets_until_ns)
		end(t);
	else
		ulp_wake_after(t->layer, (uint32_t)((t->ours->tickets_until_ns - now + NS_PER_MS - 1) / NS_PER_MS));
}

int tls_tickets_copy(struct tls *t)
{
	const uint8_t *record;
	uint32_t bytes;
	int r = tls_in_whole(t->layer, &t->ours->in, &record, &bytes);

	if (r)
		return r;
	memcpy(copy, record, bytes);
	t->ours->copied = bytes;
	return 0;
}

void tls_tickets_keep(struct tls *t, bool handshake)
{
	struct tls_ours *o = t->ours;
	uint8_t *more = NULL;

	if (handshake && o->kept_bytes + o->copied <= KEPT_BYTES)
		more = realloc(o->kept_records, o->kept_bytes + o->copied);
	if (!more) {
		end(t);
		return;
	}
	memcpy(more + o->kept_bytes, copy, o->copied);
	o->kept_records = more;
	o->kept_bytes += o->copied;
	tls_recount(t);
}
