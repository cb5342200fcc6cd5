/*
 * OpenSSL as the peer of a fuzz target: certificates made once, connections in memory whose random numbers are the same
 * each time, and the secrets by which a peer that does as it likes makes any record (TLS 1.3).
 */
#ifndef XTS_FUZZ_TLS_PEER_H
#define XTS_FUZZ_TLS_PEER_H

#define OPENSSL_SUPPRESS_DEPRECATED /* RAND_set_rand_method() */
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "secrets.h"
#include "ulp/tls/tls_config.h"
#include "ulp/tls_keys/tls_keys.h"

#define SECRET_BYTES 32u /* of TLS_AES_128_GCM_SHA256, the only suite of TLS 1.3 that the peer has */

struct pem {
	char text[4096];
	int bytes;
};

struct tls_peer {
	SSL *ssl;
	bool server, has_secret;
	uint8_t secret[SECRET_BYTES]; /* under which it writes */
	uint64_t records;             /* written under it */
};

static struct {
	EVP_PKEY *key;
	X509 *authority, *good, *bad;
	struct pem authority_pem, good_pem, bad_pem, key_pem;
	SSL_CTX *contexts[2][2]; /* by client or server, and whether its certificate is bad */
} world;

/* --- no chance ---------------------------------------------------------------------------------------------------- */

static uint64_t random_state;

static int random_bytes(unsigned char *out, int bytes)
{
	for (int i = 0; i < bytes; i++) {
		random_state ^= random_state << 13;
		random_state ^= random_state >> 7;
		random_state ^= random_state << 17;
		out[i] = (unsigned char)(random_state >> 32);
	}
	return 1;
}

static int random_status(void)
{
	return 1;
}

static const RAND_METHOD random_method = { .bytes = random_bytes, .pseudorand = random_bytes, .status = random_status };

static void random_begin(void)
{
	random_state = 0x9E3779B97F4A7C15u;
}

/* --- certificates ------------------------------------------------------------------------------------------------- */

static void add_extension(X509 *certificate, int nid, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	ENSURE(extension && X509_add_ext(certificate, extension, -1));
	X509_EXTENSION_free(extension);
}

/* issuer NULL: itself. One key is enough for all. */
static X509 *make_certificate(const char *name, X509 *issuer, bool authority)
{
	X509 *x = X509_new();
	X509_NAME *subject = X509_NAME_new();

	ENSURE(x && subject && X509_set_version(x, 2) && ASN1_INTEGER_set(X509_get_serialNumber(x), name[0]));
	ENSURE(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const uint8_t *)name, -1, -1, 0));
	ENSURE(ASN1_TIME_set_string(X509_getm_notBefore(x), "20000101000000Z"));
	ENSURE(ASN1_TIME_set_string(X509_getm_notAfter(x), "21000101000000Z"));
	ENSURE(X509_set_subject_name(x, subject) &&
	       X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : subject));
	ENSURE(X509_set_pubkey(x, world.key));
	add_extension(x, NID_basic_constraints, authority ? "critical,CA:TRUE" : "CA:FALSE");
	if (!authority)
		add_extension(x, NID_subject_alt_name, "DNS:localhost");
	ENSURE(X509_sign(x, world.key, EVP_sha256()));
	X509_NAME_free(subject);
	return x;
}

static void make_pem(struct pem *out, X509 *certificate)
{
	BIO *bio = BIO_new(BIO_s_mem());

	if (certificate)
		ENSURE(PEM_write_bio_X509(bio, certificate));
	else
		ENSURE(PEM_write_bio_PrivateKey(bio, world.key, NULL, NULL, 0, NULL, NULL));
	out->bytes = BIO_read(bio, out->text, sizeof out->text);
	ENSURE(out->bytes > 0);
	BIO_free(bio);
}

/* --- secrets ------------------------------------------------------------------------------------------------------ */

/* A line of NSS's key log: label, client random, secret. */
static void on_secret(const SSL *ssl, const char *line)
{
	struct tls_peer *p = SSL_get_app_data(ssl);
	const char *hex = strrchr(line, ' ') + 1;
	const char *own[2] = { p->server ? "SERVER_HANDSHAKE" : "CLIENT_HANDSHAKE",
			       p->server ? "SERVER_TRAFFIC" : "CLIENT_TRAFFIC" };
	long bytes;
	uint8_t *secret = OPENSSL_hexstr2buf(hex, &bytes);

	ENSURE(secret && bytes > 0);
	watch_secret(secret, (size_t)bytes);
	if (!strncmp(line, own[0], strlen(own[0])) || !strncmp(line, own[1], strlen(own[1]))) {
		ENSURE(bytes == SECRET_BYTES);
		memcpy(p->secret, secret, SECRET_BYTES);
		p->has_secret = true;
		p->records = 0;
	}
	OPENSSL_clear_free(secret, (size_t)bytes);
}

static void on_message(int writes, int version, int type, const void *data, size_t bytes, SSL *ssl, void *peer)
{
	struct tls_peer *p = peer;

	(void)version;
	(void)ssl;
	if (writes && type == SSL3_RT_HEADER && bytes && *(const uint8_t *)data == TLS_APPLICATION_DATA)
		p->records++;
}

