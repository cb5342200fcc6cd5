/*
 * A direction of a TLS connection as a record (record.h), for another owner: keys, number, and what is under way. Only
 * of a connection that has left OpenSSL altogether (no SSL reads tickets any more).
 */
#ifndef XTS_TLS_DIRECTION_H
#define XTS_TLS_DIRECTION_H

#include "tls_direction_struct.h"
#include "tls_ours.h"

extern const struct xts_record tls_direction_record, tls_state_record;

/* Writes it. Returns its length, also if that is more than room, and then out is worth nothing; -EBUSY: the connection
 * has not left OpenSSL. The caller wipes out when it is done. */
ssize_t tls_direction_write(const struct tls *t, bool send, void *out, size_t room);
/* What is known of a connection (struct tls_about), as bytes. */
struct tls_about_text {
	uint16_t cipher_id;
	bool resumed, verified;
	struct xts_record_bytes server_name, alpn, cipher;
	const struct tls_chain *chain; /* NULL: the peer has no certificate */
};
/* The record of a connection (tls_move.c), whose directions are described as they are. As tls_direction_write(). */
ssize_t tls_save_as(const struct tls *t, const struct tls_about_text *a, void *out, size_t room);
/* Is it ours to give away? */
bool tls_direction_is_here(const struct tls *t, bool send);
/* What the record says, and what it makes of the connection: for a record of both directions (tls_move.c). The caller
 * wipes the struct. */
struct tls_direction tls_direction_describe(const struct tls *t, bool send);
int tls_direction_take(struct tls *t, bool send, const struct tls_direction *d);
/* Gives the direction away: from now on this connection can neither open nor seal a record of it. The record is handed
 * on only after that. */
void tls_direction_wipe(struct tls *t, bool send);
/* Takes a direction, in place of one that was wiped. 0; -EBADMSG: it is not what tls_direction_write() writes;
 * -ENOMEM or -ENOBUFS, and the direction stays wiped. */
int tls_direction_read(struct tls *t, bool send, const void *record, size_t bytes);
/* In builds with XTS_DEBUG: both directions become what their records say. */
void tls_direction_again(struct tls *t);

#endif
