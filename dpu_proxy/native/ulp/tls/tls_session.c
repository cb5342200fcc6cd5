/*
 * Resumption of TLS sessions.
 *
 * Clients: sessions are kept, at most sessions_max; the oldest is dropped first. A session is looked up by everything
 * that must not differ: queue, parameters (trust, identity, verification, ALPN …), the server's name and its address.
 * So a host's session never serves another host, nor a connection that would verify the server differently. A session
 * of TLS 1.3 is used once (RFC 8446 C.4), so several are kept of one server: else only one of several connections that
 * begin at a time could resume.
 *
 * Servers: only the keys of tickets are kept (tls_ticket_keys.c), and sessions that clients of TLS 1.2 know by their
 * IDs (tls_session_ids.c).
 *
 * All of this is in struct tls_resumable, which a reload shares with the configuration before (tls_resumable.c).
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tls.h"
#include "tls_resumption.h"
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
		char tenant[TLS_NAME_BYTES]; /* its name: it has it in the next process, too */
		uint32_t queue_id;
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
	(void)snprintf(same.tenant, sizeof same.tenant, "%s", ulp_tenant_name(t->layer));
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

void tls_session_install(SSL_CTX *ssl, bool client)
{
	if (client) {
		SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
		SSL_CTX_sess_set_new_cb(ssl, on_session);
	} else {
		SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
		tls_ticket_keys_install(ssl);
	}
}

/* --- for another process ------------------------------------------------------------------------------------------ */

int tls_sessions_each(struct tls_resumable *r, uint32_t most,
		      int (*each)(void *to, const uint8_t *key, SSL_SESSION *session), void *to)
{
	struct tls_session *copies;
	uint32_t count, copied = 0;
	int error = 0;

	collect(r, most);
	pthread_mutex_lock(&r->lock);
	count = r->session_count;
	pthread_mutex_unlock(&r->lock);
	copies = calloc(count + 1u, sizeof *copies);
	if (!copies)
		return -ENOMEM;
	pthread_mutex_lock(&r->lock); /* for which workers wait */
	for (struct tls_session *s = r->sessions; s && copied < count; s = s->next) {
		if (SSL_SESSION_up_ref(s->session))
			copies[copied++] = *s;
	}
	pthread_mutex_unlock(&r->lock);
	while (copied--) { /* the oldest first */
		if (!error)
			error = each(to, copies[copied].key, copies[copied].session);
		SSL_SESSION_free(copies[copied].session);
	}
	free(copies);
	return error;
}

void tls_session_come(struct xts_tls_config *config, const uint8_t *key, SSL_SESSION *session)
{
	struct tls_session *s = malloc(sizeof *s);

	if (!s) {
		SSL_SESSION_free(session);
		return;
	}
	memcpy(s->key, key, sizeof s->key);
	s->session = session;
	put(config->resumable, config->settings.sessions_max, s);
}
