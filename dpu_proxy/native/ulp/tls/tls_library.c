/*
 * OpenSSL's library context of everything that shakes hands: its algorithms, without those that TLS never asks for.
 *
 * Why: OpenSSL before 3.2 reads the public key of each certificate by going through all decoders and all methods that
 * exist, some 300, and copies a list for most of them. That took 95 of the 285 us that a client's handshake takes
 * (P-256; OpenSSL 3.0), and with this context it takes 37. A context of its own also has its own locks: a thread of the
 * pool, which may get no CPU for long while it holds one, holds up no worker that uses OpenSSL for records.
 *
 * How: a provider of two functions that matter. It gives out the lists of OpenSSL's default provider, which lives in a
 * context behind it, filtered; the algorithms themselves are the default provider's, except for one (tls_kdf.h). What
 * an OpenSSL newer than this file adds passes, except ciphers in modes that are not TLS's, and decoders of what is not
 * a certificate's key.
 *
 * From OpenSSL 3.2 on there is less to gain. And where the machine's configuration of OpenSSL names another provider
 * (FIPS), or default properties, that holds. Then everything is in OpenSSL's default context, as if this file did not
 * exist.
 */
#include <openssl/core_dispatch.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <string.h>

#include "tls.h"
#include "tls_kdf.h"

#define ALGORITHMS_MAX 192u /* of one operation */

static OSSL_LIB_CTX *library;
static OSSL_PROVIDER *defaults;

/* --- what TLS needs ----------------------------------------------------------------------------------------------- */

static const char *const never_digests[] = {
	"KECCAK-KMAC-128", "KECCAK-KMAC-256", "SHAKE-128", "BLAKE2S-256", "BLAKE2B-512", "SM3", "RIPEMD-160", NULL
};
static const char *const never_keys[] = { "DHX", "SCRYPT", "SIPHASH", "POLY1305", "CMAC", "SM2", NULL };
/* Keys are read from certificates only, which say of which kind they are; the private ones are made outside
 * (tls_config.c). */
static const char *const never_decoders[] = { "DER", "DH", "DHX", "X25519", "X448", "SM2", NULL };

static bool is_cipher_of_tls(const OSSL_ALGORITHM *a)
{
	static const char *const modes[] = { "-GCM", "-CCM", "-CBC", "ChaCha20-Poly1305", "NULL", NULL };
	const char *names = a->algorithm_names;

	if (strstr(names, "-192-") || strstr(names, "-CTS") || !strncmp(names, "SM4", 3) || !strncmp(names, "DES", 3))
		return false;
	for (unsigned i = 0; modes[i]; i++) {
		if (strstr(names, modes[i]))
			return true;
	}
	return false;
}

static bool is_for_certificates(const OSSL_ALGORITHM *a)
{
	return strstr(a->property_definition, "structure=SubjectPublicKeyInfo");
}

struct filter {
	int operation;
	const char *const *never;                /* names; NULL: none */
	bool (*needs)(const OSSL_ALGORITHM *a);  /* NULL: all others */
	const char *ours;                        /* the name of one that is made here; NULL: none */
	const OSSL_DISPATCH *functions;          /* of it */
	OSSL_ALGORITHM left[ALGORITHMS_MAX + 1]; /* the last one is the end of the list */
};

static struct filter filters[] = {
	{ .operation = OSSL_OP_DIGEST, .never = never_digests },
	{ .operation = OSSL_OP_CIPHER, .needs = is_cipher_of_tls },
	{ .operation = OSSL_OP_KEYMGMT, .never = never_keys },
	{ .operation = OSSL_OP_DECODER, .never = never_decoders, .needs = is_for_certificates },
	{ .operation = OSSL_OP_KDF, .ours = TLS_KDF_NAME, .functions = tls_kdf_functions },
};

/* Is this the first of the algorithm's names: "AES-256-GCM" of "AES-256-GCM:id-aes256-GCM:..."? */
static bool is_named(const OSSL_ALGORITHM *a, const char *name)
{
	size_t bytes = strlen(name);

	return !strncmp(a->algorithm_names, name, bytes) &&
	       (!a->algorithm_names[bytes] || a->algorithm_names[bytes] == ':');
}

