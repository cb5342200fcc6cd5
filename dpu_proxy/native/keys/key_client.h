/* Asking the process that has the keys; and keys by number, as OpenSSL takes them. */
#ifndef XTS_KEY_CLIENT_H
#define XTS_KEY_CLIENT_H

#include <openssl/evp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "key_messages.h"

/* Waits for the answer: its length, at most room, or -errno (EPIPE: the process has gone). Any thread may call it. */
ssize_t key_ask(const struct key_request *request, const void *data, size_t bytes, void *out, size_t room);

/* From now on this thread asks over connections whose other end is in the background, as it is itself
 * (ulp/handshake_pool.h). */
void key_in_background(void);

/* A private key that has this number there, with its public part, which it takes no reference of. NULL: OpenSSL's
 * errors say why. */
EVP_PKEY *key_by_number(uint32_t number, EVP_PKEY *public_part);
/* For key_by_number(), which is not to be the first to load it: provider.c. 0 or -errno. */
int key_provider_load(void);

#endif
