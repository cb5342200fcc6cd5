/*
 * Tickets of a server of TLS 1.3, for a client whose connection has left OpenSSL. Only OpenSSL can make a session of a
 * ticket. So its SSL stays until the first record that is not of a handshake, or for ticket_wait_ms: our record layer
 * opens each record, and OpenSSL is shown the same one, so that both count alike. A ticket that comes later is dropped.
 * What OpenSSL writes meanwhile goes nowhere; the alert that it would have sent is sent by our record layer.
 */
#include <errno.h>
#include <openssl/err.h>
#include <string.h>

#include "tls_ours.h"

#define NS_PER_MS 1000000u
#define READS_MAX 64u /* messages that OpenSSL reads in one record; tls_receive.c allows fewer */

static _Thread_local uint8_t copy[TLS_RECORD_MAX];

static void end(struct tls *t)
{
	tls_give_ssl(t);
	tls_recount(t);
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
	t->ours->fed_bytes = bytes;
	return 0;
}

int tls_tickets_show(struct tls *t, bool handshake)
{
	struct tls_ours *o = t->ours;
	uint8_t nobody[1];
	int r = 0;
	size_t n = 0;

	if (!handshake) {
		end(t);
		return 0;
	}
	o->fed = copy;
	for (unsigned i = 0; i < READS_MAX && !r; i++) {
		ERR_clear_error();
		r = SSL_read_ex(t->ssl, nobody, sizeof nobody, &n) == 1 && n ?
			    (t->failed = ulp_fail(t->layer, XTS_FAULT_RECORD, "data in a message")) :
			    tls_fault(t, 0);
		if (r == -EAGAIN && (o->fed_bytes || SSL_has_pending(t->ssl)))
			r = 0;
	}
	o->fed = NULL;
	o->fed_bytes = 0;
	if (t->failed)
		return tls_receive_failed(t, o->alert ? o->alert : TLS_INTERNAL_ERROR);
	return 0;
}
