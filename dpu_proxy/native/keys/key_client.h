/* Requests to the key process, and keys by number in the form that OpenSSL takes. */
#ifndef XTS_KEY_CLIENT_H
#define XTS_KEY_CLIENT_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "key_messages.h"

/* Sends a request and waits for its answer, as long as that takes. Returns its length, at most room, or -errno (EPIPE:
 * two processes have ended with it; ECANCELED: key_end_waits()). Any thread may call it that may wait; the sequence
 * number is filled in here. */
ssize_t key_ask(const struct key_request *request, const void *data, size_t bytes, void *out, size_t room);

/* An identity has this key; it is gone. When no identity has it any more, the key process no longer needs it. Never
 * waits: key_send_forgotten(), or the next request, sends that. */
void key_use(uint32_t number);
void key_forget(uint32_t number);
void key_send_forgotten(void);

/* From now on this thread, which is a background thread itself, uses connections whose other end is a background thread
 * (ulp/handshake_pool.h). */
void key_in_background(void);
/* True: whoever waits for an answer, now or later, gives up. False: waiting is possible again. */
void key_end_waits(bool end);

struct key_counts {
	uint64_t late;       /* requests not answered within a second */
	uint64_t late_now;   /* those of them that still wait */
	uint64_t unanswered; /* requests never answered: two processes have ended with them */
};
struct key_counts key_counts(void);

/* Makes a private key from its number in the key process and its public part, which is copied. NULL: OpenSSL's error
 * queue says why. */
EVP_PKEY *key_by_number(uint32_t number, EVP_PKEY *public_part);
/* Can the private key of this RSA-PSS key sign as TLS does (RFC 8446 4.2.3): a salt as long as the digest, and MGF1
 * with the same digest? A key may be restricted to something else (RFC 4055 3.1). provider_signing.c */
bool key_signs_pss(EVP_PKEY *key, const EVP_MD *digest);
/* Loads the provider for key_by_number(), ahead of its first use: provider_keys.c. 0 or -errno. */
int key_provider_load(void);

#endif
