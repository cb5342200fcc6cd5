/*
 * Messages and records that bring the application no data: KeyUpdate, tickets, HelloRequest, empty records, warnings.
 * Each costs the peer some 27 bytes and us up to 60 us, and OpenSSL goes on reading them as long as there are more. So
 * OpenSSL is shown a few records at a time (tls_slice.c), paid for from the connection's turn, and this file counts
 * those that bring no data. As in BoringSSL and rustls, a connection with more than 32 of them in a row is ended.
 * OpenSSL ends it: it is made to drop what it has read, and then shown a record that no peer may send, so that it sends
 * the alert itself.
 *
 * A handshake brings no data. What brings it on are bytes of its messages, and their records may be as short as the
 * peer likes: clients that send one byte in each hope to pass a censor. So here bytes are counted, with the records'
 * heads, and records only if they have no message in them.
 */
#include <errno.h>
#include <openssl/err.h>
#include <string.h>

#include "tls_ours.h"

#define SHAKING_MAX 256u /* messages of a handshake, or records without any */
/* all records of a handshake: OpenSSL takes 100 KiB of certificates, and of a ClientHello 128 */
#define SHAKING_BYTES (512u << 10)
/* OpenSSL may have read three records already, each of which can end one message and begin another */
#define ALERT_READS 12u

/* Makes OpenSSL drop the current record and read no further. */
static void stop(SSL *ssl)
{
	SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
}

/* Called by OpenSSL before it reads the body of a message. */
static void on_state(const SSL *ssl, int where, int result)
{
	struct tls *t = SSL_get_app_data(ssl);

	(void)result;
	if (where & SSL_CB_LOOP)
		stop(t->ssl);
}

static void end(struct tls *t)
{
	t->flooded = true;
	stop(t->ssl);
}

static void count(struct tls *t, uint16_t *quiet, unsigned most)
{
	if (t->flooded || ++*quiet <= (t->done ? most : SHAKING_MAX))
		return;
	end(t);
}

/* A record of a handshake that is under way. */
static void count_shaking(struct tls *t, const uint8_t *head)
{
	uint32_t bytes = (uint32_t)(head[3] << 8 | head[4]);
	/* in TLS 1.3 application data is what encrypted messages look like */
	bool messages = head[0] == SSL3_RT_HANDSHAKE || head[0] == SSL3_RT_APPLICATION_DATA;

	t->shaking_bytes += SSL3_RT_HEADER_LENGTH + bytes;
	if (t->shaking_bytes > SHAKING_BYTES)
		end(t);
	else if (!messages || !bytes)
		count(t, &t->quiet_records, SHAKING_MAX);
}

static void on_message(int write, int version, int type, const void *data, size_t bytes, SSL *ssl, void *argument)
{
	struct tls *t = argument;

	(void)version;
	(void)ssl;
	if (type == SSL3_RT_HEADER && !t->done && bytes >= SSL3_RT_HEADER_LENGTH)
		tls_leave_header(t, write, data);
	if (type == SSL3_RT_HANDSHAKE)
		tls_rekey_message(t, write, data, bytes);
	if (write)
		return;
	if (type == SSL3_RT_HEADER && !t->done) {
		if (bytes >= SSL3_RT_HEADER_LENGTH)
			count_shaking(t, data);
	} else if (type == SSL3_RT_HEADER) {
		/* this is the header of the next record, which may have data */
		count(t, &t->quiet_records, TLS_QUIET_MAX + 1);
	} else if (type == SSL3_RT_HANDSHAKE) {
		count(t, &t->quiet_messages, TLS_QUIET_MAX);
		if (t->done)
			(void)ulp_step(t->layer, TLS_MESSAGE_STEPS);
	}
}

void tls_flood_watch(struct tls *t)
{
	SSL_set_msg_callback(t->ssl, on_message);
	SSL_set_msg_callback_arg(t->ssl, t);
}

int tls_flood_fail(struct tls *t)
{
	if (!t->done && t->shaking_bytes > SHAKING_BYTES)
		t->failed = ulp_fail(t->layer, XTS_FAULT_FLOOD, "the peer's handshake has more than %u KiB",
				     SHAKING_BYTES >> 10);
	else
		t->failed = ulp_fail(t->layer, XTS_FAULT_FLOOD,
				     "the peer sent %u records and %u messages in a row, and no data", t->quiet_records,
				     t->quiet_messages);
	tls_bio_flush(t);
	return t->failed;
}

void tls_flood_alert(struct tls *t)
{
	uint8_t nobody[256];
	size_t n;

	SSL_set_info_callback(t->ssl, on_state);
	for (unsigned i = 0; i < ALERT_READS; i++) {
		int r;

		SSL_set_shutdown(t->ssl, SSL_get_shutdown(t->ssl) & ~SSL_RECEIVED_SHUTDOWN);
		ERR_clear_error();
		r = t->done ? SSL_read_ex(t->ssl, nobody, sizeof nobody, &n) : SSL_do_handshake(t->ssl);
		if (r <= 0 && SSL_get_error(t->ssl, r) == SSL_ERROR_SSL)
			break; /* the alert has been written */
	}
	OPENSSL_cleanse(nobody, sizeof nobody);
	ERR_clear_error();
}
