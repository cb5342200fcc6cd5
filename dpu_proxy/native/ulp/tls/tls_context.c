/*
 * An SSL_CTX from parameters and configuration. Making one takes 0.4 to 2 ms, most of it when a host sends the longest
 * lists of ciphers it may. That is too long for a worker (tls_contexts.c).
 *
 * Everything weak is off: versions below 1.2, ciphers that the configuration's lists do not name, compression,
 * renegotiation, early data.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"

static int refuse(struct tls_context *context, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Notes a refusal, which holds for all connections with the same parameters. */
static int refuse(struct tls_context *context, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(context->why, sizeof context->why, format, arguments);
	va_end(arguments);
	context->error = error;
	return -error;
}

/* --- ciphers ------------------------------------------------------------------------------------------------------ */

static bool named(const char *list, const char *name)
{
	size_t bytes = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += bytes) {
		if ((at == list || at[-1] == ':') && (at[bytes] == ':' || at[bytes] == 0))
			return true;
	}
	return false;
}

/* The names of the SSL_CTX's ciphers, those of TLS 1.3 or those below it, as far as `allowed` has them (NULL: all). */
static void cipher_names(SSL_CTX *ssl, bool tls13, const char *allowed, char *out, size_t room)
{
	STACK_OF(SSL_CIPHER) *ciphers = SSL_CTX_get_ciphers(ssl);
	size_t used = 0;

	out[0] = 0;
	for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); i++) {
		const SSL_CIPHER *cipher = sk_SSL_CIPHER_value(ciphers, i);
		const char *name = SSL_CIPHER_get_name(cipher);

		if (!strcmp(SSL_CIPHER_get_version(cipher), "TLSv1.3") != tls13 || (allowed && !named(allowed, name)))
			continue;
		if (used + strlen(name) + 2 > room)
			break;
		used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ":" : "", name);
	}
}

static bool set_ciphers(SSL_CTX *ssl, const char *ciphers, const char *ciphersuites)
{
	SSL_CTX_set_security_level(ssl, TLS_SECURITY_LEVEL);
	return SSL_CTX_set_cipher_list(ssl, ciphers) == 1 && SSL_CTX_set_ciphersuites(ssl, ciphersuites) == 1;
}

int tls_check_ciphers(const struct xts_tls_settings *settings, char *why, uint32_t why_room)
{
	SSL_CTX *ssl = SSL_CTX_new_ex(tls_library(), NULL, TLS_method());
	bool ok = ssl && SSL_CTX_set_cipher_list(ssl, settings->ciphers) == 1;

	if (!ok)
		snprintf(why, why_room, "ciphers: OpenSSL knows none of %s", settings->ciphers);
	if (ok && SSL_CTX_set_ciphersuites(ssl, settings->ciphersuites) != 1) {
		snprintf(why, why_room, "ciphersuites: OpenSSL does not know all of %s", settings->ciphersuites);
		ok = false;
	}
	SSL_CTX_free(ssl);
	ERR_clear_error();
	return ok ? 0 : -EINVAL;
}

/* Sets the ciphers that were asked for, as far as the configuration allows them. */
static int choose_ciphers(struct tls_context *context, const struct tls_parameters *p)
{
	const struct xts_tls_settings *settings = &context->config->settings;
	SSL_CTX *ssl = context->ssl;
	char allowed[4096], chosen[4096];

	if (!set_ciphers(ssl, settings->ciphers, settings->ciphersuites))
		return refuse(context, EINVAL, "the proxy's own ciphers cannot be set");
	if (p->ciphers[0]) {
		cipher_names(ssl, false, NULL, allowed, sizeof allowed);
		if (SSL_CTX_set_cipher_list(ssl, p->ciphers) != 1)
			return refuse(context, EINVAL, "CIPHERS: OpenSSL knows none of these");
		cipher_names(ssl, false, allowed, chosen, sizeof chosen);
		if (!chosen[0] || SSL_CTX_set_cipher_list(ssl, chosen) != 1)
			return refuse(context, EACCES, "CIPHERS: the proxy's configuration allows none of these");
	}
	if (p->ciphersuites[0]) {
		cipher_names(ssl, true, NULL, allowed, sizeof allowed);
		if (SSL_CTX_set_ciphersuites(ssl, p->ciphersuites) != 1)
			return refuse(context, EINVAL, "CIPHERSUITES: OpenSSL does not know all of these");
		cipher_names(ssl, true, allowed, chosen, sizeof chosen);
		if (!chosen[0] || SSL_CTX_set_ciphersuites(ssl, chosen) != 1)
			return refuse(context, EACCES, "CIPHERSUITES: the proxy's configuration allows none of these");
	}
	return 0;
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

/* False: OpenSSL does not know these versions. */
static bool set_options(SSL_CTX *ssl, const struct xts_tls_settings *settings, const struct tls_parameters *p)
{
	uint16_t min = p->min_version > settings->min_version ? p->min_version : settings->min_version;
	bool known = SSL_CTX_set_min_proto_version(ssl, min) == 1 &&
		     SSL_CTX_set_max_proto_version(ssl, p->max_version) == 1;

	/* A system-wide configuration file may have set these. */
	SSL_CTX_clear_options(ssl, SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION | SSL_OP_LEGACY_SERVER_CONNECT |
					   SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TLSv1_3 | SSL_OP_NO_TLSv1_2);
	SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
					 SSL_OP_PRIORITIZE_CHACHA);
	if (p->no_resumption || settings->sessions_max == 0) {
		SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET);
		SSL_CTX_set_num_tickets(ssl, 0); /* for TLS 1.3, where that option leaves stateful tickets */
	}
	SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
	/* SSL_read_ex() SSL_read_ex() returns after each message that is not data */
	SSL_CTX_clear_mode(ssl, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_max_early_data(ssl, 0);
	SSL_CTX_set_timeout(ssl, settings->session_timeout_s);
	return known;
}

