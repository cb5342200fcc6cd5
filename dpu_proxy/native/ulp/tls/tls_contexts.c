/*
 * The SSL_CTXs that exist: one for each set of parameters in use. Connections with the same parameters share it,
 * whatever their queue. (Whether a queue may use an identity is checked for each connection.)
 *
 * Theory of operation
 *
 * A worker only looks a context up. If there is none, a thread of the pool makes it (handshake_pool.h), charged to the
 * tenant that asks. For a push this happens before the push is carried out (tls_contexts_prepare(); the message and its
 * queue wait), so that the push itself can be refused. For all other connections it is the first step of the handshake.
 * Refusals are kept like contexts; otherwise a host that asks for the impossible would have it tried each time.
 *
 * Each tenant pays for a context as long as it has connections that use it, and once for all of them. Which tenant's
 * connection was first, and which connections end, makes no difference.
 *
 * At most TLS_CONTEXTS_MAX are kept, so that a host cannot make memory grow by asking for new ones all the time. When
 * there are too many, the tenant with the most loses the one that it used longest ago; so a tenant that asks for new
 * ones all the time harms only itself.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "ulp/config.h"
#include "ulp/config_inside.h"
#include "ulp/handshake_pool.h"

static void context_free(struct tls_context *context)
{
	SSL_CTX_free(context->ssl);
	free(context);
}

static void link_first(struct xts_tls_config *config, struct tls_context *context)
{
	context->next = config->contexts;
	config->contexts = context;
	config->context_count++;
}

/* With the lock held. */
static struct tls_context *find(struct xts_tls_config *config, const uint8_t *key)
{
	for (struct tls_context **link = &config->contexts; *link; link = &(*link)->next) {
		struct tls_context *context = *link;

		if (memcmp(context->key, key, TLS_KEY_BYTES) != 0)
			continue;
		*link = context->next;
		config->context_count--;
		link_first(config, context);
		context->references++;
		return context;
	}
	return NULL;
}

/* With the lock held. */
static void drop(struct tls_context *context)
{
	if (--context->references == 0)
		context_free(context);
}

/* With the lock held. How many contexts this tenant has made, and which of them was used longest ago. */
static uint32_t count_of(struct xts_tls_config *config, uint32_t tenant, struct tls_context ***oldest)
{
	uint32_t count = 0;

	for (struct tls_context **link = &config->contexts; *link; link = &(*link)->next) {
		if ((*link)->tenant == tenant) {
			*oldest = link;
			count++;
		}
	}
	return count;
}

/* With the lock held. Drops the least recently used context of the tenant that has the most. This takes some 100 times
 * 100 comparisons, on a thread that has just spent 0.4 ms on making a context. */
static void one_gives_way(struct xts_tls_config *config)
{
	struct tls_context **victim = NULL, *last = NULL;
	uint32_t most = 0;

	for (const struct tls_context *context = config->contexts; context; context = context->next) {
		struct tls_context **oldest = NULL;
		uint32_t count = count_of(config, context->tenant, &oldest);

		if (count > most) {
			most = count;
			victim = oldest;
		}
	}
	if (victim)
		last = *victim;
	if (!last)
		return;
	*victim = last->next;
	config->context_count--;
	drop(last);
}

/* With the lock held. Two threads may have made the same context, which does no harm. A refusal for lack of memory is
 * not kept, as it does not hold for others. */
static void keep(struct xts_tls_config *config, struct tls_context *context)
{
	context->references = 1;
	if (context->error == ENOMEM)
		return;
	link_first(config, context);
	context->references = 2;
	if (config->context_count > TLS_CONTEXTS_MAX)
		one_gives_way(config);
}

/* The hash of all parameters that have to be the same. False: no memory. Many connections in a row have the same ones,
 * and hashing these 2 KB takes longer than comparing them. */
static bool key_of(const struct tls_parameters *p, uint8_t *key)
{
	static _Thread_local struct {
		bool known;
		uint8_t key[TLS_KEY_BYTES];
		struct tls_parameters same;
	} last;
	struct tls_parameters same = *p;

	/* these are set per connection, as are ALPN and who does the crypto */
	memset(same.server_name, 0, sizeof same.server_name);
	memset(same.alpn, 0, sizeof same.alpn);
	same.alpn_bytes = 0;
	same.crypto = 0;
	if (!last.known || memcmp(&last.same, &same, sizeof same) != 0) {
		last.known = EVP_Digest(&same, sizeof same, last.key, NULL, EVP_sha256(), NULL) == 1;
		last.same = same;
	}
	memcpy(key, last.key, sizeof last.key);
	return last.known;
}

struct tls_context *tls_context_find(struct xts_tls_config *config, const struct tls_parameters *p)
{
	struct tls_context *context;
	uint8_t key[TLS_KEY_BYTES];

	if (!key_of(p, key))
		return NULL;
	pthread_mutex_lock(&config->lock);
	context = find(config, key);
	pthread_mutex_unlock(&config->lock);
	return context;
}

struct tls_context *tls_context_make(const struct tls_asker *asker, const struct tls_parameters *p)
{
	struct xts_tls_config *config = asker->config;
	struct tls_context *context = calloc(1, sizeof *context);

