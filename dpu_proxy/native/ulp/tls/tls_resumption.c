/* Sessions and keys of tickets for another process; see tls_resumption.h. */
#include "tls_resumption.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OF_TICKETS, OF_A_CLIENT, BY_ID };

#define SESSION_BYTES 16384u /* one with the certificate of a client or server; longer ones are forgotten */

/* The secret of a record of OF_TICKETS. */
struct ticket_secret {
	uint8_t cipher[32], mac[32];
};

/* --- giving ------------------------------------------------------------------------------------------------------- */

struct sink {
	uint8_t *data;
	size_t bytes, room;
};

void tls_resumption_drop(uint8_t *data, size_t bytes)
{
	if (data)
		OPENSSL_cleanse(data, bytes);
	free(data);
}

/* realloc() would leave secrets behind. */
static int reserve(struct sink *s, size_t more)
{
	size_t room = s->room ? s->room : 65536;
	uint8_t *moved;

	if (s->bytes + more > TLS_RESUMPTION_BYTES_MAX)
		return -ENOBUFS;
	while (room < s->bytes + more)
		room *= 2;
	if (room == s->room)
		return 0;
	moved = malloc(room);
	if (!moved)
		return -ENOMEM;
	if (s->bytes)
		memcpy(moved, s->data, s->bytes);
	tls_resumption_drop(s->data, s->bytes);
	s->data = moved;
	s->room = room;
	return 0;
}

static int add(struct sink *s, const struct tls_resumption *what)
{
	const struct xts_record *r = &tls_resumption_record;
	struct xts_record_attached nothing;
	ssize_t bytes = xts_record_encode(r, r->version, what, NULL, 0, &nothing);
	uint32_t length = (uint32_t)bytes;
	int error = bytes < 0 ? (int)bytes : reserve(s, sizeof length + (size_t)bytes);

	if (error)
		return error;
	memcpy(s->data + s->bytes, &length, sizeof length);
	s->bytes += sizeof length;
	(void)xts_record_encode(r, r->version, what, s->data + s->bytes, (size_t)bytes, &nothing);
	s->bytes += (size_t)bytes;
	return 0;
}

static int add_ticket_key(void *to, const struct tls_ticket_key *key)
{
	struct ticket_secret secret;
	struct tls_resumption what = {
		.kind = OF_TICKETS,
		.bare = key->bare,
		.made_s = key->made_s,
		.secret = { (const uint8_t *)&secret, sizeof secret },
	};
	int error;

	memcpy(secret.cipher, key->cipher, sizeof secret.cipher);
	memcpy(secret.mac, key->mac, sizeof secret.mac);
	memcpy(what.key, key->name, sizeof key->name);
	error = add(to, &what);
	OPENSSL_cleanse(&secret, sizeof secret);
	return error;
}

static int add_id(void *to, const uint8_t *id, const uint8_t *data, uint32_t bytes)
{
	struct tls_resumption what = { .kind = BY_ID, .secret = { data, bytes } };

	memcpy(what.key, id, sizeof what.key);
	return add(to, &what);
}

static int add_session(void *to, const uint8_t *key, SSL_SESSION *session)
{
	struct tls_resumption what = { .kind = OF_A_CLIENT };
	int bytes = i2d_SSL_SESSION(session, NULL), error;
	uint8_t *data = bytes > 0 && (uint32_t)bytes <= SESSION_BYTES ? malloc((size_t)bytes) : NULL, *at = data;

	if (!data)
		return 0;
	(void)i2d_SSL_SESSION(session, &at);
	what.secret = (struct xts_record_bytes){ data, (uint32_t)bytes };
	memcpy(what.key, key, sizeof what.key);
	error = add(to, &what);
	tls_resumption_drop(data, (size_t)bytes);
	return error;
}

ssize_t tls_resumption_save(struct xts_tls_config *config, uint8_t **out)
{
	struct sink s = { 0 };
	int error = tls_ticket_keys_each(config->resumable, add_ticket_key, &s);

	if (!error)
		error = tls_sessions_each(config->resumable, config->settings.sessions_max, add_session, &s);
	if (!error)
		error = tls_ids_each(config->resumable, add_id, &s);
	ERR_clear_error();
	if (error && error != -ENOBUFS) {
		tls_resumption_drop(s.data, s.bytes);
		return error;
	}
	*out = s.data;
	return (ssize_t)s.bytes;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* NULL: it is none, or is over. */
static SSL_SESSION *session_of(const struct xts_tls_config *config, struct xts_record_bytes bytes)
{
	const uint8_t *at = bytes.data;
	SSL_SESSION *session = bytes.bytes <= SESSION_BYTES ? d2i_SSL_SESSION(NULL, &at, (long)bytes.bytes) : NULL;
	long most = (long)config->settings.session_timeout_s, now = (long)time(NULL);

	if (session && SSL_SESSION_get_timeout(session) > most)
		(void)SSL_SESSION_set_timeout(session, most);
	if (session && at == bytes.data + bytes.bytes && SSL_SESSION_get_timeout(session) > 0 &&
	    SSL_SESSION_get_time(session) <= now &&
	    SSL_SESSION_get_time(session) > now - SSL_SESSION_get_timeout(session))
		return session;
	SSL_SESSION_free(session);
	ERR_clear_error();
	return NULL;
}

static bool take_ticket_key(struct xts_tls_config *config, const struct tls_resumption *what)
{
	struct tls_ticket_key key = { .made_s = what->made_s, .bare = what->bare };

	if (what->secret.bytes != sizeof key.cipher + sizeof key.mac || !what->made_s)
		return false;
	memcpy(key.name, what->key, sizeof key.name);
	memcpy(key.cipher, what->secret.data, sizeof key.cipher);
	memcpy(key.mac, what->secret.data + sizeof key.cipher, sizeof key.mac);
	tls_ticket_key_come(config->resumable, &key);
	OPENSSL_cleanse(&key, sizeof key);
	return true;
}

static bool take_session(struct xts_tls_config *config, const struct tls_resumption *what)
{
	SSL_SESSION *session = session_of(config, what->secret);
	bool taken;

	if (session && what->kind == OF_A_CLIENT) {
		tls_session_come(config, what->key, session);
		return true;
	}
	taken = session && tls_id_come(config, session);
	SSL_SESSION_free(session);
	return taken;
}

static bool take(struct xts_tls_config *config, const struct tls_resumption *what)
{
	if (!config->settings.sessions_max)
		return false;
	return what->kind == OF_TICKETS ? take_ticket_key(config, what) : take_session(config, what);
}

int tls_resumption_load(struct xts_tls_config *config, const uint8_t *data, size_t bytes)
{
	const struct xts_record_attached nothing = { 0 };
	struct tls_resumption what;
	uint32_t length;
	int taken = 0;

	while (bytes) {
		if (bytes < sizeof length)
			return -EBADMSG;
		memcpy(&length, data, sizeof length);
		data += sizeof length;
		bytes -= sizeof length;
		if (length > bytes || xts_record_decode(&tls_resumption_record, data, length, &nothing, &what))
			return -EBADMSG;
		taken += take(config, &what);
		OPENSSL_cleanse(&what, sizeof what);
		data += length;
		bytes -= length;
	}
	return taken;
}
