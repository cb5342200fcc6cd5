/*
 * Signing and decrypting with keys by number: what OpenSSL's TLS calls, as requests to the key process.
 *
 * TLS asks by sign_begin() which digests a key is for, and chooses the algorithm by the answer. So what the key process
 * would refuse is refused there. A public key has the same restrictions as its private key, and OpenSSL's own provider
 * applies them to both.
 */
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/proverr.h>
#include <openssl/rsa.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "key_client.h"
#include "provider.h"

#define PREMASTER_BYTES 48

struct operation {
	const struct numbered_key *key; /* OpenSSL holds a reference meanwhile */
	const EVP_MD *digest;           /* NULL: no digest, the whole message is signed */
	int padding;                    /* for RSA */
	unsigned version, alternative_version;
};

static void *decryption_new(void *context)
{
	(void)context;
	return calloc(1, sizeof(struct operation));
}

static void *signature_new(void *context, const char *properties)
{
	(void)properties;
	return decryption_new(context);
}

static void operation_free(void *ctx)
{
	free(ctx);
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static bool set_padding(struct operation *o, const OSSL_PARAM *p)
{
	if (!p)
		return true;
	if (p->data_type != OSSL_PARAM_UTF8_STRING)
		return OSSL_PARAM_get_int(p, &o->padding);
	if (!strcmp(p->data, OSSL_PKEY_RSA_PAD_MODE_PSS))
		o->padding = RSA_PKCS1_PSS_PADDING;
	else if (!strcmp(p->data, OSSL_PKEY_RSA_PAD_MODE_PKCSV15))
		o->padding = RSA_PKCS1_PADDING;
	else
		return false;
	return true;
}

/* Is the salt as long as the digest, as in TLS (RFC 8446 4.2.3)? It must be requested so, or not at all. */
static bool good_salt(const OSSL_PARAM *p)
{
	int bytes;

	if (!p)
		return true;
	if (p->data_type == OSSL_PARAM_UTF8_STRING)
		return !strcmp(p->data, OSSL_PKEY_RSA_PSS_SALT_LEN_DIGEST);
	return OSSL_PARAM_get_int(p, &bytes) && bytes == RSA_PSS_SALTLEN_DIGEST;
}

static int set(void *ctx, const OSSL_PARAM parameters[])
{
	struct operation *o = ctx;
	const OSSL_PARAM *version, *alternative;

	if (!parameters)
		return 1;
	version = OSSL_PARAM_locate_const(parameters, OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION);
	alternative = OSSL_PARAM_locate_const(parameters, OSSL_ASYM_CIPHER_PARAM_TLS_NEGOTIATED_VERSION);
	return set_padding(o, OSSL_PARAM_locate_const(parameters, OSSL_PKEY_PARAM_PAD_MODE)) &&
	       good_salt(OSSL_PARAM_locate_const(parameters, OSSL_SIGNATURE_PARAM_PSS_SALTLEN)) &&
	       (!version || OSSL_PARAM_get_uint(version, &o->version)) &&
	       (!alternative || OSSL_PARAM_get_uint(alternative, &o->alternative_version));
}

static const OSSL_PARAM *settable(void *ctx, void *context)
{
	static const OSSL_PARAM known[] = {
		OSSL_PARAM_int(OSSL_PKEY_PARAM_PAD_MODE, NULL),
		OSSL_PARAM_int(OSSL_SIGNATURE_PARAM_PSS_SALTLEN, NULL),
		OSSL_PARAM_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, NULL),
		OSSL_PARAM_uint(OSSL_ASYM_CIPHER_PARAM_TLS_NEGOTIATED_VERSION, NULL),
		OSSL_PARAM_END,
	};

	(void)ctx;
	(void)context;
	return known;
}

/* --- signing ------------------------------------------------------------------------------------------------------ */

static bool is(const struct numbered_key *key, const char *type)
{
	return !strcmp(key->type, type);
}

bool key_signs_pss(EVP_PKEY *key, const EVP_MD *digest)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	EVP_PKEY_CTX *parameters;
	bool ok;

	ERR_set_mark();
	ok = ctx && EVP_DigestVerifyInit(ctx, &parameters, digest, NULL, key) == 1 &&
	     EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1 &&
	     EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, RSA_PSS_SALTLEN_DIGEST) == 1 &&
	     EVP_PKEY_CTX_set_rsa_mgf1_md(parameters, digest) == 1;
	ERR_pop_to_mark();
	EVP_MD_CTX_free(ctx);
	return ok;
}

static int sign_begin(void *ctx, const char *digest, void *keydata, const OSSL_PARAM parameters[])
{
	struct operation *o = ctx;

	o->key = keydata;
	o->padding = is(o->key, "RSA-PSS") ? RSA_PKCS1_PSS_PADDING : RSA_PKCS1_PADDING;
	o->digest = digest && *digest ? EVP_get_digestbyname(digest) : NULL;
	if (digest && *digest && !o->digest)
		return 0;
	if (o->digest && is(o->key, "RSA-PSS") && !key_signs_pss(o->key->public_part, o->digest))
		return 0;
	return o->key->number && set(ctx, parameters);
}