/* HKDF-Expand-Label (RFC 8446 7.1) without a context, of at most 32 bytes. */
static void expand(const uint8_t *secret, const char *label, uint8_t *out, uint8_t bytes)
{
	uint8_t info[64] = { 0, bytes, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' ' }, hash[SECRET_BYTES];
	size_t n = 9 + strlen(label);

	memcpy(info + 9, label, strlen(label));
	info[n + 1] = 1;
	ENSURE(HMAC(EVP_sha256(), secret, SECRET_BYTES, info, n + 2, hash, NULL));
	memcpy(out, hash, bytes);
}

/* A record as the peer would make it, had it these to say. Its length. */
static uint32_t tls_peer_forge(struct tls_peer *p, uint8_t type, const uint8_t *data, uint32_t bytes, uint8_t *out)
{
	union tls_crypto_info_any info = { .info = { TLS_1_3_VERSION, TLS_CIPHER_AES_GCM_128 } };
	struct tls12_crypto_info_aes_gcm_128 *gcm = (void *)info.bytes;
	struct iovec piece = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	uint64_t number = htobe64(p->records++);
	struct tls_aead aead = { 0 };
	uint8_t iv[TLS_NONCE_BYTES];
	ssize_t n;

	expand(p->secret, "iv", iv, sizeof iv);
	expand(p->secret, "key", gcm->key, sizeof gcm->key);
	memcpy(gcm->salt, iv, 4);
	memcpy(gcm->iv, iv + 4, 8);
	memcpy(gcm->rec_seq, &number, 8);
	ENSURE(!tls_aead_set(&aead, &info, true));
	n = tls_aead_seal(&aead, type, &piece, 1, 0, bytes, out);
	ENSURE(n > 0);
	tls_aead_clear(&aead);
	if (type == TLS_HANDSHAKE && bytes == 5 && !memcmp(data, "\x18\0\0\1", 4)) { /* KeyUpdate */
		expand(p->secret, "traffic upd", p->secret, SECRET_BYTES);
		p->records = 0;
	}
	return (uint32_t)n;
}

/* --- peers -------------------------------------------------------------------------------------------------------- */

/* The first protocol that is offered. */
static int on_alpn(SSL *ssl, const uint8_t **out, uint8_t *bytes, const uint8_t *in, unsigned in_bytes, void *argument)
{
	(void)ssl;
	(void)argument;
	if (in_bytes < 1 || in[0] > in_bytes - 1)
		return SSL_TLSEXT_ERR_NOACK;
	*out = in + 1;
	*bytes = in[0];
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *make_context(bool server, bool bad)
{
	SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

	ENSURE(c && SSL_CTX_use_certificate(c, bad ? world.bad : world.good) && SSL_CTX_use_PrivateKey(c, world.key));
	ENSURE(SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256"));
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(c, SSL_OP_LEGACY_SERVER_CONNECT);
	SSL_CTX_set_post_handshake_auth(c, 1);
	SSL_CTX_set_keylog_callback(c, on_secret);
	if (server)
		SSL_CTX_set_alpn_select_cb(c, on_alpn, NULL);
	else
		ENSURE(!SSL_CTX_set_alpn_protos(c, (const uint8_t *)"\2h2", 3));
	return c;
}

/* Once in a process. */
static void tls_world_make(void)
{
	ENSURE(xts_tls_wipe_memory());
	random_begin();
	ENSURE(RAND_set_rand_method(&random_method));
	world.key = EVP_EC_gen("P-256");
	ENSURE(world.key);
	world.authority = make_certificate("authority", NULL, true);
	world.good = make_certificate("localhost", world.authority, false);
	world.bad = make_certificate("nobody", NULL, false);
	make_pem(&world.authority_pem, world.authority);
	make_pem(&world.good_pem, world.good);
	make_pem(&world.bad_pem, world.bad);
	make_pem(&world.key_pem, NULL);
	for (int i = 0; i < 4; i++)
		world.contexts[i >> 1][i & 1] = make_context(i >> 1, i & 1);
}

static void tls_peer_open(struct tls_peer *p, bool server, bool bad, uint16_t max_version, bool small_records)
{
	memset(p, 0, sizeof *p);
	p->server = server;
	p->ssl = SSL_new(world.contexts[server][bad]);
	ENSURE(p->ssl);
	SSL_set_app_data(p->ssl, p);
	SSL_set_msg_callback(p->ssl, on_message);
	SSL_set_msg_callback_arg(p->ssl, p);
	SSL_set_bio(p->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	ENSURE(SSL_set_max_proto_version(p->ssl, max_version));
	if (small_records)
		ENSURE(SSL_set_max_send_fragment(p->ssl, 512));
	if (server)
		SSL_set_accept_state(p->ssl);
	else
		SSL_set_connect_state(p->ssl);
}

static void tls_peer_close(struct tls_peer *p)
{
	SSL_free(p->ssl);
	p->ssl = NULL;
	ERR_clear_error();
}

#endif
