/*
 * Keys outside OpenSSL: of TLS 1.3 from the traffic secrets (RFC 8446 7.2, 7.3), which pass by when OpenSSL derives
 * them in our library context (tls_kdf.h), or are told by its key log callback, and of TLS 1.2 from the master secret
 * (RFC 5246 6.3). Both become the kernel's struct, in which a record layer takes a direction: the kernel's
 * (tls_rekey.c) or ours (tls_leave.c).
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <string.h>

#include "tls.h"
#include "tls_kdf.h"
#include "ulp/tls_keys/key_memory.h"

/* --- the secrets -------------------------------------------------------------------------------------------------- */

void tls_secret_forget(struct tls_secret *s)
{
	OPENSSL_cleanse(s, sizeof *s);
}

void tls_secrets_forget(struct tls *t)
{
	key_memory_give(t->secrets);
	t->secrets = NULL;
}

/* OpenSSL begins to use this secret. */
static void take(struct tls *t, bool of_client, const uint8_t *secret, size_t bytes)
{
	bool sends = of_client == t->client;
	struct tls_secret *s;

	if (!t->secrets)
		t->secrets = key_memory_take(sizeof *t->secrets);
	if (!t->secrets || bytes > sizeof s->data)
		return; /* the connection stays with OpenSSL */
	s = sends ? &t->secrets->send : &t->secrets->receive;
	memcpy(s->data, secret, bytes);
	s->bytes = (uint8_t)bytes;
	*(sends ? &t->watch.sent : &t->watch.received) = 0;
}

static void on_secret(void *t, bool of_client, const uint8_t *secret, size_t bytes)
{
	take(t, of_client, secret, bytes);
}

/* A line of the key log: label, client random, secret. */
static void on_line(const SSL *ssl, const char *line)
{
	static const char client[] = "CLIENT_TRAFFIC_SECRET_0 ", server[] = "SERVER_TRAFFIC_SECRET_0 ";
	struct tls *t = SSL_get_app_data(ssl);
	bool of_client = strncmp(line, client, sizeof client - 1) == 0;
	const char *hex = strrchr(line, ' ');
	struct tls_secret s;
	size_t n;

	/* without t OpenSSL reads tickets of a connection that has left it (tls_tickets.c), and keys that changed meanwhile */
	if (!t || !hex || (!of_client && strncmp(line, server, sizeof server - 1) != 0))
		return;
	if (OPENSSL_hexstr2buf_ex(s.data, sizeof s.data, &n, hex + 1, 0) == 1)
		take(t, of_client, s.data, n);
	tls_secret_forget(&s);
}

static bool needs_secrets(const struct xts_tls_config *config)
{
	bool kernel = config->kernel_changes_keys && config->settings.crypto != XTS_TLS_CRYPTO_USER;

	return kernel || config->settings.records != XTS_TLS_RECORDS_OPENSSL;
}

void tls_secret_install(const struct xts_tls_config *config, SSL_CTX *ssl)
{
	if (!tls_library() && needs_secrets(config))
		SSL_CTX_set_keylog_callback(ssl, on_line);
}

int tls_shake_hands(struct tls *t)
{
	int r;

	ERR_clear_error();
	if (needs_secrets(t->context->config))
		tls_kdf_tells(on_secret, t);
	r = SSL_do_handshake(t->ssl);
	tls_kdf_tells(NULL, NULL);
	return r;
}

/* --- TLS 1.3 ------------------------------------------------------------------------------------------------------ */

/* Looked up once: workers that change keys may not wait for locks that threads of the pool have. */
static EVP_KDF *kdf_13;

static void find_kdf_13(void)
{
	kdf_13 = EVP_KDF_fetch(tls_library(), TLS_KDF_NAME, NULL);
}

/* HKDF-Expand-Label of RFC 8446 7.1, without a context: by our function where there is one (tls_kdf.h). */
static bool expand_label(const EVP_MD *digest, const struct tls_secret *secret, const char *label, uint8_t *out,
			 size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
	OSSL_PARAM parameters[] = {
		OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)EVP_MD_get0_name(digest), 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (uint8_t *)(uintptr_t)secret->data, secret->bytes),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, (char *)(uintptr_t)"tls13 ", 6),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, (char *)(uintptr_t)label, strlen(label)),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF_CTX *context;
	bool ok;

	pthread_once(&once, find_kdf_13);
	context = kdf_13 ? EVP_KDF_CTX_new(kdf_13) : NULL;
	ok = context && EVP_KDF_derive(context, out, bytes, parameters) == 1;
	EVP_KDF_CTX_free(context);
	return ok;
}

bool tls_secret_next(struct tls_secret *s, const EVP_MD *digest)
{
	struct tls_secret next = { .bytes = s->bytes };
	bool ok = digest && s->bytes && (size_t)EVP_MD_get_size(digest) == s->bytes &&
		  expand_label(digest, s, "traffic upd", next.data, next.bytes);

	if (ok)
		*s = next;
	tls_secret_forget(&next);
	return ok;
}

/* Writes the parts of a key where the kernel's struct has them; iv: salt and iv, as one. */
static void fill(union tls_crypto_info_any *info, const struct tls_cipher *c, uint16_t version, const uint8_t *key,
		 const uint8_t *iv)
{
	uint8_t *iv_at = info->bytes + sizeof info->info, *key_at = iv_at + c->iv_bytes,
		*salt_at = key_at + c->key_bytes;

	memset(info, 0, sizeof *info);
	info->info.version = version;
	info->info.cipher_type = c->type;
	memcpy(salt_at, iv, c->salt_bytes);
	memcpy(iv_at, iv + c->salt_bytes, c->iv_bytes);
	memcpy(key_at, key, c->key_bytes);
}

