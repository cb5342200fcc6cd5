/*
 * A TLS connection that our record layer carries, for the process that goes on when this one has died
 * (channel/ledger.h).
 *
 * Theory of operation. Everything that the next process needs is in three places, and written down as it changes, at
 * the cost of some stores for each record. Keys and numbers are in the memory for keys, whose descriptor outlives
 * this process (tls_keys/key_memory.h). Records that wait for TCP, what was read ahead, and certificates are in
 * lasting memory (ulp/lasting.h). How many bytes TCP has taken and given, the kernel knows.
 *
 * Sending. A number is given out before its record is encrypted (tls_aead_seal()); that the record is whole, and
 * where it ends, is written down before TCP gets any of it. So the next process sends what was sealed and not sent
 * as it is: it encrypts nothing for the second time. If a number was given out and no whole record is there, that
 * number may not be used again, and the connection is reset.
 *
 * Receiving. What is written down is of one moment: number, place and length of what was read ahead, how much of the
 * open record has been delivered, how many bytes of the stream that is after. Bytes that were read since then lie
 * behind; how many there are, the kernel's count says. Records are not decrypted where they lie, so that one that
 * was being opened can be opened again. What the host has not been given of the bytes that were delivered is in the
 * frame that was being written, as without TLS (connection/ledger_line.c).
 *
 * Not written down, and reset: records that OpenSSL or the kernel has, a handshake, PDUs, other protocols below or
 * above.
 */
#ifndef XTS_TLS_KEPT_H
#define XTS_TLS_KEPT_H

#include "ulp/ulp.h"

/* Implements keep() of a protocol (ulp.h). */
int tls_keep(struct ulp_layer *l, struct ulp_kept *k);

/* --- in the next process: tls_came.c --- */

struct tls_came;

/* Takes what was written down there, in the memory for keys: it is wiped. It has to be checked as a record
 * (tls_came_save()). read, written: as the kernel counts. NULL: it is torn, or is none, or there is no memory. */
struct tls_came *tls_came_take(void *at, uint64_t read, uint64_t written);
size_t tls_came_bytes(void); /* of what is there */
/* How many bytes of data it has delivered and taken. */
void tls_came_counts(const struct tls_came *c, struct ulp_kept *k);
bool tls_came_is_client(const struct tls_came *c);
/* As save() of a protocol. */
ssize_t tls_came_save(const struct tls_came *c, void *out, size_t room);
void tls_came_free(struct tls_came *c);

/* The keys of tickets, so many bytes, that are there: they are copied and wiped, for xts_tls_go_on(). */
size_t tls_ticket_keys_bytes(void);
void tls_ticket_keys_came(void *at);

#endif
