/* The SSL object of a connection: made of a context, the server's name that a client asks for and checks, and ALPN. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"

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
	memcpy(same.context, t->context->key, sizeof same.context);
	memcpy(same.alpn, p->alpn, p->alpn_bytes);
	return EVP_Digest(&same, sizeof same, key, NULL, EVP_sha256(), NULL) == 1 &&
	       SSL_set_session_id_context(t->ssl, key, sizeof key) == 1;
}

int tls_make_ssl(struct tls *t)
{
	t->ssl = SSL_new(t->context->ssl);
	if (!t->ssl)
		return -ENOMEM;
	SSL_set_app_data(t->ssl, t);
	if (tls_kernel_prepare(t) || tls_bio_attach(t))
		return -ENOMEM;
	tls_flood_watch(t);
	if (!set_alpn(t, t->parameters))
		return -ENOMEM;
	if (!t->client) {
		SSL_set_accept_state(t->ssl);
		return 0;
	}
	SSL_set_connect_state(t->ssl);
	if (!set_server_name(t->ssl, t->parameters))
		return -ENOMEM;
	tls_session_offer(t, t->parameters);
	return 0;
}
