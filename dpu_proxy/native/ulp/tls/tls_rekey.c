/*
 * New keys for TLS 1.3 where the kernel encrypts (RFC 8446 4.6.3, 7.2). The kernel takes new keys since Linux 6.14.
 *
 * OpenSSL writes KeyUpdate and derives the next keys, but only for itself: the kernel keeps the old ones. So while the
 * kernel has the keys, the traffic secret of the sending direction is kept here, taken from OpenSSL's key log callback.
 * Once OpenSSL has written KeyUpdate, the kernel gets the keys derived from the next secret, before anything else is
 * sent. KeyUpdate is due after rekey_records, and when the peer asks for it. (OpenSSL would answer such a request with
 * the next data it writes, but here it writes none.)
 *
 * Keys that cannot be changed end the connection, with that reason: keys in a kernel that takes no new ones, and the
 * keys with which the kernel receives.
 */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <stdio.h>
#include <string.h>

#include "tls.h"
#include "ulp/tls_keys/tls_keys.h"

/* --- the secret --------------------------------------------------------------------------------------------------- */

/* Takes the secret from a line of the key log: label, client random, secret. */
static void on_secret(const SSL *ssl, const char *line)
{
	struct tls *t = SSL_get_app_data(ssl);
	const char *label = t->client ? "CLIENT_TRAFFIC_SECRET_0 " : "SERVER_TRAFFIC_SECRET_0 ";
	const char *hex = strrchr(line, ' ');
	size_t n;

	if (!t->socket || !hex || strncmp(line, label, strlen(label)) != 0)
		return;
	if (OPENSSL_hexstr2buf_ex(t->send_secret, sizeof t->send_secret, &n, hex + 1, 0) == 1)
		t->secret_bytes = (uint8_t)n;
}

void tls_rekey_install(const struct xts_tls_config *config, SSL_CTX *ssl)
{
	if (config->kernel_changes_keys && config->settings.crypto != XTS_TLS_CRYPTO_USER)
		SSL_CTX_set_keylog_callback(ssl, on_secret);
}

void tls_rekey_forget(struct tls *t)
{
	OPENSSL_cleanse(t->send_secret, sizeof t->send_secret);
	t->secret_bytes = 0;
}

/* HKDF-Expand-Label of RFC 8446 7.1, without a context. */
static bool expand_label(const EVP_MD *digest, const uint8_t *secret, size_t secret_bytes, const char *label,
			 uint8_t *out, size_t bytes)
{
	char info[32] = { (char)(bytes >> 8), (char)bytes, 0 };
	/* with its terminating 0, which means no context */
	int label_bytes = snprintf(info + 3, sizeof info - 3, "tls13 %s", label);
	int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
	OSSL_PARAM parameters[] = {
		OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)EVP_MD_get0_name(digest), 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (uint8_t *)(uintptr_t)secret, secret_bytes),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, 3 + (size_t)label_bytes + 1),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	bool ok;

	info[2] = (char)label_bytes;
	ok = context && EVP_KDF_derive(context, out, bytes, parameters) == 1;
	EVP_KDF_CTX_free(context);
	EVP_KDF_free(kdf);
	return ok;
}

/* --- the next keys ------------------------------------------------------------------------------------------------ */

static uint16_t kernel_cipher(const SSL_CIPHER *cipher)
{
	switch (SSL_CIPHER_get_protocol_id(cipher)) { /* RFC 8446 B.4 */
	case 0x1301:
		return TLS_CIPHER_AES_GCM_128;
	case 0x1302:
		return TLS_CIPHER_AES_GCM_256;
	case 0x1303:
		return TLS_CIPHER_CHACHA20_POLY1305;
	case 0x1304:
		return TLS_CIPHER_AES_CCM_128;
	default:
		return 0;
	}
}

/* Derives the next secret, and info gets its keys, from record 0 on. */
static bool next_keys(struct tls *t, const struct tls_cipher *cipher, union tls_crypto_info_any *info)
{
	const EVP_MD *digest = SSL_CIPHER_get_handshake_digest(SSL_get_current_cipher(t->ssl));
	uint8_t next[sizeof t->send_secret], iv[TLS_NONCE_BYTES];
	uint8_t *iv_at = info->bytes + sizeof info->info, *key_at = iv_at + cipher->iv_bytes,
		*salt_at = key_at + cipher->key_bytes;
	bool ok = digest && t->secret_bytes && (size_t)EVP_MD_get_size(digest) == t->secret_bytes &&
		  expand_label(digest, t->send_secret, t->secret_bytes, "traffic upd", next, t->secret_bytes) &&
		  expand_label(digest, next, t->secret_bytes, "key", key_at, cipher->key_bytes) &&
		  expand_label(digest, next, t->secret_bytes, "iv", iv, sizeof iv);

	if (ok) {
		memcpy(t->send_secret, next, t->secret_bytes);
		memcpy(salt_at, iv, cipher->salt_bytes);
		memcpy(iv_at, iv + cipher->salt_bytes, cipher->iv_bytes);
		info->info.version = TLS_1_3_VERSION;
		info->info.cipher_type = cipher->type;
	}
	OPENSSL_cleanse(next, sizeof next);
	OPENSSL_cleanse(iv, sizeof iv);
	return ok;
}

/* KeyUpdate has gone to the kernel, and nothing after it. False: what follows would be sent with keys that the peer no
 * longer uses. */
static bool change_kernel(struct tls *t)
{
	const struct tls_cipher *cipher = tls_cipher_find(kernel_cipher(SSL_get_current_cipher(t->ssl)));
	union tls_crypto_info_any info = { 0 };
	bool ok = cipher && next_keys(t, cipher, &info) &&
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

	if (t->send_by == XTS_TLS_CRYPTO_USER || SSL_version(t->ssl) != TLS1_3_VERSION)
		tls_rekey_forget(t);
	t->watches_keys = kernel && SSL_version(t->ssl) == TLS1_3_VERSION;
}

void tls_rekey_count(struct tls *t, size_t bytes)
{
	t->records += (uint32_t)((bytes + TLS_RECORD_BYTES - 1) / TLS_RECORD_BYTES);
	if (t->records < t->context->config->settings.rekey_records || SSL_version(t->ssl) != TLS1_3_VERSION)
		return;
	t->records = 0;
	t->update_due = true;
	if (t->secret_bytes)
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

	if (t->update_due && !t->secret_bytes)
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
