/* Requests to the key process, and keys by number in the form that OpenSSL takes. */
#ifndef XTS_KEY_CLIENT_H
#define XTS_KEY_CLIENT_H

#include <openssl/evp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "key_messages.h"

/* Sends a request and waits for the answer. Returns its length, at most room, or -errno (EPIPE: the process is gone).
 * Any thread may call it. */
ssize_t key_ask(const struct key_request *request, const void *data, size_t bytes, void *out, size_t room);

/* From now on this thread, which is a background thread itself, uses connections whose other end is a background thread
 * (ulp/handshake_pool.h). */
void key_in_background(void);

/* Makes a private key from its number in the key process and its public part, which is copied. NULL: OpenSSL's error
 * queue says why. */
EVP_PKEY *key_by_number(uint32_t number, EVP_PKEY *public_part);
/* Loads the provider for key_by_number(), ahead of its first use: provider_keys.c. 0 or -errno. */
int key_provider_load(void);

#endif