static bool passes(const struct filter *f, const OSSL_ALGORITHM *a)
{
	for (const char *const *name = f->never; name && *name; name++) {
		if (is_named(a, *name))
			return false;
	}
	return !f->needs || f->needs(a);
}

/* False: the list is longer than any that is known. */
static bool fill(struct filter *f)
{
	int no_cache;
	uint32_t count = 0;

	for (const OSSL_ALGORITHM *a = OSSL_PROVIDER_query_operation(defaults, f->operation, &no_cache);
	     a && a->algorithm_names; a++) {
		if (!passes(f, a))
			continue;
		if (count == ALGORITHMS_MAX)
			return false;
		f->left[count] = *a;
		if (f->ours && is_named(a, f->ours))
			f->left[count].implementation = f->functions;
		count++;
	}
	return true;
}

/* --- the provider ------------------------------------------------------------------------------------------------- */

static const OSSL_ALGORITHM *query(void *context, int operation, int *no_cache)
{
	(void)context;
	*no_cache = 0;
	for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
		if (filters[i].operation == operation)
			return filters[i].left;
	}
	return OSSL_PROVIDER_query_operation(defaults, operation, no_cache);
}

static const OSSL_PARAM *gettable(void *context)
{
	(void)context;
	return OSSL_PROVIDER_gettable_params(defaults);
}

static int get(void *context, OSSL_PARAM parameters[])
{
	(void)context;
	return OSSL_PROVIDER_get_params(defaults, parameters);
}

/* The groups of TLS, among others. */
static int capabilities(void *context, const char *capability, OSSL_CALLBACK *each, void *argument)
{
	(void)context;
	return OSSL_PROVIDER_get_capabilities(defaults, capability, each, argument);
}

typedef void function(void);

static int start(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **context)
{
	static const OSSL_DISPATCH provider[] = {
		{ OSSL_FUNC_PROVIDER_QUERY_OPERATION, (function *)query },
		{ OSSL_FUNC_PROVIDER_GETTABLE_PARAMS, (function *)gettable },
		{ OSSL_FUNC_PROVIDER_GET_PARAMS, (function *)get },
		{ OSSL_FUNC_PROVIDER_GET_CAPABILITIES, (function *)capabilities },
		{ 0, NULL },
	};

	(void)handle;
	(void)in;
	*out = provider;
	/* the algorithms get what they would get from their own provider */
	*context = OSSL_PROVIDER_get0_provider_ctx(defaults);
	return 1;
}

/* --- the context -------------------------------------------------------------------------------------------------- */

static int is_plain(OSSL_PROVIDER *provider, void *plain)
{
	if (strcmp(OSSL_PROVIDER_get0_name(provider), "default") != 0)
		*(bool *)plain = false;
	return 1;
}

/* Has nobody configured anything but OpenSSL's default provider? */
static bool machine_is_plain(void)
{
	bool plain = true;

	return OSSL_PROVIDER_available(NULL, "default") && OSSL_PROVIDER_do_all(NULL, is_plain, &plain) && plain &&
	       !EVP_default_properties_is_fips_enabled(NULL);
}

/* Does it look for decoders with each certificate? */
static bool is_slow(void)
{
	return OPENSSL_version_major() == 3 && OPENSSL_version_minor() < 2;
}

static bool load(OSSL_LIB_CTX *behind)
{
	defaults = behind ? OSSL_PROVIDER_load(behind, "default") : NULL;
	if (!defaults || !tls_kdf_load(behind))
		return false;
	for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
		if (!fill(&filters[i]))
			return false;
	}
	library = OSSL_LIB_CTX_new();
	return library && OSSL_PROVIDER_add_builtin(library, "xts-tls", start) == 1 &&
	       OSSL_PROVIDER_load(library, "xts-tls");
}

static void make(void)
{
	OSSL_LIB_CTX *behind = is_slow() && machine_is_plain() ? OSSL_LIB_CTX_new() : NULL;

	if (!load(behind)) {
		OSSL_LIB_CTX_free(library);
		library = NULL;
		tls_kdf_unload();
		if (defaults)
			OSSL_PROVIDER_unload(defaults);
		OSSL_LIB_CTX_free(behind);
	}
	ERR_clear_error();
}

OSSL_LIB_CTX *tls_library(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make);
	return library;
}
