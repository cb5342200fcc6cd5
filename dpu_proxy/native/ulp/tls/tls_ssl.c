/*
 * The SSL object of a connection: made of a context, the server's name that a client asks for and checks, and ALPN.
 * Which thread does that, and which one frees it, is here and in tls_handshake.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "ulp/handshake_pool.h"

static bool is_ip_address(const char *name)
{
	uint8_t address[16];

	return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

/* Sets SNI, and the name or address that the certificate must be for. */
static bool set_server_name(SSL *ssl, const struct tls_parameters *p)
{
	bool address = is_ip_address(p->server_name);

	if (!p->server_name[0])
		return true;
	if (!address && SSL_set_tlsext_host_name(ssl, p->server_name) != 1)
		return false;
	if (!p->verify_host)
		return true;
	/* Only names in subjectAltName count (RFC 9110 4.3.4). Python's ssl also takes a common name
	 * where a certificate has no such names. */
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	return address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), p->server_name) == 1 :
			 SSL_set1_host(ssl, p->server_name) == 1;
}

/* Contexts are shared by connections that differ in ALPN; sessions are not. */
static bool set_alpn(struct tls *t, const struct tls_parameters *p)
{
	struct {
		uint8_t context[TLS_KEY_BYTES], alpn[TLS_ALPN_BYTES];
	} same = { 0 };
	uint8_t key[TLS_KEY_BYTES];

	if (!p->alpn_bytes)
		return true;
	if (t->client)
		return SSL_set_alpn_protos(t->ssl, p->alpn, p->alpn_bytes) == 0;
	t->alpn = malloc(p->alpn_bytes);
	if (!t->alpn)
		return false;
	memcpy(t->alpn, p->alpn, p->alpn_bytes);
	t->alpn_bytes = p->alpn_bytes;
	memcpy(same.context, t->context->bound, sizeof same.context);
	memcpy(same.alpn, p->alpn, p->alpn_bytes);
	return EVP_Digest(&same, sizeof same, key, NULL, EVP_sha256(), NULL) == 1 &&
	       SSL_set_session_id_context(t->ssl, key, sizeof key) == 1;
}

/* The kernel gets the keys through this BIO. */
static bool set_socket(struct tls *t, int fd)
{
	if (!t->asks_kernel)
		return true;
	t->socket = BIO_new_socket(fd, BIO_NOCLOSE);
	if (t->socket)
		SSL_set_options(t->ssl, SSL_OP_ENABLE_KTLS);
	return t->socket;
}

static bool make(struct tls *t, const struct tls_parameters *p, int fd)
{
	t->ssl = SSL_new(t->context->ssl);
	if (!t->ssl)
		return false;
	SSL_set_app_data(t->ssl, t);
	/* no record is read beyond the handshake, whoever reads on there */
	SSL_set_read_ahead(t->ssl, 0);
	if (!set_socket(t, fd) || tls_bio_attach(t))
		return false;
	tls_flood_watch(t);
	if (!set_alpn(t, p))
		return false;
	if (!t->client) {
		SSL_set_accept_state(t->ssl);
		return true;
	}
	SSL_set_connect_state(t->ssl);
	if (!set_server_name(t->ssl, p))
		return false;
	tls_session_offer(t);
	return true;
}

int tls_make_ssl(struct tls *t, int fd)
{
	bool made = make(t, t->parameters, fd);

	free(t->parameters);
	t->parameters = NULL;
	ERR_clear_error();
	return made ? 0 : -ENOMEM;
}

static void free_quietly(SSL *ssl, BIO *socket, bool quiet)
{
	if (quiet) /* else OpenSSL marks the session as one that must not be resumed */
		SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(ssl);
	BIO_free(socket);
	ERR_clear_error();
}

void tls_free_ssl(struct tls *t)
{
	if (t->ssl)
		free_quietly(t->ssl, t->socket, t->about && !t->failed);
	t->ssl = NULL;
	t->socket = NULL;
}

struct given {
	struct ulp_job job; /* first */
	SSL *ssl;
	BIO *socket;
	bool quiet;
};

static void free_given(struct ulp_job *job)
{
	struct given *g = list_entry(job, struct given, job);

	free_quietly(g->ssl, g->socket, g->quiet);
}

static void forget_given(struct ulp_job *job)
{
	free(list_entry(job, struct given, job));
}

void tls_give_ssl(struct tls *t)
{
	struct given *g = t->ssl ? calloc(1, sizeof *g) : NULL;

	if (g) {
		g->job = (struct ulp_job){ .run = free_given, .abandoned = forget_given };
		g->ssl = t->ssl;
		g->socket = t->socket;
		g->quiet = t->about && !t->failed;
		/* while OpenSSL frees them, it still calls the BIO (BIO_CTRL_POP), and t may be gone by then */
		if (SSL_get_rbio(t->ssl))
			BIO_set_data(SSL_get_rbio(t->ssl), NULL);
		if (ulp_pool_give(&g->job, ulp_account(t->layer), ulp_weight(t->layer))) {
			t->ssl = NULL;
			t->socket = NULL;
			return;
		}
	}
	free(g);
	tls_free_ssl(t);
}
