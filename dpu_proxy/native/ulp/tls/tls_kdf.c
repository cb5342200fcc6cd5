/* HKDF of RFC 5869 with the labels of RFC 8446 7.1; see tls_kdf.h. */
#include "tls_kdf.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <string.h>
#include <strings.h>

#define BLOCK_MAX 128u /* of SHA-384 */
#define DIGEST_MAX 48u
#define LABEL_MAX 255u /* with its prefix */
#define CONTEXT_MAX 255u

/* The digests that TLS 1.3 has for key derivation. */
static struct hash {
	const char *name;
	EVP_MD *digest;
	size_t block, bytes;
} hashes[] = { { .name = "SHA256" }, { .name = "SHA384" } };

static _Thread_local tls_kdf_told *told;
static _Thread_local void *told_of;

void tls_kdf_tells(tls_kdf_told *to, void *of)
{
	told = to;
	told_of = of;
}

bool tls_kdf_load(OSSL_LIB_CTX *digests)
{
	for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
		struct hash *h = &hashes[i];

		h->digest = EVP_MD_fetch(digests, h->name, NULL);
		if (!h->digest)
			return false;
		h->block = (size_t)EVP_MD_get_block_size(h->digest);
		h->bytes = (size_t)EVP_MD_get_size(h->digest);
		if (h->block > BLOCK_MAX || h->bytes > DIGEST_MAX)
			return false;
	}
	return true;
}

void tls_kdf_unload(void)
{
	for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
		EVP_MD_free(hashes[i].digest);
		hashes[i].digest = NULL;
	}
}

static const struct hash *hash_named(const OSSL_PARAM *p)
{
	const char *name = NULL;

	if (!p || OSSL_PARAM_get_utf8_string_ptr(p, &name) != 1 || !name)
		return NULL;
	for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
		/* OpenSSL has several spellings: SHA384, SHA2-384, SHA-384 */
		if (EVP_MD_is_a(hashes[i].digest, name))
			return &hashes[i];
	}
	return NULL;
}

/* --- HMAC and HKDF ------------------------------------------------------------------------------------------------ */

struct bytes {
	const uint8_t *data;
	size_t count;
};

