/*
 * What sessions are resumed from, for another process of the proxy that takes over (xts-proxy upgrade): the keys of
 * tickets, sessions of clients, and a server's sessions by their IDs, each as a record, with its length in front.
 *
 * What comes may be made up, as all that comes from another process. It is decoded by the tables, and by OpenSSL as a
 * session. No session is taken for longer than this configuration keeps any.
 */
#ifndef XTS_TLS_RESUMPTION_H
#define XTS_TLS_RESUMPTION_H

#include "tls.h"
#include "tls_resumption_struct.h"

extern const struct xts_record tls_resumption_record;

#define TLS_RESUMPTION_BYTES_MAX (32u << 20) /* what is beyond that is forgotten */

/* Its length, in memory that the caller gives to tls_resumption_drop(); or -errno. */
ssize_t tls_resumption_save(struct xts_tls_config *config, uint8_t **out);
void tls_resumption_drop(uint8_t *data, size_t bytes);
/* How many of them were taken, or -EBADMSG: it is something else. Before workers use the configuration, or later. */
int tls_resumption_load(struct xts_tls_config *config, const uint8_t *data, size_t bytes);

/* --- tls_ticket_keys.c: the oldest first; each() returns 0 or -errno, which ends it --- */

int tls_ticket_keys_each(struct tls_resumable *r, int (*each)(void *to, const struct tls_ticket_key *key), void *to);
void tls_ticket_key_come(struct tls_resumable *r, const struct tls_ticket_key *key);

/* --- tls_session.c: the same of clients, of which at most so many are kept; not on a worker --- */

int tls_sessions_each(struct tls_resumable *r, uint32_t most,
		      int (*each)(void *to, const uint8_t *key, SSL_SESSION *session), void *to);
/* Takes the session. */
void tls_session_come(struct xts_tls_config *config, const uint8_t *key, SSL_SESSION *session);

/* --- tls_session_ids.c: the same of servers --- */

int tls_ids_each(struct tls_resumable *r, int (*each)(void *to, const uint8_t *id, const uint8_t *data, uint32_t bytes),
		 void *to);
/* False: it is none of a server of TLS 1.2. */
bool tls_id_come(struct xts_tls_config *config, SSL_SESSION *session);

#endif
