/* TLS of the bench's peer, with OpenSSL; see peer_tls.h. */
#include "peer_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>

SSL_CTX *tls_server(const char *file, bool tickets)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());

	if (!context || SSL_CTX_use_certificate_chain_file(context, file) != 1 ||
	    SSL_CTX_use_PrivateKey_file(context, file, SSL_FILETYPE_PEM) != 1) {
		ERR_print_errors_fp(stderr);
		exit(1);
	}
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	if (!tickets) {
		SSL_CTX_set_num_tickets(context, 0);
		SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
	}
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return context;
}

SSL *tls_accept(SSL_CTX *context, int s)
{
	SSL *ssl = SSL_new(context);

	if (!ssl || SSL_set_fd(ssl, s) != 1) {
		ERR_print_errors_fp(stderr);
		exit(1);
	}
	SSL_set_accept_state(ssl);
	return ssl;
}

int tls_handshake(SSL *ssl)
{
	int result = SSL_do_handshake(ssl);

	if (result == 1)
		return 1;
	result = SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ ? 0 : -1;
	ERR_clear_error(); /* so that the next connection's verdict is its own */
	return result;
}

static ssize_t outcome(SSL *ssl, int result)
{
	int error = SSL_get_error(ssl, result);

	ERR_clear_error();
	if (result > 0)
		return result;
	if (error == SSL_ERROR_ZERO_RETURN)
		return 0;
	errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
	return -1;
}

ssize_t tls_recv(SSL *ssl, void *data, size_t bytes)
{
	return outcome(ssl, SSL_read(ssl, data, (int)bytes));
}

ssize_t tls_send(SSL *ssl, const void *data, size_t bytes)
{
	return outcome(ssl, SSL_write(ssl, data, (int)bytes));
}
