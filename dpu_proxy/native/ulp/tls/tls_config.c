/* Identities, trust roots and settings; see tls_config.h. */
#include "tls_config.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys/key_client.h"
#include "tls.h"
#include "ulp/config_inside.h"

/* names of the roots of a trust: if there are more, none are sent to clients, as that would be kilobytes each time */
#define NAMES_MAX 64

static int explain(char *why, uint32_t room, int error, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int explain(char *why, uint32_t room, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, room, format, arguments);
	va_end(arguments);
	return -error;
}

/* The same, with OpenSSL's reason. */
static int explain_openssl(char *why, uint32_t room, const char *what)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	explain(why, room, EINVAL, "%s: %s", what, reason ? reason : "not what OpenSSL expects");
	ERR_clear_error();
	return -EINVAL;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

void xts_tls_defaults(struct xts_tls_settings *settings)
{
	*settings = (struct xts_tls_settings){
		.min_version = TLS1_2_VERSION,
		.sessions_max = 1024,
		.session_timeout_s = 7200,
		.ticket_wait_ms = 2000,
		.rekey_records = 1u << 24, /* RFC 8446 5.5: AES-GCM is good for 2^24.5 */
		.ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20",
		.ciphersuites = "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
	};
}

static void settings_free(struct xts_tls_settings *settings)
{
	free((char *)(uintptr_t)settings->ciphers);
	free((char *)(uintptr_t)settings->ciphersuites);
}

static int settings_copy(struct xts_tls_settings *to, const struct xts_tls_settings *from)
{
	struct xts_tls_settings copy = *from;

	copy.ciphers = strdup(from->ciphers);
	copy.ciphersuites = strdup(from->ciphersuites);
	if (!copy.ciphers || !copy.ciphersuites) {
		settings_free(&copy);
		return -ENOMEM;
	}
	settings_free(to);
	*to = copy;
	return 0;
}

int xts_tls_configure(struct xts_ulp_config *config, const struct xts_tls_settings *settings, char *why,
		      uint32_t why_room)
{
	int r;

	if (settings->min_version != TLS1_2_VERSION && settings->min_version != TLS1_3_VERSION)
		return explain(why, why_room, EINVAL, "0x%04x is not a TLS version; 0x0303 and 0x0304 are",
			       settings->min_version);
	if (settings->crypto > XTS_TLS_CRYPTO_DEVICE || settings->records > XTS_TLS_RECORDS_OPENSSL ||
	    settings->session_timeout_s == 0 || settings->rekey_records == 0)
		return explain(why, why_room, EINVAL, "a value out of range");
	r = tls_check_ciphers(settings, why, why_room);
	if (r)
		return r;
	r = settings_copy(&config->tls->settings, settings);
	return r ? explain(why, why_room, ENOMEM, "no memory") : 0;
}

struct xts_tls_config *tls_config_new(void)
{
	struct xts_tls_config *config = calloc(1, sizeof *config);
	struct xts_tls_settings defaults;

