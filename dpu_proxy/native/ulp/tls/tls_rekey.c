/*
 * New keys for TLS 1.3 where the kernel encrypts (RFC 8446 4.6.3, 7.2). The kernel takes new keys since Linux 6.14.
 *
 * OpenSSL writes KeyUpdate and derives the next keys, but only for itself: the kernel keeps the old ones. So while the
 * kernel has the keys, the traffic secret of the sending direction is kept (tls_secret.c).
 * Once OpenSSL has written KeyUpdate, the kernel gets the keys derived from the next secret, before anything else is
 * sent. KeyUpdate is due after rekey_records, and when the peer asks for it. (OpenSSL would answer such a request with
 * the next data it writes, but here it writes none.)
 *
 * Keys that cannot be changed end the connection, with that reason: keys in a kernel that takes no new ones, and the
 * keys with which the kernel receives.
 */
#include <errno.h>
#include <openssl/err.h>

#include "tls.h"
#include "ulp/tls_keys/tls_keys.h"

/* --- the next keys ------------------------------------------------------------------------------------------------ */

static bool knows_secret(const struct tls *t)
{
	return t->secrets && t->secrets->send.bytes;
}

/* KeyUpdate has gone to the kernel, and nothing after it. False: what follows would be sent with keys that the peer no
 * longer uses. */
static bool change_kernel(struct tls *t)
{
	const EVP_MD *digest = SSL_CIPHER_get_handshake_digest(SSL_get_current_cipher(t->ssl));
	const struct tls_cipher *cipher = tls_secret_cipher(t->ssl);
	union tls_crypto_info_any info = { 0 };
	bool ok = cipher && cipher->type < TLS_CIPHER_OURS && tls_secret_next(&t->secrets->send, digest) &&
		  tls_secret_keys(&t->secrets->send, digest, cipher, &info) &&
		  keys_kernel_change(t->layer, &info, tls_cipher_info_bytes(cipher), false) == 0;

	OPENSSL_cleanse(&info, sizeof info);
	return ok;
}

/* --- KeyUpdate ---------------------------------------------------------------------------------------------------- */

void tls_rekey_message(struct tls *t, bool write, const uint8_t *message, size_t bytes)
{
	bool asked = bytes == SSL3_HM_HEADER_LENGTH + 1 && message[SSL3_HM_HEADER_LENGTH] == SSL_KEY_UPDATE_REQUESTED;
	bool kernel_sends = t->send_by != XTS_TLS_CRYPTO_USER;

	if (!t->watches_keys || !bytes || message[0] != SSL3_MT_KEY_UPDATE)
		return;
	if (write) {
		/* it is in OpenSSL's buffer, and leaves at the end of SSL_do_handshake() */
		t->update_written = kernel_sends;
		return;
	}
	t->keys_lost = t->keys_lost || t->receive_by != XTS_TLS_CRYPTO_USER;
	t->update_due = t->update_due || (asked && kernel_sends);
}

void tls_rekey_settled(struct tls *t)
{
	bool kernel = t->send_by != XTS_TLS_CRYPTO_USER || t->receive_by != XTS_TLS_CRYPTO_USER;

	if (t->secrets)
		tls_secret_forget(&t->secrets->receive);
	if (t->send_by == XTS_TLS_CRYPTO_USER || SSL_version(t->ssl) != TLS1_3_VERSION ||
	    !t->context->config->kernel_changes_keys)
		tls_secrets_forget(t);
	t->watches_keys = kernel && SSL_version(t->ssl) == TLS1_3_VERSION;
}

void tls_rekey_count(struct tls *t, size_t bytes)
{
	t->records += (uint32_t)((bytes + TLS_RECORD_BYTES - 1) / TLS_RECORD_BYTES);
	if (t->records < t->context->config->settings.rekey_records || SSL_version(t->ssl) != TLS1_3_VERSION)
		return;
	t->records = 0;
	t->update_due = true;
	if (knows_secret(t))
		tls_count(&tls_counters.key_updates);
}

/* Sends the KeyUpdate, unless it has left already: if the socket did not take it at first, a read may have sent it. */
static int write_update(struct tls *t)
{
	int r;

	ERR_clear_error();
	if (!SSL_in_init(t->ssl)) {
		if (t->update_written)
			return 0;
		if (SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
			return tls_fault(t, 0);
	}
	r = SSL_do_handshake(t->ssl);
	return r == 1 ? 0 : tls_fault(t, r);
}

int tls_rekey_settle(struct tls *t)
{
	int r = 0;

	if (t->update_due && !knows_secret(t))
		t->keys_lost = true; /* the kernel takes no new keys */
	if (t->update_due && !t->keys_lost && !t->failed) {
		r = write_update(t);
		if (!r) {
			t->update_due = t->update_written = false;
			t->keys_lost = !change_kernel(t);
		}
	}
	if (t->keys_lost && !t->failed)
		t->failed = ulp_fail(t->layer, XTS_FAULT_HANDSHAKE,
				     "new keys are due, and those in the kernel cannot be changed");
	return t->failed ? t->failed : r;
}
