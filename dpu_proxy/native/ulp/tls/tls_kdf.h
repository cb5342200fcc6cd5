/*
 * The key derivation of TLS 1.3 (RFC 8446 7.1), as an algorithm of our library context (tls_library.c), in place of
 * OpenSSL's of the same name.
 *
 * Why: a handshake derives some 25 keys and secrets. OpenSSL 3.0 looks up a digest and a MAC by their names for each,
 * and copies its parameters: 1.5 us for 0.5 us of hashing. And there is no other way to learn the traffic secrets than
 * OpenSSL's key log, which writes five lines in hexadecimal, with a printf() for each byte, of which we need two. Here
 * they pass by.
 */
#ifndef XTS_TLS_KDF_H
#define XTS_TLS_KDF_H

#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What OpenSSL finds under TLS_KDF_NAME. */
#define TLS_KDF_NAME "TLS13-KDF"
extern const OSSL_DISPATCH tls_kdf_functions[];

/* Before it is used: takes the digests from this context. False: it has none. */
bool tls_kdf_load(OSSL_LIB_CTX *digests);
void tls_kdf_unload(void);

/* In this thread, from now on: a traffic secret of application data, of the client or the server, is told when OpenSSL
 * derives it. NULL: it is not. */
typedef void tls_kdf_told(void *of, bool of_client, const uint8_t *secret, size_t bytes);
void tls_kdf_tells(tls_kdf_told *to, void *of);

#endif
