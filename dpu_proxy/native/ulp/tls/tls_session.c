/*
 * Resumption of TLS sessions.
 *
 * Clients: sessions are kept, at most sessions_max; the oldest is dropped first. A session is looked up by everything
 * that must not differ: queue, parameters (trust, identity, verification, ALPN …), the server's name and its address.
 * So a host's session never serves another host, nor a connection that would verify the server differently. A session
 * of TLS 1.3 is used once (RFC 8446 C.4), so several are kept of one server: else only one of several connections that
 * begin at a time could resume.
 *
 * Servers: only the ticket keys are kept. They are made here, change every session_timeout_s, and stay valid for one
 * more such period. A ticket is bound to the parameters (by the session id context), not to the queue: the processes of
 * one server have a queue each, but the same parameters and, by policy, the right to the same identities. Sessions that
 * clients of TLS 1.2 know by their IDs are in tls_session_ids.c.
 *
 * All of this is in struct tls_resumable, which a reload shares with the configuration before (tls_resumable.c).
 */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tls.h"
#include "ulp/config_inside.h"

/* --- clients ------------------------------------------------------------------------------------------------------ */

#define OF_A_SERVER 8u /* sessions of TLS 1.3 */

struct tls_session {
	struct tls_session *next;
	uint8_t key[TLS_KEY_BYTES];
	SSL_SESSION *session;
};

static void session_free(struct tls_session *s)
{
	SSL_SESSION_free(s->session);
	free(s);
}

/* With the lock held. */
static struct tls_session *take(struct tls_resumable *r, const uint8_t *key)
{
	for (struct tls_session **link = &r->sessions; *link; link = &(*link)->next) {
		struct tls_session *s = *link;

		if (memcmp(s->key, key, TLS_KEY_BYTES) == 0) {
			*link = s->next;
			r->session_count--;
			return s;
		}
	}
	return NULL;
}

/* With the lock held. */
static void drop_oldest(struct tls_resumable *r)
{
	struct tls_session **link = &r->sessions;

	if (!*link)
		return;
	while ((*link)->next)
		link = &(*link)->next;
	session_free(*link);
	*link = NULL;
	r->session_count--;
}

/* With the lock held: takes the oldest of the same server out if there is no room for this one in addition. */
static struct tls_session *make_room(struct tls_resumable *r, const struct tls_session *s)
{
	bool used_once = SSL_SESSION_get_protocol_version(s->session) == TLS1_3_VERSION;
	uint32_t most = used_once ? OF_A_SERVER : 1, count = 0;
	struct tls_session **oldest = NULL, *out = NULL;

	for (struct tls_session **link = &r->sessions; *link; link = &(*link)->next) {
		if (memcmp((*link)->key, s->key, TLS_KEY_BYTES) != 0)
			continue;
		oldest = link;
		count++;
	}
	if (count >= most) {
		out = *oldest;
		*oldest = out->next;
		r->session_count--;
	}
	return out;
}

static void put(struct tls_resumable *r, uint32_t most, struct tls_session *s)
{
	struct tls_session *out;

	pthread_mutex_lock(&r->lock);
	out = make_room(r, s);
	if (!out && r->session_count >= most)
		drop_oldest(r);
	s->next = r->sessions;
	r->sessions = s;
	r->session_count++;
	pthread_mutex_unlock(&r->lock);
	if (out)
		session_free(out);
}

/* On a worker. The session is stored, or freed. */
static void store(struct tls *t, SSL_SESSION *session)
{
	struct tls_session *s = malloc(sizeof *s);

	if (!s) {
		SSL_SESSION_free(session);
		return;
	}
	memcpy(s->key, t->session_key, sizeof s->key);
	s->session = session;
	put(t->context->config->resumable, t->context->config->settings.sessions_max, s);
}

void tls_session_store(struct tls *t)
{
	if (t->session)
		store(t, t->session);
	t->session = NULL;
}

/* A thread of the pool may not have the lock, for which workers wait. */
static _Thread_local const struct tls_session_place *reading;

void tls_session_reads(const struct tls_session_place *place)
{
	reading = place;
}

/* A ticket whose connection may be gone: it waits for a worker. */
static int on_ticket_read(SSL_SESSION *session)
{
	struct tls_session *s = reading && SSL_SESSION_is_resumable(session) ? malloc(sizeof *s) : NULL;

	if (!s)
		return 0;
	memcpy(s->key, reading->key, sizeof s->key);
	s->session = session;
	s->next = atomic_load(&reading->config->resumable->come_sessions);
	while (!atomic_compare_exchange_weak(&reading->config->resumable->come_sessions, &s->next, s))
		;
	return 1;
}

/* On a worker: stores those that have come, the oldest first. */
static void collect(struct tls_resumable *r, uint32_t most)
{
	struct tls_session *newest = atomic_exchange(&r->come_sessions, NULL), *oldest = NULL;

	while (newest) {
		struct tls_session *before = newest->next;

		newest->next = oldest;
		oldest = newest;
		newest = before;
	}
	while (oldest) {
		struct tls_session *s = oldest;

		oldest = s->next;
		put(r, most, s);
	}
}

/* OpenSSL has a session that can be resumed. Returns 1 if it takes the reference. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
	struct tls *t = SSL_get_app_data(ssl);

	if (!t)
		return on_ticket_read(session);
	if (!t->keeps_session || !SSL_SESSION_is_resumable(session))
		return 0;
	if (t->done) { /* a ticket, read on a worker */
		store(t, session);
	} else {
		SSL_SESSION_free(t->session);
		t->session = session;
	}
	return 1;
}

