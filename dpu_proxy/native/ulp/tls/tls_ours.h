/*
 * A connection that has left OpenSSL (tls_leave.c): our record layer carries it.
 *
 * tls_leave.c     takes keys, numbers and what was read ahead, and frees the SSL
 * tls_receive.c   received records: data, alerts, KeyUpdate
 * tls_tickets.c   tickets of a server, which OpenSSL still reads
 * tls_seal.c      records to send: data, alerts, KeyUpdate
 * tls_direction.c a direction as a record, for another owner
 * tls_kept.c      all of it is written down, for the process that goes on when this one has died
 */
#ifndef XTS_TLS_OURS_H
#define XTS_TLS_OURS_H

#include "tls.h"
#include "ulp/tls_keys/tls_record.h"

enum { TLS_WARNING = 1, TLS_FATAL = 2 };
/* RFC 8446 6; the rest are in tls_record.h */
enum {
	TLS_CLOSE_NOTIFY = 0,
	TLS_ILLEGAL_PARAMETER = 47,
	TLS_INTERNAL_ERROR = 80,
	TLS_USER_CANCELED = 90,
	TLS_NO_RENEGOTIATION = 100
};

/* How much of a ticket has been looked at. */
struct tls_ticket_shape {
	uint8_t part;
	bool bad;
	uint16_t left; /* bytes of this part */
};

/* A message of a handshake that is being read; it may be in several records, and a record may have several. */
struct tls_message {
	uint8_t head[4], head_bytes;
	uint8_t first; /* byte of its body */
	bool in_body;
	uint32_t left; /* bytes of its body that have not come yet */
	struct tls_ticket_shape ticket;
};

/* What is known of a connection, written down as it changes (tls_kept.h). The rest is in struct tls_ours itself. */
struct tls_kept {
	/* of what is sent; whole unless it is torn, and unless the aead has given out a number behind this one */
	uint64_t sequence; /* of the next record */
	uint64_t taken;    /* bytes of data that are in records, since this was begun */
	uint64_t sealed;   /* bytes of records, as TCP counts what it has taken */
	uint64_t end;      /* where they end, as an offset (lasting.h): the last ones wait before it; 0: not there */
	uint8_t explicit_nonce[8]; /* as of the aead */
	uint32_t records;
	uint8_t notified;
	uint8_t spare[3];
	uint32_t sum; /* of all that is above */
	uint8_t torn;
	bool changes; /* as tls_record_in.changes */
	/* of what is received */
	struct tls_in_kept in;
	/* what does not change */
	bool on; /* 0: nothing of this is true */
	bool client, resumed, verified, keeps_session;
	uint8_t crypto;
	uint16_t cipher, cipher_id, name_bytes, alpn_bytes, cipher_bytes;
	uint32_t record_max, chain_bytes, own_bytes;
	uint64_t text, chain; /* offsets (lasting.h); 0: there is none */
	const char *reason;   /* one of the library's, which is at the same place there */
};

static inline uint32_t tls_kept_sum(const struct tls_kept *k)
{
	return memory_sum(k, offsetof(struct tls_kept, sum));
}

struct tls_ours {
	struct tls_kept kept;
	struct tls_record_in in;
	struct tls_aead out;
	struct tls_idle idle;
	bool tls13;
	const EVP_MD *digest;                          /* with which TLS 1.3 derives the next secrets: */
	struct tls_secret send_secret, receive_secret; /* TLS 1.2: the keys */
	struct tls_message message;
	bool update_due; /* KeyUpdate has to be sent before the next data */
	/* while tickets may come: */
	uint8_t *kept_records; /* that OpenSSL will be shown */
	uint32_t kept_bytes;
	uint32_t copied; /* bytes of the record under way, which tls_tickets_copy() has copied */
	uint64_t tickets_until_ns;
};

/* --- tls_seal.c --------------------------------------------------------------------------------------------------- */

/* Seals at most t->record_max bytes of the pieces, from byte skip on, as one record of data, behind what waits to be
 * sent. Returns as tls_send.c's write_record(). */
ssize_t tls_seal_data(struct tls *t, const struct iovec *iov, int pieces, size_t skip, size_t bytes);
/* 0 or the fault. */
int tls_seal_alert(struct tls *t, uint8_t level, uint8_t alert);

/* --- tls_kept.c --------------------------------------------------------------------------------------------------- */

/* Records have been sealed, of which the last one waits in front of this; or they wait somewhere else now. */
void tls_kept_sealed(struct tls *t, const uint8_t *end, uint32_t bytes);
/* The same place; something else has changed. */
void tls_kept_sent(struct tls *t);
/* Until then, what waits cannot be used by anybody else. */
static inline void tls_kept_tears(struct tls *t)
{
	if (t->ours && t->ours->kept.on)
		*(volatile uint8_t *)&t->ours->kept.torn = 1;
}
/* It is not true any more. */
static inline void tls_kept_ends(struct tls *t)
{
	if (t->ours)
		*(volatile bool *)&t->ours->kept.on = false;
}

/* --- tls_receive.c ------------------------------------------------------------------------------------------------ */

/* ulp_protocol.read */
ssize_t tls_receive(struct tls *t, void *out, size_t room, struct ulp_mark *mark);
bool tls_receive_pending(const struct tls *t);
/* The connection has failed, with t->failed set: tells the peer by an alert. Returns t->failed. */
int tls_receive_failed(struct tls *t, uint8_t alert);

/* --- tls_tickets.c ------------------------------------------------------------------------------------------------ */

/* The handshake is done: does OpenSSL stay for a while? On any thread. */
bool tls_tickets_may_come(const struct tls *t);
/* It does. */
void tls_tickets_expect(struct tls *t);
/* Before the next record is opened: copies it. 0 or as tls_in_whole(). */
int tls_tickets_copy(struct tls *t);
/* It has been opened. handshake: it has messages of a handshake, and is kept for OpenSSL; else no ticket is read any
 * more. */
void tls_tickets_keep(struct tls *t, bool handshake);
void tls_tickets_forget(struct tls_ours *o);
/* The connection ends: a thread of the pool frees the SSL, if there is one, when it has read what was kept. */
void tls_tickets_close(struct tls *t);
/* Whether a message is a ticket: from its first byte on, as it comes. */
void tls_ticket_begin(struct tls_ticket_shape *s);
void tls_ticket_take(struct tls_ticket_shape *s, const uint8_t *data, uint32_t bytes);
bool tls_ticket_is_whole(const struct tls_ticket_shape *s);
/* Frees the SSL if its time is over; else asks for a call when it will be. */
void tls_tickets_time(struct tls *t);

/* --- tls_leave.c -------------------------------------------------------------------------------------------------- */

void tls_leave_free(struct tls *t);

#endif
