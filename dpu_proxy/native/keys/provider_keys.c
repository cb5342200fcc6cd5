/*
 * Keys by number, as a provider for OpenSSL. A key here is its public part and its number in the key process.
 * Operations that need the private part are requests to that process; OpenSSL's own provider does everything else with
 * the public part.
 *
 * The provider lives in a library context of its own, so that only keys made with it use it.
 */
#include <errno.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/provider.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "key_client.h"
#include "provider.h"

#define NUMBER "xts-key-number" /* name of the OSSL_PARAM with the key's number in the key process */

static OSSL_LIB_CTX *library;

/* --- keys --------------------------------------------------------------------------------------------------------- */

static void *key_new(const char *type)
{
	struct numbered_key *key = calloc(1, sizeof *key);

	if (key)
		key->type = type;
	return key;
}

static void key_free(void *keydata)
{
	struct numbered_key *key = keydata;

	if (!key)
		return;
	EVP_PKEY_free(key->public_part);
	free(key);
}

static int key_has(const void *keydata, int selection)
{
	const struct numbered_key *key = keydata;

	if ((selection & OSSL_KEYMGMT_SELECT_PRIVATE_KEY) && !key->number)
		return 0;
	return key->public_part != NULL;
}

static int key_match(const void *one, const void *other, int selection)
{
	const struct numbered_key *a = one, *b = other;

	if (selection & OSSL_KEYMGMT_SELECT_KEYPAIR)
		return EVP_PKEY_eq(a->public_part, b->public_part) == 1;
	return EVP_PKEY_parameters_eq(a->public_part, b->public_part) == 1;
}

static int key_import(void *keydata, int selection, const OSSL_PARAM parameters[])
{
	struct numbered_key *key = keydata;
	const OSSL_PARAM *number = OSSL_PARAM_locate_const(parameters, NUMBER);
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, key->type, "provider=default");
	int ok = ctx && EVP_PKEY_fromdata_init(ctx) == 1 &&
		 EVP_PKEY_fromdata(ctx, &key->public_part, EVP_PKEY_PUBLIC_KEY, (OSSL_PARAM *)(uintptr_t)parameters) ==
			 1;

	(void)selection;
	EVP_PKEY_CTX_free(ctx);
	if (ok && number)
		ok = OSSL_PARAM_get_uint32(number, &key->number);
	return ok;
}

/* Exports the public part to code that cannot use the key itself. The export must not hide that there is a private
 * part. */
static int key_export(void *keydata, int selection, OSSL_CALLBACK *callback, void *argument)
{
	const struct numbered_key *key = keydata;

	if ((selection & OSSL_KEYMGMT_SELECT_PRIVATE_KEY) && key->number)
		return 0;
	return EVP_PKEY_export(key->public_part, EVP_PKEY_PUBLIC_KEY, callback, argument);
}

static const OSSL_PARAM *key_types(int selection)
{
	static const OSSL_PARAM types[] = { OSSL_PARAM_uint32(NUMBER, NULL), OSSL_PARAM_END };

	(void)selection;
	return types;
}

static int key_get(void *keydata, OSSL_PARAM parameters[])
{
	return EVP_PKEY_get_params(((struct numbered_key *)keydata)->public_part, parameters);
}

static const OSSL_PARAM *key_gettable(void *context)
{
	static const OSSL_PARAM gettable[] = {
		OSSL_PARAM_int(OSSL_PKEY_PARAM_BITS, NULL),
		OSSL_PARAM_int(OSSL_PKEY_PARAM_SECURITY_BITS, NULL),
		OSSL_PARAM_int(OSSL_PKEY_PARAM_MAX_SIZE, NULL),
		OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_DEFAULT_DIGEST, NULL, 0),
		OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_MANDATORY_DIGEST, NULL, 0),
		OSSL_PARAM_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, NULL, 0),
		OSSL_PARAM_END,
	};

	(void)context;
	return gettable;
}

static const char *ec_operation(int operation)
{
	return operation == OSSL_OP_SIGNATURE ? "ECDSA" : "EC";
}

static const char *rsa_operation(int operation)
{
	(void)operation;
	return "RSA";
}