/* The context is a hash's own (RFC 2104). out: of the hash's length. */
static bool hmac(EVP_MD_CTX *ctx, const struct hash *h, struct bytes key, const struct bytes *parts, unsigned count,
		 uint8_t *out)
{
	uint8_t pad[BLOCK_MAX];
	bool ok = key.count <= h->block;

	memset(pad, 0x36, sizeof pad);
	for (size_t i = 0; ok && i < key.count; i++)
		pad[i] ^= key.data[i];
	ok = ok && EVP_DigestInit_ex(ctx, h->digest, NULL) == 1 && EVP_DigestUpdate(ctx, pad, h->block) == 1;
	for (unsigned i = 0; ok && i < count; i++)
		ok = EVP_DigestUpdate(ctx, parts[i].data, parts[i].count) == 1;
	ok = ok && EVP_DigestFinal_ex(ctx, out, NULL) == 1;
	for (size_t i = 0; i < sizeof pad; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	ok = ok && EVP_DigestInit_ex(ctx, h->digest, NULL) == 1 && EVP_DigestUpdate(ctx, pad, h->block) == 1 &&
	     EVP_DigestUpdate(ctx, out, h->bytes) == 1 && EVP_DigestFinal_ex(ctx, out, NULL) == 1;
	OPENSSL_cleanse(pad, sizeof pad);
	return ok;
}

/* RFC 5869 2.3, info being the struct HkdfLabel of RFC 8446 7.1. */
static bool expand_label(EVP_MD_CTX *ctx, const struct hash *h, struct bytes secret, struct bytes prefix,
			 struct bytes label, struct bytes context, uint8_t *out, size_t bytes)
{
	uint8_t head[] = { (uint8_t)(bytes >> 8), (uint8_t)bytes, (uint8_t)(prefix.count + label.count) };
	uint8_t context_bytes = (uint8_t)context.count, number = 0, block[DIGEST_MAX];
	struct bytes parts[] = { { NULL, 0 }, { head, sizeof head }, prefix, label, { &context_bytes, 1 },
				 context,     { &number, 1 } };
	bool ok = prefix.count + label.count <= LABEL_MAX && context.count <= CONTEXT_MAX && bytes <= 255 * h->bytes;

	while (ok && bytes) {
		size_t n = bytes < h->bytes ? bytes : h->bytes;

		number++;
		ok = hmac(ctx, h, secret, parts, sizeof parts / sizeof *parts, block);
		if (ok)
			memcpy(out, block, n);
		parts[0] = (struct bytes){ block, h->bytes };
		out += n;
		bytes -= n;
	}
	OPENSSL_cleanse(block, sizeof block);
	return ok;
}

/* The next secret of the key schedule: of the one before, if there is one, and what is mixed in. */
static bool next_secret(EVP_MD_CTX *ctx, const struct hash *h, struct bytes before, struct bytes mixed,
			struct bytes prefix, struct bytes label, uint8_t *out, size_t bytes)
{
	static const uint8_t zeros[DIGEST_MAX];
	uint8_t nothing[DIGEST_MAX], salt[DIGEST_MAX] = { 0 };
	bool ok = bytes == h->bytes;

	if (ok && before.data)
		ok = EVP_DigestInit_ex(ctx, h->digest, NULL) == 1 && EVP_DigestFinal_ex(ctx, nothing, NULL) == 1 &&
		     expand_label(ctx, h, before, prefix, label, (struct bytes){ nothing, h->bytes }, salt, h->bytes);
	if (!mixed.data)
		mixed = (struct bytes){ zeros, h->bytes };
	ok = ok && hmac(ctx, h, (struct bytes){ salt, h->bytes }, &mixed, 1, out);
	OPENSSL_cleanse(salt, sizeof salt);
	return ok;
}

/* --- what OpenSSL calls ------------------------------------------------------------------------------------------- */

static void tell(struct bytes label, const uint8_t *secret, size_t bytes)
{
	static const char client[] = "c ap traffic", server[] = "s ap traffic";

	if (!told || label.count != sizeof client - 1)
		return;
	if (memcmp(label.data, client, sizeof client - 1) == 0)
		told(told_of, true, secret, bytes);
	else if (memcmp(label.data, server, sizeof server - 1) == 0)
		told(told_of, false, secret, bytes);
}

/* No data, but a length of 0, if it was not given. */
static struct bytes octets(const OSSL_PARAM parameters[], const char *name)
{
	const OSSL_PARAM *p = OSSL_PARAM_locate_const(parameters, name);
	const void *data = NULL;
	size_t count = 0;

	if (!p || OSSL_PARAM_get_octet_string_ptr(p, &data, &count) != 1)
		return (struct bytes){ NULL, 0 };
	return (struct bytes){ data, count };
}

static int get_mode(const OSSL_PARAM *p)
{
	int mode = -1;

	if (p && p->data_type == OSSL_PARAM_UTF8_STRING)
		return !strcasecmp(p->data, "EXTRACT_ONLY") ? EVP_KDF_HKDF_MODE_EXTRACT_ONLY :
		       !strcasecmp(p->data, "EXPAND_ONLY")  ? EVP_KDF_HKDF_MODE_EXPAND_ONLY :
							      -1;
	return p && OSSL_PARAM_get_int(p, &mode) == 1 ? mode : -1;
}

/* OpenSSL's TLS gives all parameters here. */
static int derive(void *ctx, unsigned char *out, size_t bytes, const OSSL_PARAM parameters[])
{
	const struct hash *h;
	struct bytes key, label, prefix;
	bool ok;

	if (!parameters)
		return 0;
	h = hash_named(OSSL_PARAM_locate_const(parameters, OSSL_KDF_PARAM_DIGEST));
	key = octets(parameters, OSSL_KDF_PARAM_KEY);
	prefix = octets(parameters, OSSL_KDF_PARAM_PREFIX);
	label = octets(parameters, OSSL_KDF_PARAM_LABEL);
	if (!h)
		return 0;
	switch (get_mode(OSSL_PARAM_locate_const(parameters, OSSL_KDF_PARAM_MODE))) {
	case EVP_KDF_HKDF_MODE_EXTRACT_ONLY:
		return next_secret(ctx, h, octets(parameters, OSSL_KDF_PARAM_SALT), key, prefix, label, out, bytes);
	case EVP_KDF_HKDF_MODE_EXPAND_ONLY:
		ok = key.data &&
		     expand_label(ctx, h, key, prefix, label, octets(parameters, OSSL_KDF_PARAM_DATA), out, bytes);
		if (ok)
			tell(label, out, bytes);
		return ok;
	default:
		return 0;
	}
}

static void *begin(void *provider)
{
	(void)provider;
	return EVP_MD_CTX_new();
}

static void end(void *ctx)
{
	EVP_MD_CTX_free(ctx);
}

typedef void function(void);

const OSSL_DISPATCH tls_kdf_functions[] = {
	{ OSSL_FUNC_KDF_NEWCTX, (function *)begin },
	{ OSSL_FUNC_KDF_FREECTX, (function *)end },
	{ OSSL_FUNC_KDF_DERIVE, (function *)derive },
	{ 0, NULL },
};