static uint32_t operation_of(const struct operation *o)
{
	if (is(o->key, "EC"))
		return KEY_SIGN_ECDSA;
	if (!is(o->key, "RSA") && !is(o->key, "RSA-PSS"))
		return KEY_SIGN_WHOLE;
	return o->padding == RSA_PKCS1_PSS_PADDING ? KEY_SIGN_PSS : KEY_SIGN_PKCS1;
}

static int failed(void)
{
	ERR_raise(ERR_LIB_PROV, PROV_R_FAILED_TO_SIGN);
	return 0;
}

static int sign(void *ctx, unsigned char *out, size_t *out_bytes, size_t room, const unsigned char *data, size_t bytes)
{
	const struct operation *o = ctx;
	struct key_request r = { .operation = operation_of(o), .number = o->key->number };
	size_t whole = (size_t)EVP_PKEY_get_size(o->key->public_part);
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned digest_bytes = 0;
	ssize_t n;

	*out_bytes = whole;
	if (!out)
		return 1;
	if (room < whole)
		return failed();
	if (r.operation == KEY_SIGN_WHOLE) {
		n = key_ask(&r, data, bytes, out, room);
	} else {
		const char *name = o->digest ? EVP_MD_get0_name(o->digest) : "";

		if (!*name || strlen(name) >= sizeof r.digest ||
		    EVP_Digest(data, bytes, digest, &digest_bytes, o->digest, NULL) != 1)
			return failed();
		memcpy(r.digest, name, strlen(name));
		n = key_ask(&r, digest, digest_bytes, out, room);
	}
	if (n <= 0)
		return failed();
	*out_bytes = (size_t)n;
	return 1;
}

/* --- decrypting --------------------------------------------------------------------------------------------------- */

static int decrypt_begin(void *ctx, void *keydata, const OSSL_PARAM parameters[])
{
	struct operation *o = ctx;

	o->key = keydata;
	return o->key->number && set(ctx, parameters);
}

static int decrypt(void *ctx, unsigned char *out, size_t *out_bytes, size_t room, const unsigned char *data, size_t bytes)
{
	const struct operation *o = ctx;
	struct key_request r = { .operation = KEY_DECRYPT_TLS,
				 .number = o->key->number,
				 .version = o->version,
				 .alternative_version = o->alternative_version };

	if (o->padding != RSA_PKCS1_WITH_TLS_PADDING)
		return 0;
	*out_bytes = PREMASTER_BYTES;
	if (!out)
		return 1;
	return key_ask(&r, data, bytes, out, room) == PREMASTER_BYTES;
}

/* --- what OpenSSL finds ------------------------------------------------------------------------------------------- */

typedef void function(void);
#define OF(number, name) { number, (function *)(name) }

static const OSSL_DISPATCH signing[] = {
	OF(OSSL_FUNC_SIGNATURE_NEWCTX, signature_new),
	OF(OSSL_FUNC_SIGNATURE_FREECTX, operation_free),
	OF(OSSL_FUNC_SIGNATURE_DIGEST_SIGN_INIT, sign_begin),
	OF(OSSL_FUNC_SIGNATURE_DIGEST_SIGN, sign),
	OF(OSSL_FUNC_SIGNATURE_SET_CTX_PARAMS, set),
	OF(OSSL_FUNC_SIGNATURE_SETTABLE_CTX_PARAMS, settable),
	{ 0, NULL },
};

static const OSSL_DISPATCH decrypting[] = {
	OF(OSSL_FUNC_ASYM_CIPHER_NEWCTX, decryption_new),
	OF(OSSL_FUNC_ASYM_CIPHER_FREECTX, operation_free),
	OF(OSSL_FUNC_ASYM_CIPHER_DECRYPT_INIT, decrypt_begin),
	OF(OSSL_FUNC_ASYM_CIPHER_DECRYPT, decrypt),
	OF(OSSL_FUNC_ASYM_CIPHER_SET_CTX_PARAMS, set),
	OF(OSSL_FUNC_ASYM_CIPHER_SETTABLE_CTX_PARAMS, settable),
	{ 0, NULL },
};

const OSSL_ALGORITHM key_signatures[] = {
	{ "RSA:rsaEncryption", "provider=xts-keys", signing, NULL },
	{ "ECDSA", "provider=xts-keys", signing, NULL },
	{ "ED25519", "provider=xts-keys", signing, NULL },
	{ "ED448", "provider=xts-keys", signing, NULL },
	{ NULL, NULL, NULL, NULL },
};

const OSSL_ALGORITHM key_ciphers[] = {
	{ "RSA:rsaEncryption", "provider=xts-keys", decrypting, NULL },
	{ NULL, NULL, NULL, NULL },
};