	if (!config)
		return NULL;
	xts_tls_defaults(&defaults);
	config->resumable = tls_resumable_new();
	if (!config->resumable || settings_copy(&config->settings, &defaults) ||
	    pthread_mutex_init(&config->lock, NULL)) {
		tls_resumable_put(config->resumable);
		settings_free(&config->settings);
		free(config);
		return NULL;
	}
	config->kernel_error = -ENOPROTOOPT; /* until the kernel has been asked */
	return config;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static bool allows(const struct tls_access *access, uint32_t tenant, uint32_t queue_id)
{
	for (uint32_t i = 0; i < access->count; i++) {
		if ((access->queues[i].tenant == UINT32_MAX || access->queues[i].tenant == tenant) &&
		    queue_id >= access->queues[i].first && queue_id <= access->queues[i].last)
			return true;
	}
	return access->count == 0;
}

static int access_copy(struct tls_access *access, const struct xts_tls_queues *queues, uint32_t count)
{
	if (!count)
		return 0;
	access->queues = malloc(count * sizeof *queues);
	if (!access->queues)
		return -ENOMEM;
	memcpy(access->queues, queues, count * sizeof *queues);
	access->count = count;
	return 0;
}

static int check_name(const char *name, bool taken, char *why, uint32_t room)
{
	if (!*name || strlen(name) >= TLS_NAME_BYTES)
		return explain(why, room, EINVAL, "a name has 1 to %d bytes", TLS_NAME_BYTES - 1);
	return taken ? explain(why, room, EEXIST, "the name %s is used already", name) : 0;
}

static bool identity_is(const struct xts_tls_config *config, const char *name)
{
	const struct tls_identity *identity = config->identities;

	while (identity && strcmp(identity->name, name) != 0)
		identity = identity->next;
	return identity;
}

static bool trust_is(const struct xts_tls_config *config, const char *name)
{
	const struct tls_trust *trust = config->trusts;

	while (trust && strcmp(trust->name, name) != 0)
		trust = trust->next;
	return trust;
}

struct tls_identity *tls_config_identity(const struct xts_tls_config *config, const char *name, uint32_t tenant,
					 uint32_t queue_id)
{
	struct tls_identity *identity = config->identities;

	while (identity && (strcmp(identity->name, name) != 0 || !allows(&identity->access, tenant, queue_id)))
		identity = identity->next;
	return identity;
}

struct tls_trust *tls_config_trust(const struct xts_tls_config *config, const char *name, uint32_t tenant,
				   uint32_t queue_id)
{
	struct tls_trust *trust = config->trusts;

	while (trust && (strcmp(trust->name, name) != 0 || !allows(&trust->access, tenant, queue_id)))
		trust = trust->next;
	return trust;
}

/* --- PEM ---------------------------------------------------------------------------------------------------------- */

/* The next certificate: 1, 0 at the end, or -1. */
static int next_certificate(BIO *pem, X509 **out)
{
	unsigned long error;

	*out = X509_new_ex(tls_library(), NULL);
	if (!*out)
		return -1;
	if (PEM_read_bio_X509(pem, out, NULL, NULL))
		return 1;
	X509_free(*out);
	*out = NULL;
	error = ERR_peek_last_error();
	if (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE) {
		ERR_clear_error();
		return 0;
	}
	return -1;
}

static int no_passphrase(char *buffer, int room, int writing, void *argument)
{
	(void)buffer, (void)room, (void)writing, (void)argument;
	return -1;
}

/* --- identities --------------------------------------------------------------------------------------------------- */

static void identity_free(struct tls_identity *identity)
{
	if (identity->key_number)
		key_forget(identity->key_number);
	X509_free(identity->certificate);
	sk_X509_pop_free(identity->chain, X509_free);
	EVP_PKEY_free(identity->key);
	free(identity->access.queues);
	free(identity->ocsp);
	free(identity);
}

static int read_chain(struct tls_identity *identity, BIO *pem)
{
	X509 *next;
	int r = next_certificate(pem, &identity->certificate);

	identity->chain = sk_X509_new_null();
	if (r <= 0 || !identity->chain)
		return -1;
	while ((r = next_certificate(pem, &next)) > 0) {
		if (!sk_X509_push(identity->chain, next)) {
			X509_free(next);
			return -1;
		}
	}
	return r;
}

struct private_key {
	uint32_t number; /* in the key process; 0: the key is PEM */
	uint32_t byte_count;
	const void *bytes; /* PEM; with a number, the public key in DER */
};

static int read_key(struct tls_identity *identity, const struct private_key *key, char *why, uint32_t room)
{
	BIO *pem = BIO_new_mem_buf(key->bytes, (int)key->byte_count);

	if (!pem)
		return explain(why, room, ENOMEM, "no memory");
	identity->key = PEM_read_bio_PrivateKey(pem, NULL, no_passphrase, NULL);
	BIO_free(pem);
	if (!identity->key)
		return explain_openssl(why, room, "key (it must not be encrypted)");
	if (!X509_check_private_key(identity->certificate, identity->key))
		return explain_openssl(why, room, "certificate and key do not belong together");
	return 0;
}

/* The key is in another process; only its public part is here. */
static int number_key(struct tls_identity *identity, const struct private_key *key, char *why, uint32_t room)
{
	const unsigned char *at = key->bytes;
	EVP_PKEY *public_part = d2i_PUBKEY(NULL, &at, key->byte_count);
	bool same = public_part && EVP_PKEY_eq(X509_get0_pubkey(identity->certificate), public_part) == 1;

	if (same)
		identity->key = key_by_number(key->number, public_part);
	EVP_PKEY_free(public_part);
	if (!same)
		return explain_openssl(why, room, "certificate and key do not belong together");
	if (!identity->key)
		return explain_openssl(why, room, "key");
	return 0;
}

static int identity_read(struct tls_identity *identity, BIO *certificate, const struct private_key *key, char *why,
			 uint32_t room)
{
	int r;

	if (!certificate)
		return explain(why, room, ENOMEM, "no memory");
	if (read_chain(identity, certificate))
		return explain_openssl(why, room, "certificate");
	r = key->number ? number_key(identity, key, why, room) : read_key(identity, key, why, room);
	return r ? r : tls_identity_check(identity, why, room);
}

static int add_identity(struct xts_ulp_config *config, const char *name, const void *certificate,
			uint32_t certificate_bytes, const struct private_key *key, const void *ocsp, uint32_t ocsp_bytes,
			const struct xts_tls_queues *queues, uint32_t queue_count, char *why, uint32_t why_room)
{
	struct tls_identity *identity;
	BIO *certificate_pem;
	int r = check_name(name, identity_is(config->tls, name), why, why_room);

	if (r)
		return r;
	identity = calloc(1, sizeof *identity);
	if (!identity)
		return explain(why, why_room, ENOMEM, "no memory");
	memcpy(identity->name, name, strlen(name));
	identity->key_number = key->number;
	if (EVP_Digest(certificate, certificate_bytes, identity->digest, NULL, EVP_sha256(), NULL) != 1)
		r = explain(why, why_room, ENOMEM, "no memory");
	if (key->number)
		key_use(key->number);
	certificate_pem = BIO_new_mem_buf(certificate, (int)certificate_bytes);
	if (!r)
		r = identity_read(identity, certificate_pem, key, why, why_room);
	BIO_free(certificate_pem);
	if (!r && access_copy(&identity->access, queues, queue_count))
		r = explain(why, why_room, ENOMEM, "no memory");
	if (!r && ocsp_bytes) {
		identity->ocsp = malloc(ocsp_bytes);
		if (!identity->ocsp)
			r = explain(why, why_room, ENOMEM, "no memory");
		else
			memcpy(identity->ocsp, ocsp, ocsp_bytes);
		identity->ocsp_bytes = ocsp_bytes;
	}
	if (r) {
		identity_free(identity);
		return r;
	}
	identity->next = config->tls->identities;
	config->tls->identities = identity;
	return 0;
}

int xts_tls_add_identity(struct xts_ulp_config *config, const char *name, const void *certificate,
			 uint32_t certificate_bytes, const void *key, uint32_t key_bytes, const void *ocsp,
			 uint32_t ocsp_bytes, const struct xts_tls_queues *queues, uint32_t queue_count, char *why,
			 uint32_t why_room)
{
	const struct private_key pem = { .bytes = key, .byte_count = key_bytes };

	return add_identity(config, name, certificate, certificate_bytes, &pem, ocsp, ocsp_bytes, queues, queue_count,
			    why, why_room);
}

int xts_tls_add_identity_by_number(struct xts_ulp_config *config, const char *name, const void *certificate,
				   uint32_t certificate_bytes, uint32_t number, const void *public_key,
				   uint32_t public_bytes, const void *ocsp, uint32_t ocsp_bytes,
				   const struct xts_tls_queues *queues, uint32_t queue_count, char *why,
				   uint32_t why_room)
{
	const struct private_key key = { .number = number, .bytes = public_key, .byte_count = public_bytes };

	return add_identity(config, name, certificate, certificate_bytes, &key, ocsp, ocsp_bytes, queues, queue_count,
			    why, why_room);
}

/* --- trust -------------------------------------------------------------------------------------------------------- */

static void trust_free(struct tls_trust *trust)
{
	X509_STORE_free(trust->store);
	sk_X509_NAME_pop_free(trust->names, X509_NAME_free);
	free(trust->access.queues);
	free(trust);
}

/* False: no memory. */
static bool digest_trust(struct tls_trust *trust, const void *roots, uint32_t roots_bytes, const void *crls,
			 uint32_t crls_bytes)
{
	const uint64_t roots_end = roots_bytes;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
		  EVP_DigestUpdate(ctx, &roots_end, sizeof roots_end) == 1 &&
		  EVP_DigestUpdate(ctx, roots, roots_bytes) == 1 && EVP_DigestUpdate(ctx, crls, crls_bytes) == 1 &&
		  EVP_DigestFinal_ex(ctx, trust->digest, NULL) == 1;

	EVP_MD_CTX_free(ctx);
	return ok;
}

/* Whatever is in a file of trust is trusted, an intermediate authority's or a server's own certificate, too, as with
 * curl, Go, GnuTLS and Python since 3.13: no self-signed one has to be behind it. */
static X509_STORE *new_store(void)
{
	X509_STORE *store = X509_STORE_new();

	if (store && X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) == 1)
		return store;
	X509_STORE_free(store);
	return NULL;
}

