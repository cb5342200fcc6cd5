/*
 * What sessions are resumed from, over reloads.
 *
 * Theory of operation
 *
 * Clients' sessions, ticket keys and servers' sessions by ID are in one object. A configuration that comes after
 * another one shares that one's object. So sessions go on to be resumed, and a connection that began before a reload
 * and fails after it takes its session out for all (RFC 5246 7.2.2).
 *
 * A session must not outlive what it depends on: whoever has a session shakes hands without a certificate. So each is
 * bound (`bound`, in the session id context of servers, and in the key by which clients look) to the parameters, and to
 * the contents of what these name: certificates, trust roots, revocation lists, and to the settings of versions and
 * ciphers. Where one of them has changed there is a whole handshake, and the sessions of before are never found again;
 * newer ones push them out.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "ulp/config_inside.h"

struct tls_resumable *tls_resumable_new(void)
{
	struct tls_resumable *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	if (pthread_mutex_init(&r->lock, NULL) || pthread_mutex_init(&r->ticket_lock, NULL)) {
		free(r);
		return NULL;
	}
	atomic_init(&r->references, 1);
	return r;
}

void tls_resumable_put(struct tls_resumable *r)
{
	if (!r || atomic_fetch_sub(&r->references, 1) > 1)
		return;
	tls_sessions_free(r);
	tls_ids_free(r);
	tls_ticket_keys_free(r);
	pthread_mutex_destroy(&r->ticket_lock);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void xts_tls_come_after(struct xts_ulp_config *config, struct xts_ulp_config *before)
{
	const struct xts_tls_settings *now = &config->tls->settings, *then = &before->tls->settings;

	if (now->sessions_max != then->sessions_max || now->session_timeout_s != then->session_timeout_s)
		return;
	atomic_fetch_add(&before->tls->resumable->references, 1);
	tls_resumable_put(config->tls->resumable);
	config->tls->resumable = before->tls->resumable;
}

static bool add_text(EVP_MD_CTX *ctx, const char *text)
{
	return EVP_DigestUpdate(ctx, text, strlen(text) + 1) == 1;
}

static bool add_settings(EVP_MD_CTX *ctx, const struct xts_tls_settings *settings)
{
	return EVP_DigestUpdate(ctx, &settings->min_version, sizeof settings->min_version) == 1 &&
	       EVP_DigestUpdate(ctx, &settings->verify_required, sizeof settings->verify_required) == 1 &&
	       add_text(ctx, settings->ciphers) && add_text(ctx, settings->ciphersuites);
}

bool tls_resumable_bind(struct tls_context *context, const struct tls_asker *asker, const struct tls_parameters *p)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
		  EVP_DigestUpdate(ctx, context->key, sizeof context->key) == 1 &&
		  add_settings(ctx, &asker->config->settings);

	if (ok && p->verify != TLS_VERIFY_NOT) {
		const struct tls_trust *trust = tls_config_trust(asker->config, p->trust, asker->tenant, asker->queue_id);

		ok = EVP_DigestUpdate(ctx, trust->digest, sizeof trust->digest) == 1;
	}
	for (uint32_t i = 0; ok && i < context->identity_count; i++)
		ok = EVP_DigestUpdate(ctx, context->identity[i]->digest, sizeof context->identity[i]->digest) == 1;
	ok = ok && EVP_DigestFinal_ex(ctx, context->bound, NULL) == 1;
	EVP_MD_CTX_free(ctx);
	return ok;
}
