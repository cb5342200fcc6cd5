/*
 * Messages and records of which nothing comes for the application: KeyUpdate, tickets, HelloRequest, empty records,
 * warnings. Each costs the peer some 27 bytes and us up to 60 us, and OpenSSL goes on with them for as long as there
 * are more. So (tls_bio.c) it is shown a few records at a time, which are paid from the connection's turn, and here
 * those are counted that bring no data. As BoringSSL and rustls do, a connection that has more than 32 of them in a row
 * is ended, by OpenSSL itself: it is made to forget what it has, and shown a record that no peer may send, so that it
 * sends the alert itself.
 */
#include <errno.h>
#include <openssl/err.h>
#include <string.h>

#include "tls.h"

#define QUIET_MAX 32u      /* records or messages without data between them */
#define SHAKING_MAX 256u   /* records, messages: of a handshake; its certificates may come in many pieces */
#define MESSAGE_STEPS 128u /* other keys: 25 us */
#define ALERT_READS 12u    /* of three records that OpenSSL may have already: each can end a message and begin one */

/* OpenSSL drops the record it is in, and reads no more. */
static void stop(SSL *ssl)
{
	SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
}

/* Before it reads the body of a message. */
static void on_state(const SSL *ssl, int where, int result)
{
	struct tls *t = SSL_get_app_data(ssl);

	(void)result;
	if (where & SSL_CB_LOOP)
		stop(t->ssl);
}

static void count(struct tls *t, uint16_t *quiet, unsigned most)
{
	if (t->flooded || ++*quiet <= (t->done ? most : SHAKING_MAX))
		return;
	t->flooded = true;
	stop(t->ssl);
}

static void on_message(int write, int version, int type, const void *data, size_t bytes, SSL *ssl, void *argument)
{
	struct tls *t = argument;

	(void)version;
	(void)ssl;
	if (type == SSL3_RT_HANDSHAKE)
		tls_rekey_message(t, write, data, bytes);
	if (write)
		return;
	if (type == SSL3_RT_HEADER) {
		count(t, &t->quiet_records, QUIET_MAX + 1); /* the next one's header: it may have data */
	} else if (type == SSL3_RT_HANDSHAKE) {
		count(t, &t->quiet_messages, QUIET_MAX);
		if (t->done)
			(void)ulp_step(t->layer, MESSAGE_STEPS);
	}
}

void tls_flood_watch(struct tls *t)
{
	SSL_set_msg_callback(t->ssl, on_message);
	SSL_set_msg_callback_arg(t->ssl, t);
}

int tls_flood_end(struct tls *t)
{
	uint8_t nobody[256];
	size_t n;

	t->failed = ulp_fail(t->layer, XTS_FAULT_FLOOD, "the peer sent %u records and %u messages in a row, and no data",
			     t->quiet_records, t->quiet_messages);
	SSL_set_info_callback(t->ssl, on_state);
	for (unsigned i = 0; i < ALERT_READS; i++) {
		int r;

		SSL_set_shutdown(t->ssl, SSL_get_shutdown(t->ssl) & ~SSL_RECEIVED_SHUTDOWN);
		ERR_clear_error();
		r = t->done ? SSL_read_ex(t->ssl, nobody, sizeof nobody, &n) : SSL_do_handshake(t->ssl);
		if (r <= 0 && SSL_get_error(t->ssl, r) == SSL_ERROR_SSL)
			break; /* the alert is written */
	}
	OPENSSL_cleanse(nobody, sizeof nobody);
	ERR_clear_error();
	tls_bio_flush(t);
	return t->failed;
}