/* The hash of everything that must be the same; false: this connection has nothing by which a later one could find its
 * session. */
static bool session_key(struct tls *t, const struct tls_parameters *p)
{
	struct {
		uint8_t context[TLS_KEY_BYTES];
		uint32_t tenant, queue_id;
		uint16_t alpn_bytes;
		uint8_t alpn[TLS_ALPN_BYTES];
		char server_name[TLS_HOST_BYTES];
		struct sockaddr_storage peer;
	} same;
	socklen_t bytes = sizeof same.peer;
	int fd = ulp_socket(t->layer);

	memset(&same, 0, sizeof same);
	memcpy(same.context, t->context->bound, sizeof same.context);
	memcpy(same.server_name, p->server_name, sizeof same.server_name);
	memcpy(same.alpn, p->alpn, p->alpn_bytes);
	same.alpn_bytes = p->alpn_bytes;
	same.tenant = ulp_tenant(t->layer);
	same.queue_id = ulp_queue_id(t->layer);
	if ((fd < 0 || getpeername(fd, (struct sockaddr *)&same.peer, &bytes) < 0) && !p->server_name[0])
		return false;
	return EVP_Digest(&same, sizeof same, t->session_key, NULL, EVP_sha256(), NULL) == 1;
}

static bool is_fresh(const SSL_SESSION *session)
{
	return SSL_SESSION_get_time(session) + SSL_SESSION_get_timeout(session) > (long)time(NULL);
}

void tls_session_prepare(struct tls *t, const struct tls_parameters *p)
{
	struct tls_resumable *r = t->context->config->resumable;
	uint32_t most = t->context->config->settings.sessions_max;
	struct tls_session *s;

	if (p->no_resumption || !most || !session_key(t, p))
		return;
	t->keeps_session = true;
	collect(r, most);
	pthread_mutex_lock(&r->lock);
	s = take(r, t->session_key);
	pthread_mutex_unlock(&r->lock);
	if (!s)
		return;
	t->session = s->session;
	if (is_fresh(s->session) && SSL_SESSION_get_protocol_version(s->session) != TLS1_3_VERSION &&
	    SSL_SESSION_up_ref(s->session))
		put(r, most, s);
	else
		free(s);
}

void tls_session_offer(struct tls *t)
{
	if (t->session && is_fresh(t->session))
		(void)SSL_set_session(t->ssl, t->session);
	SSL_SESSION_free(t->session);
	t->session = NULL;
}

void tls_session_forget(struct tls *t)
{
	struct xts_tls_config *config = tls_config_of(t);
	struct tls_resumable *r = config->resumable;
	struct tls_session *s;

	if (!t->keeps_session)
		return;
	t->keeps_session = false;
	if (!t->client) {
		tls_ids_forget(r, t->session_key);
		return;
	}
	collect(r, config->settings.sessions_max);
	do {
		pthread_mutex_lock(&r->lock);
		s = take(r, t->session_key);
		pthread_mutex_unlock(&r->lock);
		if (s)
			session_free(s);
	} while (s);
}

void tls_sessions_free(struct tls_resumable *r)
{
	collect(r, UINT32_MAX);
	while (r->session_count)
		drop_oldest(r);
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

static uint64_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec + 1;
}

/* With the tickets' lock held: the key to make tickets with, a new one if the old one has expired; NULL: no random
 * bytes. */
static const struct tls_ticket_key *newest_key(struct tls_resumable *resumable, uint64_t lifetime)
{
	struct tls_ticket_key *keys = resumable->ticket_keys;
	uint64_t now = now_s();

	if (!keys[0].made_s || now - keys[0].made_s >= lifetime) {
		struct tls_ticket_key fresh = { .made_s = now };

		if (RAND_bytes(fresh.name, sizeof fresh.name) != 1 ||
		    RAND_bytes(fresh.cipher, sizeof fresh.cipher) != 1 || RAND_bytes(fresh.mac, sizeof fresh.mac) != 1)
			return NULL;
		keys[1] = keys[0];
		keys[0] = fresh;
		OPENSSL_cleanse(&fresh, sizeof fresh);
	}
	if (keys[1].made_s && now - keys[1].made_s >= 2 * lifetime)
		OPENSSL_cleanse(&keys[1], sizeof keys[1]);
	return &keys[0];
}

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
	const struct tls_ticket_key *newest, *key = NULL;
	int r = -1;

	pthread_mutex_lock(&resumable->ticket_lock);
	newest = newest_key(resumable, t->context->config->settings.session_timeout_s);
	if (newest && encrypt) {
		memcpy(name, newest->name, sizeof newest->name);
		if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) == 1 &&
		    use_key(newest, iv, cipher, mac, 1))
			r = 1;
	} else if (newest) {
		for (int i = 0; i < 2 && !key; i++) {
			const struct tls_ticket_key *k = &resumable->ticket_keys[i];

			if (k->made_s && CRYPTO_memcmp(name, k->name, sizeof k->name) == 0)
				key = k;
		}
		if (!key)
			r = 0;
		else if (use_key(key, iv, cipher, mac, 0)) /* with TLS 1.3 a ticket is used once */
			r = key == newest && SSL_version(ssl) != TLS1_3_VERSION ? 1 : 2;
	}
	pthread_mutex_unlock(&resumable->ticket_lock);
	return r;
}

void tls_session_install(SSL_CTX *ssl, bool client)
{
	if (client) {
		SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
		SSL_CTX_sess_set_new_cb(ssl, on_session);
	} else {
		SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
		SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl, on_ticket);
	}
}
