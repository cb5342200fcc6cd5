/*
 * What a server chooses when it has seen the ClientHello: its identity, by the name the client asks for; the protocol
 * (ALPN), by the server's preference; the OCSP response that belongs to the identity.
 *
 * Choosing is not verifying. OpenSSL's X509_check_host() is for the one who verifies, and is stricter than clients are:
 * no wildcard stands for a label with an underscore, which some names have. To it a name that begins with a dot is a
 * question for any name below. So names under a wildcard are compared here.
 */
#include <openssl/x509v3.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "tls.h"

/* Is this pattern "*.", with the rest of the name behind its first label? */
static bool is_wildcard_of(const char *pattern, size_t bytes, const char *name)
{
	const char *dot = strchr(name, '.');

	return dot && dot != name && bytes > 2 && pattern[0] == '*' && pattern[1] == '.' && strlen(dot) == bytes - 1 &&
	       !strncasecmp(pattern + 1, dot, bytes - 1);
}

/* Has the certificate such a pattern? Its common name counts if no alternative name is a host's (RFC 6125 6.4.4). */
static bool has_wildcard_of(const X509 *certificate, const char *name)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	bool found = false, hosts = false;
	char common[256];
	int n;

	for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
		const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);

		if (one->type != GEN_DNS)
			continue;
		hosts = true;
		found = is_wildcard_of((const char *)ASN1_STRING_get0_data(one->d.dNSName),
				       (size_t)ASN1_STRING_length(one->d.dNSName), name);
	}
	GENERAL_NAMES_free(names);
	if (hosts)
		return found;
	n = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, common, sizeof common);
	return n > 0 && is_wildcard_of(common, (size_t)n, name);
}

static bool is_for(const struct tls_identity *identity, const char *name)
{
	if (name[0] == '.')
		return false;
	return X509_check_host(identity->certificate, name, 0, 0, NULL) == 1 ||
	       has_wildcard_of(identity->certificate, name) || X509_check_ip_asc(identity->certificate, name, 0) == 1;
}

/* The name that the client asks for; NULL: none. RFC 6066 has it without a dot at its end; some clients put one there. */
static const char *asked_name(const SSL *ssl, char out[TLS_HOST_BYTES])
{
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	size_t bytes = name ? strlen(name) : 0;

	if (bytes < 2 || bytes > TLS_HOST_BYTES || name[bytes - 1] != '.')
		return name;
	memcpy(out, name, bytes - 1);
	out[bytes - 1] = 0;
	return out;
}

/* Offers all identities that match the name, one for each kind of key: OpenSSL takes one that the client can verify. If
 * none matches, offers the first. */
static int choose_identity(SSL *ssl, void *argument)
{
	const struct tls_context *context = argument;
	char without_dot[TLS_HOST_BYTES];
	const char *name = asked_name(ssl, without_dot);
	int kinds[TLS_IDENTITIES_MAX];
	uint32_t count = 0;

	SSL_certs_clear(ssl);
	for (uint32_t i = 0; i < context->identity_count && name; i++) {
		const struct tls_identity *identity = context->identity[i];
		int kind = EVP_PKEY_get_base_id(identity->key);
		bool has_kind = false;

		for (uint32_t k = 0; k < count; k++)
			has_kind |= kinds[k] == kind;
		if (has_kind || !is_for(identity, name))
			continue;
		if (SSL_use_cert_and_key(ssl, identity->certificate, identity->key, identity->chain, 1) == 1)
			kinds[count++] = kind;
	}
	if (!count) {
		const struct tls_identity *first = context->identity[0];

		count = SSL_use_cert_and_key(ssl, first->certificate, first->key, first->chain, 1) == 1;
	}
	return count > 0;
}

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_bytes, const unsigned char *offered,
		       unsigned int offered_bytes, void *argument)
{
	const struct tls *t = SSL_get_app_data(ssl);
	unsigned char *chosen;

	(void)argument;
	if (!t->alpn)
		return SSL_TLSEXT_ERR_NOACK;
	if (SSL_select_next_proto(&chosen, out_bytes, t->alpn, t->alpn_bytes, offered, offered_bytes) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL; /* RFC 7301: no_application_protocol */
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static int staple(SSL *ssl, void *argument)
{
	const struct tls_context *context = argument;
	const X509 *certificate = SSL_get_certificate(ssl);

	for (uint32_t i = 0; i < context->identity_count; i++) {
		const struct tls_identity *identity = context->identity[i];
		unsigned char *copy;

		if (identity->certificate != certificate || !identity->ocsp_bytes)
			continue;
		copy = OPENSSL_memdup(identity->ocsp, identity->ocsp_bytes); /* OpenSSL frees it */
		if (!copy)
			return SSL_TLSEXT_ERR_NOACK;
		if (SSL_set_tlsext_status_ocsp_resp(ssl, copy, (long)identity->ocsp_bytes) != 1) {
			OPENSSL_free(copy);
			return SSL_TLSEXT_ERR_NOACK;
		}
		return SSL_TLSEXT_ERR_OK;
	}
	return SSL_TLSEXT_ERR_NOACK;
}

void tls_choice_install(struct tls_context *context)
{
	SSL_CTX_set_cert_cb(context->ssl, choose_identity, context);
	SSL_CTX_set_alpn_select_cb(context->ssl, choose_alpn, NULL);
	SSL_CTX_set_tlsext_status_cb(context->ssl, staple);
	SSL_CTX_set_tlsext_status_arg(context->ssl, context);
}