typedef void function(void);
#define OF(number, name) { number, (function *)(name) }
/* clang-format off */
#define KEYS_OF(kind, name) \
	static void *kind##_new(void *context) \
	{ \
		(void)context; \
		return key_new(name); \
	} \
	static const OSSL_DISPATCH kind##_keys[] = { \
		OF(OSSL_FUNC_KEYMGMT_NEW, kind##_new), \
		OF(OSSL_FUNC_KEYMGMT_FREE, key_free), \
		OF(OSSL_FUNC_KEYMGMT_HAS, key_has), \
		OF(OSSL_FUNC_KEYMGMT_MATCH, key_match), \
		OF(OSSL_FUNC_KEYMGMT_IMPORT, key_import), \
		OF(OSSL_FUNC_KEYMGMT_IMPORT_TYPES, key_types), \
		OF(OSSL_FUNC_KEYMGMT_EXPORT, key_export), \
		OF(OSSL_FUNC_KEYMGMT_EXPORT_TYPES, key_types), \
		OF(OSSL_FUNC_KEYMGMT_GET_PARAMS, key_get), \
		OF(OSSL_FUNC_KEYMGMT_GETTABLE_PARAMS, key_gettable),
#define END_OF_KEYS { 0, NULL } }

KEYS_OF(rsa, "RSA") END_OF_KEYS;
KEYS_OF(rsa_pss, "RSA-PSS") OF(OSSL_FUNC_KEYMGMT_QUERY_OPERATION_NAME, rsa_operation), END_OF_KEYS;
KEYS_OF(ec, "EC") OF(OSSL_FUNC_KEYMGMT_QUERY_OPERATION_NAME, ec_operation), END_OF_KEYS;
KEYS_OF(ed25519, "ED25519") END_OF_KEYS;
KEYS_OF(ed448, "ED448") END_OF_KEYS;
/* clang-format on */

static const OSSL_ALGORITHM keys[] = {
	{ "RSA:rsaEncryption", "provider=xts-keys", rsa_keys, NULL },
	{ "RSA-PSS:RSASSA-PSS", "provider=xts-keys", rsa_pss_keys, NULL },
	{ "EC:id-ecPublicKey", "provider=xts-keys", ec_keys, NULL },
	{ "ED25519", "provider=xts-keys", ed25519_keys, NULL },
	{ "ED448", "provider=xts-keys", ed448_keys, NULL },
	{ NULL, NULL, NULL, NULL },
};

/* --- the provider ------------------------------------------------------------------------------------------------- */

static const OSSL_ALGORITHM *query(void *context, int operation, int *no_cache)
{
	(void)context;
	*no_cache = 0;
	switch (operation) {
	case OSSL_OP_KEYMGMT:
		return keys;
	case OSSL_OP_SIGNATURE:
		return key_signatures;
	case OSSL_OP_ASYM_CIPHER:
		return key_ciphers;
	default:
		return NULL;
	}
}

static int start(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **context)
{
	static const OSSL_DISPATCH provider[] = { OF(OSSL_FUNC_PROVIDER_QUERY_OPERATION, query), { 0, NULL } };

	(void)in;
	*out = provider;
	*context = (void *)(uintptr_t)handle;
	return 1;
}

int key_provider_load(void)
{
	if (library)
		return 0;
	library = OSSL_LIB_CTX_new();
	if (library && OSSL_PROVIDER_add_builtin(library, "xts-keys", start) == 1 &&
	    OSSL_PROVIDER_load(library, "xts-keys"))
		return 0;
	OSSL_LIB_CTX_free(library);
	library = NULL;
	return -ENOMEM;
}

EVP_PKEY *key_by_number(uint32_t number, EVP_PKEY *public_part)
{
	const OSSL_PARAM its_number[] = { OSSL_PARAM_construct_uint32(NUMBER, &number), OSSL_PARAM_construct_end() };
	const char *type = EVP_PKEY_get0_type_name(public_part);
	OSSL_PARAM *of_public = NULL, *merged = NULL;
	EVP_PKEY_CTX *ctx = type ? EVP_PKEY_CTX_new_from_name(library, type, NULL) : NULL;
	EVP_PKEY *key = NULL;

	if (ctx && EVP_PKEY_todata(public_part, EVP_PKEY_PUBLIC_KEY, &of_public) == 1)
		merged = OSSL_PARAM_merge(of_public, its_number);
	if (merged && EVP_PKEY_fromdata_init(ctx) == 1)
		(void)EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, merged);
	OPENSSL_free(merged);
	OSSL_PARAM_free(of_public);
	EVP_PKEY_CTX_free(ctx);
	return key;
}