static int add_root(struct tls_trust *trust, X509 *root)
{
	X509_NAME *name;

	if (!X509_STORE_add_cert(trust->store, root))
		return -1;
	if (!trust->names || sk_X509_NAME_num(trust->names) > NAMES_MAX)
		return 0;
	name = X509_NAME_dup(X509_get_subject_name(root));
	if (!name || !sk_X509_NAME_push(trust->names, name)) {
		X509_NAME_free(name);
		return -1;
	}
	return 0;
}

static int read_roots(struct tls_trust *trust, BIO *pem, char *why, uint32_t room)
{
	uint32_t count = 0;
	X509 *root;
	int r;

	while ((r = next_certificate(pem, &root)) > 0) {
		count++;
		r = add_root(trust, root);
		X509_free(root);
		if (r)
			break;
	}
	if (r)
		return explain_openssl(why, room, "trust roots");
	if (!count)
		return explain(why, room, EINVAL, "it contains no certificate");
	if (sk_X509_NAME_num(trust->names) > NAMES_MAX) {
		sk_X509_NAME_pop_free(trust->names, X509_NAME_free);
		trust->names = NULL;
	}
	return 0;
}

/* NULL: there is none, for a reason that OpenSSL has. */
static X509_CRL *next_crl(BIO *pem)
{
	X509_CRL *crl = X509_CRL_new_ex(tls_library(), NULL);

	if (!crl || PEM_read_bio_X509_CRL(pem, &crl, NULL, NULL))
		return crl;
	X509_CRL_free(crl);
	return NULL;
}

