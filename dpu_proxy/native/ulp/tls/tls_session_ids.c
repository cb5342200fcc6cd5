/*
 * Sessions of a server of TLS 1.2, for clients that have no tickets (RFC 5077), such as Java before 13: the server
 * keeps the session and the client its ID.
 *
 * They are kept as OpenSSL writes them, with a limit of their size, where all workers find them: so
 * another worker resumes what one began. At most sessions_max: the oldest goes first. Only clients that ask for no
 * ticket get one, so nothing is kept for all others. Whoever makes many such connections pushes out the sessions of
 * others, which shake hands once more; he takes no more memory. Which parameters a session belongs to, OpenSSL compares
 * (the session id context), as with tickets.
 *
 * OpenSSL calls these on threads of the pool, under their lock. When a connection fails, its session must not be
 * resumed (RFC 5246 7.2.2): a worker finds that, and may not wait for this lock. It leaves the ID where the next one
 * who has the lock finds it.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "tls_resumption.h"

#define BUCKETS 256u     /* IDs are random bytes of ours: the first one chooses */
#define KEPT_BYTES 4096u /* of a session, with the client's certificate if it has one */

struct kept {
	struct kept *next; /* of the bucket */
	uint32_t slot, bytes;
	uint8_t id[TLS_KEY_BYTES];
	uint8_t session[];
};

struct forgotten {
	struct forgotten *next;
	uint8_t id[TLS_KEY_BYTES];
};

struct tls_ids {
	struct kept *buckets[BUCKETS];
	uint32_t room, next_slot;
	struct kept *slots[]; /* in the order in which they came */
};

/* --- with the lock held ------------------------------------------------------------------------------------------- */

static void drop(struct tls_ids *ids, const uint8_t *id)
{
	for (struct kept **link = &ids->buckets[id[0] % BUCKETS]; *link; link = &(*link)->next) {
		struct kept *k = *link;

		if (memcmp(k->id, id, sizeof k->id) != 0)
			continue;
		*link = k->next;
		ids->slots[k->slot] = NULL;
		OPENSSL_cleanse(k, sizeof *k + k->bytes);
		free(k);
		return;
	}
}

/* What workers have left. */
static void drop_forgotten(struct tls_resumable *r)
{
	struct forgotten *f = atomic_exchange(&r->forgotten_ids, NULL);

	while (f) {
		struct forgotten *next = f->next;

		if (r->ids)
			drop(r->ids, f->id);
		free(f);
		f = next;
	}
}

static const struct kept *find(const struct tls_ids *ids, const uint8_t *id)
{
	const struct kept *k = ids ? ids->buckets[id[0] % BUCKETS] : NULL;

	while (k && memcmp(k->id, id, sizeof k->id) != 0)
		k = k->next;
	return k;
}

/* NULL: no memory. */
static struct tls_ids *ids_of(struct tls_resumable *r, uint32_t room)
{
	if (r->ids)
		return r->ids;
	r->ids = calloc(1, sizeof *r->ids + room * sizeof(struct kept *));
	if (r->ids)
		r->ids->room = room;
	return r->ids;
}

static void put(struct tls_ids *ids, struct kept *k)
{
	struct kept *oldest;

	if (!ids) {
		free(k);
		return;
	}
	oldest = ids->slots[ids->next_slot];
	if (oldest)
		drop(ids, oldest->id);
	k->slot = ids->next_slot;
	k->next = ids->buckets[k->id[0] % BUCKETS];
	ids->buckets[k->id[0] % BUCKETS] = ids->slots[k->slot] = k;
	ids->next_slot = (ids->next_slot + 1) % ids->room;
}

/* --- called by OpenSSL -------------------------------------------------------------------------------------------- */

/* NULL: it is not kept, or there is no memory. */
static struct kept *kept_of(SSL_SESSION *session)
{
	int bytes = i2d_SSL_SESSION(session, NULL);
	unsigned id_bytes;
	const uint8_t *id = SSL_SESSION_get_id(session, &id_bytes);
	struct kept *k;
	uint8_t *at;

