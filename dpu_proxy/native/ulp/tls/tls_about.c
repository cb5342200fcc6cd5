/*
 * What is known of a connection once its handshake is done, copied from OpenSSL, which may be gone soon. Certificates
 * of the peer are kept once for all connections that have the same ones: of a client to a few servers, all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "ulp/config_inside.h"
#include "ulp/lasting.h"

/* --- certificates ------------------------------------------------------------------------------------------------- */

static uint32_t bucket(const uint8_t *hash)
{
	return hash[0] % TLS_CHAINS;
}

/* With the lock held. */
static struct tls_chain *find(struct xts_tls_config *config, const uint8_t *hash)
{
	for (struct tls_chain *c = config->chains[bucket(hash)]; c; c = c->next) {
		if (memcmp(c->hash, hash, sizeof c->hash) == 0)
			return c;
	}
	return NULL;
}

/* Takes a reference of the chain that is equal to this one, which becomes the first of its kind or is freed. Only
 * workers do this: a thread of the pool, which runs when nobody else wants the core, must not hold up the others. */
static struct tls_chain *share(struct xts_tls_config *config, struct tls_chain *made)
{
	struct tls_chain *same;

	pthread_mutex_lock(&config->lock);
	same = find(config, made->hash);
	if (!same) {
		made->next = config->chains[bucket(made->hash)];
		config->chains[bucket(made->hash)] = made;
		same = made;
	}
	same->references++;
	pthread_mutex_unlock(&config->lock);
	if (same != made)
		lasting_give(made);
	return same;
}

static void chain_put(struct xts_tls_config *config, struct tls_chain *c)
{
	struct tls_chain **link;

	if (!c || !c->references) { /* it has not been shared */
		lasting_give(c);
		return;
	}
	pthread_mutex_lock(&config->lock);
	link = &config->chains[bucket(c->hash)];
	if (!--c->references) {
		while (*link != c)
			link = &(*link)->next;
		*link = c->next;
	} else {
		c = NULL;
	}
	pthread_mutex_unlock(&config->lock);
	lasting_give(c);
}

static int add(struct tls_chain **chain, X509 *certificate)
{
	struct tls_chain *c = *chain;
	int bytes = i2d_X509(certificate, NULL);
	uint8_t *to;

	if (bytes <= 0)
		return -ENOMEM;
	c = realloc(c, sizeof *c + c->bytes + (size_t)bytes);
	if (!c)
		return -ENOMEM;
	*chain = c;
	to = c->der + c->bytes;
	c->bytes += (uint32_t)i2d_X509(certificate, &to);
	return 0;
}

/* The peer's own certificate first, then the others in the order it sent them. *out NULL: it has none. */
static int take_chain(const struct tls *t, struct tls_chain **out)
{
	X509 *own = SSL_get0_peer_certificate(t->ssl);
	STACK_OF(X509) *others = SSL_get_peer_cert_chain(t->ssl);
	struct tls_chain *c = own ? calloc(1, sizeof *c) : NULL;
	int r = own && !c ? -ENOMEM : 0;

	*out = NULL;
	if (r || !own)
		return r;
	r = add(&c, own);
	c->own_bytes = c->bytes;
	for (int i = t->client ? 1 : 0; !r && i < sk_X509_num(others); i++)
		r = add(&c, sk_X509_value(others, i));
	if (!r && EVP_Digest(c->der, c->bytes, c->hash, NULL, EVP_sha256(), NULL) != 1)
		r = -ENOMEM;
	if (!r)
		*out = lasting_take(sizeof *c + c->bytes);
	if (*out)
		memcpy(*out, c, sizeof *c + c->bytes);
	free(c);
	return r ? r : *out ? 0 : -ENOMEM;
}

struct xts_tls_config *tls_config_of(const struct tls *t)
{
	/* without a context it is on no other thread, and has its layer */
	return t->context ? t->context->config : ulp_config(t->layer)->tls;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

int tls_about_take(struct tls *t)
{
	const SSL_CIPHER *cipher = SSL_get_current_cipher(t->ssl);
	const char *name = SSL_get_servername(t->ssl, TLSEXT_NAMETYPE_host_name);
	const char *cipher_name = SSL_get_cipher_name(t->ssl);
	size_t name_bytes = name ? strlen(name) : 0, all_bytes;
	struct tls_about *about;
	const uint8_t *alpn;
	unsigned alpn_bytes;

	SSL_get0_alpn_selected(t->ssl, &alpn, &alpn_bytes);
	all_bytes = sizeof *about + name_bytes + alpn_bytes + strlen(cipher_name) + 1;
	about = lasting_take(all_bytes);
	if (!about)
		return -ENOMEM;
	memset(about, 0, all_bytes);
	about->version = (uint16_t)SSL_version(t->ssl);
	about->cipher = strcpy((char *)about->text + name_bytes + alpn_bytes, cipher_name);
	about->cipher_id = cipher ? SSL_CIPHER_get_protocol_id(cipher) : 0;
	about->resumed = SSL_session_reused(t->ssl) != 0;
	about->verified = SSL_get_verify_mode(t->ssl) != SSL_VERIFY_NONE && SSL_get0_peer_certificate(t->ssl) &&
			  SSL_get_verify_result(t->ssl) == X509_V_OK;
	about->name_bytes = (uint16_t)name_bytes;
	about->alpn_bytes = (uint16_t)alpn_bytes;
	if (name_bytes)
		memcpy(about->text, name, name_bytes);
	if (alpn_bytes)
		memcpy(about->text + name_bytes, alpn, alpn_bytes);
	if (take_chain(t, &about->chain)) {
		lasting_give(about);
		return -ENOMEM;
	}
	t->about = about;
	return 0;
}

void tls_about_share(struct tls *t)
{
	if (t->about->chain)
		t->about->chain = share(tls_config_of(t), t->about->chain);
}

uint32_t tls_about_bytes(const struct tls *t)
{
	const struct tls_about *a = t->about;

	return a ? (uint32_t)sizeof *a + a->name_bytes + a->alpn_bytes + (a->chain ? a->chain->bytes : 0) : 0;
}

void tls_about_free(struct tls *t)
{
	if (t->about)
		chain_put(tls_config_of(t), t->about->chain);
	lasting_give(t->about);
	t->about = NULL;
}
