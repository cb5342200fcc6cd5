/* The peer's side of TLS: OpenSSL on non-blocking sockets, results as those of recv(2) and send(2). */
#ifndef BENCH_PEER_TLS_H
#define BENCH_PEER_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/types.h>

/* From a PEM file with the certificate chain and its key; no sessions are kept, and tickets are given out only if asked
 * for. Ends the program when it cannot. */
SSL_CTX *tls_server(const char *file, bool tickets);
SSL *tls_accept(SSL_CTX *context, int s);
/* 1: done, 0: waits for the client, -1: failed. */
int tls_handshake(SSL *ssl);
ssize_t tls_recv(SSL *ssl, void *data, size_t bytes);
ssize_t tls_send(SSL *ssl, const void *data, size_t bytes);

#endif