bool tls_secret_keys(const struct tls_secret *s, const EVP_MD *digest, const struct tls_cipher *c,
		     union tls_crypto_info_any *info)
{
	uint8_t key[EVP_MAX_KEY_LENGTH], iv[TLS_NONCE_BYTES];
	bool ok = digest && s->bytes && (size_t)EVP_MD_get_size(digest) == s->bytes &&
		  expand_label(digest, s, "key", key, c->key_bytes) && expand_label(digest, s, "iv", iv, sizeof iv);

	if (ok)
		fill(info, c, TLS_1_3_VERSION, key, iv);
	OPENSSL_cleanse(key, sizeof key);
	OPENSSL_cleanse(iv, sizeof iv);
	return ok;
}

/* --- TLS 1.2 ------------------------------------------------------------------------------------------------------ */

#define RANDOM_BYTES 32u
#define MASTER_BYTES 48u

/* The key block of RFC 5246 6.3, as far as AEAD ciphers need it: both keys, then both IVs. */
static bool key_block(const SSL *ssl, const EVP_MD *digest, uint8_t *out, size_t bytes)
{
	static const char label[] = "key expansion";
	uint8_t seed[sizeof label - 1 + 2 * RANDOM_BYTES], master[MASTER_BYTES];
	uint8_t *server = seed + sizeof label - 1, *client = server + RANDOM_BYTES;
	size_t n = SSL_SESSION_get_master_key(SSL_get0_session(ssl), master, sizeof master);
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS1-PRF", NULL);
	EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	bool ok = context && digest && n == sizeof master &&
		  SSL_get_server_random(ssl, server, RANDOM_BYTES) == RANDOM_BYTES &&
		  SSL_get_client_random(ssl, client, RANDOM_BYTES) == RANDOM_BYTES;

	memcpy(seed, label, sizeof label - 1);
	if (ok) {
		OSSL_PARAM parameters[] = {
			OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST,
							 (char *)(uintptr_t)EVP_MD_get0_name(digest), 0),
			OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, master, sizeof master),
			OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, seed, sizeof seed),
			OSSL_PARAM_construct_end(),
		};

		ok = EVP_KDF_derive(context, out, bytes, parameters) == 1;
	}
	OPENSSL_cleanse(master, sizeof master);
	EVP_KDF_CTX_free(context);
	EVP_KDF_free(kdf);
	return ok;
}

bool tls_secret_keys_12(const SSL *ssl, bool of_client, const struct tls_cipher *c, union tls_crypto_info_any *info)
{
	const EVP_MD *digest = SSL_CIPHER_get_handshake_digest(SSL_get_current_cipher(ssl));
	/* the IV is the salt; with ChaCha20-Poly1305, which has no salt, it is all of the nonce (RFC 7905) */
	uint8_t iv_bytes = c->salt_bytes ? c->salt_bytes : c->iv_bytes, iv[TLS_NONCE_BYTES] = { 0 };
	uint8_t block[2 * (EVP_MAX_KEY_LENGTH + TLS_NONCE_BYTES)];
	const uint8_t *keys = block, *ivs = block + 2 * c->key_bytes;
	bool ok = key_block(ssl, digest, block, 2u * (c->key_bytes + iv_bytes));

	if (ok) {
		memcpy(iv, ivs + (of_client ? 0 : iv_bytes), iv_bytes);
		fill(info, c, TLS_1_2_VERSION, keys + (of_client ? 0 : c->key_bytes), iv);
	}
	OPENSSL_cleanse(block, sizeof block);
	OPENSSL_cleanse(iv, sizeof iv);
	return ok;
}

void tls_secret_put(union tls_crypto_info_any *info, const struct tls_cipher *c, const uint8_t *key, const uint8_t *iv,
		    const uint8_t *nonce)
{
	fill(info, c, TLS_1_2_VERSION, key, iv);
	memcpy(info->bytes + sizeof info->info, c->explicit_bytes ? nonce : iv, c->iv_bytes);
}

void tls_secret_put_number(union tls_crypto_info_any *info, const struct tls_cipher *c, uint64_t number)
{
	uint8_t *end = info->bytes + tls_cipher_info_bytes(c);

	for (unsigned i = 0; i < 8; i++)
		end[-1 - (int)i] = (uint8_t)(number >> 8 * i);
}

/* --- ciphers ------------------------------------------------------------------------------------------------------ */

const struct tls_cipher *tls_secret_cipher(const SSL *ssl)
{
	const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
	bool short_tag = cipher && strstr(SSL_CIPHER_get_name(cipher), "CCM8");

	short_tag = short_tag || (cipher && SSL_CIPHER_get_protocol_id(cipher) == 0x1305); /* RFC 8446 B.4 */
	switch (cipher ? SSL_CIPHER_get_cipher_nid(cipher) : NID_undef) {
	case NID_aes_128_gcm:
		return tls_cipher_find(TLS_CIPHER_AES_GCM_128);
	case NID_aes_256_gcm:
		return tls_cipher_find(TLS_CIPHER_AES_GCM_256);
	case NID_chacha20_poly1305:
		return tls_cipher_find(TLS_CIPHER_CHACHA20_POLY1305);
	case NID_aes_128_ccm:
		return tls_cipher_find(short_tag ? TLS_CIPHER_AES_CCM8_128 : TLS_CIPHER_AES_CCM_128);
	case NID_aes_256_ccm:
		return tls_cipher_find(short_tag ? TLS_CIPHER_AES_CCM8_256 : TLS_CIPHER_AES_CCM_256);
	default:
		return NULL;
	}
}
