/*
 * Keys of the tickets that a server gives out. They are made here, change every session_timeout_s, and stay valid for
 * one more such period. A ticket is bound to the parameters (by the session id context), not to the queue: the
 * processes of one server have a queue each, but the same parameters and, by policy, the right to the same identities.
 *
 * They are in the memory for keys, which shows where. So the process that goes on when this one has died finds them
 * (loop/recover_tls.c). It opens tickets with them and makes none, since whoever broke into the dead process knows
 * them. For the same reason they open no ticket where the client has to show a certificate: such a ticket says that it
 * has done so. In an upgrade the next process is given them (tls_resumption.c).
 */
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tls.h"
#include "tls_kept.h"
#include "tls_resumption.h"
#include "ulp/config_inside.h"
#include "ulp/tls_keys/key_memory.h"

/* The newest, which makes tickets, the one before it, and those of processes before this one. */
#define KEYS 4u
#define KEYS_BYTES (KEYS * sizeof(struct tls_ticket_key))

static uint64_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec + 1;
}

/* --- with the tickets' lock held ---------------------------------------------------------------------------------- */

/* NULL: no memory. Where the memory for keys is full they are in ordinary memory. */
static struct tls_ticket_key *keys_of(struct tls_resumable *r)
{
	if (r->ticket_keys)
		return r->ticket_keys;
	r->ticket_keys = key_memory_take(KEYS_BYTES);
	if (r->ticket_keys)
		key_memory_show(r->ticket_keys);
	else
		r->ticket_keys = calloc(KEYS, sizeof *r->ticket_keys);
	return r->ticket_keys;
}

/* The others move on, and the last one is forgotten. */
static void insert(struct tls_ticket_key *keys, uint32_t at, const struct tls_ticket_key *key)
{
	for (uint32_t i = KEYS - 1; i > at; i--)
		keys[i] = keys[i - 1];
	keys[at] = *key;
}

static bool make(struct tls_ticket_key *key, uint64_t now)
{
	*key = (struct tls_ticket_key){ .made_s = now };
	return RAND_bytes(key->name, sizeof key->name) == 1 && RAND_bytes(key->cipher, sizeof key->cipher) == 1 &&
	       RAND_bytes(key->mac, sizeof key->mac) == 1;
}

/* The key to make tickets with, a new one if the old one has expired; NULL: no random bytes, or no memory. */
static const struct tls_ticket_key *newest_key(struct tls_resumable *resumable, uint64_t lifetime)
{
	struct tls_ticket_key *keys = keys_of(resumable), fresh;
	uint64_t now = now_s();
	bool made = true;

	if (keys && (!keys[0].made_s || now - keys[0].made_s >= lifetime)) {
		made = make(&fresh, now);
		if (made && keys[0].made_s)
			insert(keys, 0, &fresh);
		else if (made)
			keys[0] = fresh;
		OPENSSL_cleanse(&fresh, sizeof fresh);
	}
	for (uint32_t i = 1; keys && i < KEYS; i++) {
		if (keys[i].made_s && now - keys[i].made_s >= 2 * lifetime)
			OPENSSL_cleanse(&keys[i], sizeof keys[i]);
	}
	return keys && made ? &keys[0] : NULL;
}

/* NULL: no such key, or none that this connection may use. */
static const struct tls_ticket_key *key_named(const struct tls_ticket_key *keys, const unsigned char *name, bool bare)
{
	for (uint32_t i = 0; i < KEYS; i++) {
		if (keys[i].made_s && (bare || !keys[i].bare) &&
		    CRYPTO_memcmp(name, keys[i].name, sizeof keys[i].name) == 0)
			return &keys[i];
	}
	return NULL;
}

/* --- called by OpenSSL -------------------------------------------------------------------------------------------- */

static bool use_key(const struct tls_ticket_key *key, const unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
		    int encrypt)
{
	OSSL_PARAM parameters[] = {
		OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)(uintptr_t)key->mac, sizeof key->mac),
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)(uintptr_t)"SHA256", 0),
		OSSL_PARAM_construct_end(),
	};

	return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, encrypt) == 1 &&
	       EVP_MAC_CTX_set_params(mac, parameters) == 1;
}

/* SSL_CTX_set_tlsext_ticket_key_evp_cb(3): -1 error, 0 no such key, 1 use it, 2 use it and give out a new ticket. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
		     int encrypt)
{
	const struct tls *t = SSL_get_app_data(ssl);
	struct tls_resumable *resumable = t->context->config->resumable;
	const struct tls_ticket_key *newest, *key;
	int r = -1;

	pthread_mutex_lock(&resumable->ticket_lock);
	newest = newest_key(resumable, t->context->config->settings.session_timeout_s);
	if (newest && encrypt) {
		memcpy(name, newest->name, sizeof newest->name);
		if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) == 1 &&
		    use_key(newest, iv, cipher, mac, 1))
			r = 1;
	} else if (newest) {
		key = key_named(newest, name, !(SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER));
		if (!key)
			r = 0;
		else if (use_key(key, iv, cipher, mac, 0)) /* with TLS 1.3 a ticket is used once */
			r = key == newest && SSL_version(ssl) != TLS1_3_VERSION ? 1 : 2;
	}
	pthread_mutex_unlock(&resumable->ticket_lock);
	return r;
}

void tls_ticket_keys_install(SSL_CTX *ssl)
{
	SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl, on_ticket);
}

void tls_ticket_keys_free(struct tls_resumable *r)
{
	if (key_memory_has(r->ticket_keys)) {
		key_memory_hide(r->ticket_keys);
		key_memory_give(r->ticket_keys);
	} else if (r->ticket_keys) {
		OPENSSL_cleanse(r->ticket_keys, KEYS_BYTES);
		free(r->ticket_keys);
	}
	r->ticket_keys = NULL;
}

/* --- of another process ------------------------------------------------------------------------------------------- */

void tls_ticket_key_come(struct tls_resumable *r, const struct tls_ticket_key *key)
{
	struct tls_ticket_key *keys;

	pthread_mutex_lock(&r->ticket_lock);
	keys = keys_of(r);
	if (keys)
		insert(keys, 1, key);
	pthread_mutex_unlock(&r->ticket_lock);
}

int tls_ticket_keys_each(struct tls_resumable *r, int (*each)(void *to, const struct tls_ticket_key *key), void *to)
{
	int error = 0;

	pthread_mutex_lock(&r->ticket_lock);
	for (uint32_t i = KEYS; r->ticket_keys && i-- && !error;) { /* the oldest first */
		if (r->ticket_keys[i].made_s)
			error = each(to, &r->ticket_keys[i]);
	}
	pthread_mutex_unlock(&r->ticket_lock);
	return error;
}

/* Of the process that has died; in the memory for keys. */
static struct tls_ticket_key *came;

size_t tls_ticket_keys_bytes(void)
{
	return KEYS_BYTES;
}

void tls_ticket_keys_came(void *at)
{
	came = came ? came : key_memory_take(KEYS_BYTES);
	if (came)
		memcpy(came, at, KEYS_BYTES);
	OPENSSL_cleanse(at, KEYS_BYTES);
}

void xts_tls_go_on(struct xts_ulp_config *config)
{
	for (uint32_t i = KEYS; came && i--;) {
		came[i].bare = true;
		if (came[i].made_s)
			tls_ticket_key_come(config->tls->resumable, &came[i]);
	}
	key_memory_give(came);
	came = NULL;
}