static int read_crls(struct tls_trust *trust, BIO *pem, char *why, uint32_t room)
{
	uint32_t count = 0;
	unsigned long error;
	X509_CRL *crl;

	while ((crl = next_crl(pem))) {
		int ok = X509_STORE_add_crl(trust->store, crl);

		X509_CRL_free(crl);
		if (!ok)
			return explain_openssl(why, room, "revocation list");
		count++;
	}
	error = ERR_peek_last_error();
	if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE)
		return explain_openssl(why, room, "revocation list");
	ERR_clear_error();
	if (!count)
		return explain(why, room, EINVAL, "it contains no revocation list");
	return X509_STORE_set_flags(trust->store, X509_V_FLAG_CRL_CHECK) ? 0 :
									   explain_openssl(why, room, "revocation list");
}

static int trust_read(struct tls_trust *trust, BIO *roots, BIO *crls, bool with_crls, char *why, uint32_t room)
{
	int r;

	trust->store = new_store();
	trust->names = sk_X509_NAME_new_null();
	if (!roots || (with_crls && !crls) || !trust->store || !trust->names)
		return explain(why, room, ENOMEM, "no memory");
	r = read_roots(trust, roots, why, room);
	return r || !with_crls ? r : read_crls(trust, crls, why, room);
}

int xts_tls_add_trust(struct xts_ulp_config *config, const char *name, const void *roots, uint32_t roots_bytes,
		      const void *crls, uint32_t crls_bytes, const struct xts_tls_queues *queues, uint32_t queue_count,
		      char *why, uint32_t why_room)
{
	struct tls_trust *trust;
	BIO *roots_pem, *crls_pem;
	int r = check_name(name, trust_is(config->tls, name), why, why_room);

	if (r)
		return r;
	trust = calloc(1, sizeof *trust);
	if (!trust)
		return explain(why, why_room, ENOMEM, "no memory");
	memcpy(trust->name, name, strlen(name));
	roots_pem = BIO_new_mem_buf(roots, (int)roots_bytes);
	crls_pem = crls ? BIO_new_mem_buf(crls, (int)crls_bytes) : NULL;
	r = trust_read(trust, roots_pem, crls_pem, crls != NULL, why, why_room);
	BIO_free(roots_pem);
	BIO_free(crls_pem);
	if (!r && (!digest_trust(trust, roots, roots_bytes, crls, crls_bytes) ||
		   access_copy(&trust->access, queues, queue_count)))
		r = explain(why, why_room, ENOMEM, "no memory");
	if (r) {
		trust_free(trust);
		return r;
	}
	trust->next = config->tls->trusts;
	config->tls->trusts = trust;
	return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

void tls_config_free(struct xts_tls_config *config)
{
	if (!config)
		return;
	tls_contexts_free(config);
	tls_resumable_put(config->resumable);
	while (config->identities) {
		struct tls_identity *next = config->identities->next;

		identity_free(config->identities);
		config->identities = next;
	}
	key_send_forgotten();
	while (config->trusts) {
		struct tls_trust *next = config->trusts->next;

		trust_free(config->trusts);
		config->trusts = next;
	}
	pthread_mutex_destroy(&config->lock);
	settings_free(&config->settings);
	free(config);
}