	if (!context || !key_of(p, context->key)) {
		free(context);
		return NULL;
	}
	context->config = config;
	context->tenant = asker->tenant;
	tls_context_build(context, asker, p);
	pthread_mutex_lock(&config->lock);
	keep(config, context);
	pthread_mutex_unlock(&config->lock);
	return context;
}

struct tls_asker tls_asker(const struct ulp_layer *l)
{
	return (struct tls_asker){ ulp_config(l)->tls, ulp_tenant(l), ulp_queue_id(l) };
}

int tls_context_check(const struct ulp_layer *l, struct tls_context **context)
{
	struct tls_context *made = *context;
	int r;

	if (!made)
		return ulp_refuse(l, ENOMEM, "no memory for TLS");
	if (!made->error)
		return 0;
	r = ulp_refuse(l, made->error, "%s", made->why);
	*context = NULL;
	tls_context_put(made);
	return r;
}

int tls_context_get(const struct ulp_layer *l, const struct tls_parameters *p, struct tls_context **out)
{
	struct tls_asker asker = tls_asker(l);

	*out = tls_context_find(asker.config, p);
	if (!*out && ulp_bell(l))
		return 0;
	if (!*out)
		*out = tls_context_make(&asker, p);
	return tls_context_check(l, out);
}

void tls_context_put(struct tls_context *context)
{
	struct xts_tls_config *config = context->config;

	pthread_mutex_lock(&config->lock);
	drop(context);
	pthread_mutex_unlock(&config->lock);
}

/* With the lock held. The charge begins with the entry. */
static int add_payer(struct tls_context *context, struct ulp_payer payer, struct tls_context_payer **out)
{
	struct tls_context_payer *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	if (payer.charge && !payer.charge(payer.who, TLS_CONTEXT_BYTES)) {
		free(p);
		return -ENOBUFS;
	}
	p->payer = payer;
	p->next = context->payers;
	context->payers = *out = p;
	return 0;
}

int tls_context_join(struct tls_context *context, struct ulp_payer payer, struct tls_context_payer **out)
{
	struct tls_context_payer *p;
	int r = 0;

	pthread_mutex_lock(&context->config->lock);
	for (p = context->payers; p && p->payer.who != payer.who; p = p->next)
		;
	if (!p)
		r = add_payer(context, payer, &p);
	if (!r) {
		p->connections++;
		*out = p;
	}
	pthread_mutex_unlock(&context->config->lock);
	return r;
}

void tls_context_leave(struct tls_context *context, struct tls_context_payer *joined)
{
	struct tls_context_payer **link = &context->payers;

	pthread_mutex_lock(&context->config->lock);
	if (!--joined->connections) {
		while (*link != joined)
			link = &(*link)->next;
		*link = joined->next;
		if (joined->payer.charge)
			(void)joined->payer.charge(joined->payer.who, -(int64_t)TLS_CONTEXT_BYTES);
		free(joined);
	}
	pthread_mutex_unlock(&context->config->lock);
}

void tls_contexts_free(struct xts_tls_config *config)
{
	while (config->contexts) {
		struct tls_context *context = config->contexts;

		config->contexts = context->next;
		drop(context);
	}
}

uint32_t xts_tls_contexts(struct xts_ulp_config *config)
{
	uint32_t count;

	pthread_mutex_lock(&config->tls->lock);
	count = config->tls->context_count;
	pthread_mutex_unlock(&config->tls->lock);
	return count;
}

/* --- before a push ------------------------------------------------------------------------------------------------ */

struct context_job {
	struct ulp_preparation preparation; /* first */
	struct xts_ulp_config *config;
	struct tls_asker asker;
	struct tls_parameters parameters;
};

static void make(struct ulp_job *job)
{
	struct context_job *c = list_entry(job, struct context_job, preparation.job);
	struct tls_context *context = tls_context_make(&c->asker, &c->parameters);

	if (context)
		tls_context_put(context);
}

static void job_free(struct ulp_job *job)
{
	struct context_job *c = list_entry(job, struct context_job, preparation.job);

	xts_ulp_config_release(c->config);
	free(c);
}

struct ulp_preparation *tls_contexts_prepare(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct context_job *c = calloc(1, sizeof *c);
	struct tls_parameters *p;
	struct tls_context *there;

	if (!c)
		return NULL;
	p = &c->parameters;
	if (tls_parameters_read(l, attributes, bytes, p) || p->role == TLS_BY_CONNECT ||
	    tls_parameters_settle(l, p, p->role == TLS_CLIENT)) {
		free(c); /* the push says why, or more is known at the connection's start */
		return NULL;
	}
	there = tls_context_find(ulp_config(l)->tls, p);
	if (there) {
		tls_context_put(there);
		free(c);
		return NULL;
	}
	c->config = ulp_config(l);
	xts_ulp_config_hold(c->config);
	c->asker = tls_asker(l);
	c->preparation.job = (struct ulp_job){ .run = make, .abandoned = job_free };
	list_init(&c->preparation.job.node);
	return &c->preparation;
}