static int set_verification(struct tls_context *context, const struct tls_asker *asker, const struct tls_parameters *p)
{
	bool client = p->role == TLS_CLIENT;
	SSL_CTX *ssl = context->ssl;
	const struct tls_trust *trust;
	int mode = SSL_VERIFY_PEER;

	if (p->verify == TLS_VERIFY_NOT) {
		SSL_CTX_set_verify(ssl, SSL_VERIFY_NONE, NULL);
		return 0;
	}
	/* the parameters are settled, so it exists */
	trust = tls_config_trust(asker->config, p->trust, asker->tenant, asker->queue_id);
	if (!client && p->verify == TLS_VERIFY_REQUIRED)
		mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
	SSL_CTX_set_verify(ssl, mode, NULL);
	SSL_CTX_set1_cert_store(ssl, trust->store);
	if (!client && trust->names) {
		STACK_OF(X509_NAME) *names = SSL_dup_CA_list(trust->names);

		if (!names)
			return refuse(context, ENOMEM, "no memory");
		SSL_CTX_set_client_CA_list(ssl, names);
	}
	return 0;
}

static int set_client(struct tls_context *context)
{
	const struct tls_identity *identity = context->identity[0];

	if (identity &&
	    SSL_CTX_use_cert_and_key(context->ssl, identity->certificate, identity->key, identity->chain, 1) != 1)
		return refuse(context, EINVAL, "IDENTITY: %s cannot be used: %s", identity->name,
			      ERR_reason_error_string(ERR_peek_last_error()));
	return 0;
}

static int build(struct tls_context *context, const struct tls_asker *asker, const struct tls_parameters *p)
{
	bool client = p->role == TLS_CLIENT;
	int r;

	context->ssl = SSL_CTX_new_ex(tls_library(), NULL, client ? TLS_client_method() : TLS_server_method());
	if (!context->ssl)
		return refuse(context, ENOMEM, "no memory for TLS");
	for (; context->identity_count < p->identity_count; context->identity_count++) {
		const char *name = p->identity[context->identity_count];

		context->identity[context->identity_count] = tls_config_identity(asker->config, name, asker->tenant,
										 asker->queue_id);
	}
	if (!set_options(context->ssl, &asker->config->settings, p))
		return refuse(context, EINVAL, "OpenSSL does not know these versions of TLS");
	r = choose_ciphers(context, p);
	if (!r)
		r = set_verification(context, asker, p);
	if (r)
		return r;
	/* until tls.c sets a better one */
	if (!tls_resumable_bind(context, asker, p) ||
	    SSL_CTX_set_session_id_context(context->ssl, context->bound, sizeof context->bound) != 1)
		return refuse(context, ENOMEM, "no memory for TLS");
	tls_session_install(context->ssl, client);
	tls_secret_install(asker->config, context->ssl);
	if (client)
		return set_client(context);
	if (!p->no_resumption && asker->config->settings.sessions_max)
		tls_ids_install(context->ssl);
	tls_choice_install(context);
	return 0;
}

void tls_context_build(struct tls_context *context, const struct tls_asker *asker, const struct tls_parameters *p)
{
	if (build(context, asker, p)) {
		SSL_CTX_free(context->ssl);
		context->ssl = NULL;
	}
	ERR_clear_error();
}