	/* in TLS 1.3 it is a ticket's */
	if (SSL_SESSION_get_protocol_version(session) == TLS1_3_VERSION || id_bytes != TLS_KEY_BYTES || bytes <= 0 ||
	    (uint32_t)bytes > KEPT_BYTES)
		return NULL;
	k = malloc(sizeof *k + (size_t)bytes);
	if (!k)
		return NULL;
	at = k->session;
	k->bytes = (uint32_t)i2d_SSL_SESSION(session, &at);
	memcpy(k->id, id, id_bytes);
	return k;
}

static void keep(struct xts_tls_config *config, struct kept *k)
{
	struct tls_resumable *r = config->resumable;

	pthread_mutex_lock(&r->ticket_lock);
	drop_forgotten(r);
	if (r->ids)
		drop(r->ids, k->id);
	put(ids_of(r, config->settings.sessions_max), k);
	pthread_mutex_unlock(&r->ticket_lock);
}

/* A server has a session. 0: it keeps the reference. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
	struct tls *t = SSL_get_app_data(ssl);
	struct kept *k = kept_of(session);

	if (!k)
		return 0;
	memcpy(t->session_key, k->id, sizeof k->id);
	t->keeps_session = true;
	keep(t->context->config, k);
	return 0;
}

static SSL_SESSION *on_id(SSL *ssl, const uint8_t *id, int bytes, int *copied)
{
	struct tls *t = SSL_get_app_data(ssl);
	struct tls_resumable *r = t->context->config->resumable;
	SSL_SESSION *session = NULL;
	const struct kept *k;

	*copied = 0;
	if (bytes != TLS_KEY_BYTES)
		return NULL;
	pthread_mutex_lock(&r->ticket_lock);
	drop_forgotten(r);
	k = find(r->ids, id);
	if (k) {
		const uint8_t *at = k->session;

		session = d2i_SSL_SESSION(NULL, &at, (long)k->bytes);
	}
	pthread_mutex_unlock(&r->ticket_lock);
	if (session) {
		memcpy(t->session_key, id, TLS_KEY_BYTES);
		t->keeps_session = true;
	}
	return session;
}

void tls_ids_install(SSL_CTX *ssl)
{
	SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_SERVER | SSL_SESS_CACHE_NO_INTERNAL |
						    SSL_SESS_CACHE_NO_AUTO_CLEAR);
	SSL_CTX_sess_set_new_cb(ssl, on_session);
	SSL_CTX_sess_set_get_cb(ssl, on_id);
}

/* --- on a worker -------------------------------------------------------------------------------------------------- */

void tls_ids_forget(struct tls_resumable *r, const uint8_t *id)
{
	struct forgotten *f = malloc(sizeof *f);

	if (!f)
		return;
	memcpy(f->id, id, sizeof f->id);
	f->next = atomic_load(&r->forgotten_ids);
	while (!atomic_compare_exchange_weak(&r->forgotten_ids, &f->next, f))
		;
}

void tls_ids_free(struct tls_resumable *r)
{
	drop_forgotten(r);
	for (uint32_t i = 0; r->ids && i < r->ids->room; i++) {
		if (r->ids->slots[i])
			drop(r->ids, r->ids->slots[i]->id);
	}
	free(r->ids);
}

/* --- for another process ------------------------------------------------------------------------------------------ */

int tls_ids_each(struct tls_resumable *r, int (*each)(void *to, const uint8_t *id, const uint8_t *data, uint32_t bytes),
		 void *to)
{
	int error = 0;

	pthread_mutex_lock(&r->ticket_lock);
	drop_forgotten(r);
	for (uint32_t i = 0; r->ids && i < r->ids->room && !error; i++) { /* the oldest first */
		const struct kept *k = r->ids->slots[(r->ids->next_slot + i) % r->ids->room];

		if (k)
			error = each(to, k->id, k->session, k->bytes);
	}
	pthread_mutex_unlock(&r->ticket_lock);
	return error;
}

bool tls_id_come(struct xts_tls_config *config, SSL_SESSION *session)
{
	struct kept *k = kept_of(session);

	if (k)
		keep(config, k);
	return k;
}
