/*
 * Whether an identity can be used. What OpenSSL would refuse in each handshake is refused when the configuration is
 * read, with the reason: keys that are too short, certificates signed with a digest that is too weak, keys of kinds and
 * curves for which TLS has no signature algorithm.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>

#include "keys/key_client.h"
#include "tls.h"

/* Does TLS sign with keys of this curve? OpenSSL does with Brainpool's since 3.2 (RFC 8734). */
static bool is_curve_of_tls(const char *name)
{
	static const char *const curves[] = { "prime256v1", "secp384r1", "secp521r1", NULL };
	bool brainpool = OPENSSL_version_major() > 3 || (OPENSSL_version_major() == 3 && OPENSSL_version_minor() >= 2);

	for (const char *const *one = curves; *one; one++) {
		if (!strcmp(*one, name))
			return true;
	}
	return brainpool && !strncmp(name, "brainpoolP", 10) && strstr(name, "r1");
}

/* NULL, or what kind of key it is that TLS has no signature algorithm for. */
static const char *useless_kind(EVP_PKEY *key, char *curve, size_t room)
{
	static const char *const kinds[] = { "DSA", "DH", "DHX", "X25519", "X448", "SM2", NULL };
	size_t bytes;

	for (const char *const *kind = kinds; *kind; kind++) {
		if (EVP_PKEY_is_a(key, *kind))
			return *kind;
	}
	if (!EVP_PKEY_is_a(key, "EC"))
		return NULL;
	if (EVP_PKEY_get_group_name(key, curve, room, &bytes) != 1)
		return "an unnamed curve";
	return is_curve_of_tls(curve) ? NULL : curve;
}

static bool is_restricted(EVP_PKEY *key)
{
	return EVP_PKEY_is_a(key, "RSA-PSS") && !key_signs_pss(key, EVP_sha256()) &&
	       !key_signs_pss(key, EVP_sha384()) && !key_signs_pss(key, EVP_sha512());
}

/* As a handshake does it. */
static int try(const struct tls_identity *identity, char *why, uint32_t room)
{
	SSL_CTX *ssl = SSL_CTX_new_ex(tls_library(), NULL, TLS_method());
	const char *reason = NULL;
	int r = ssl ? 0 : -ENOMEM;

	if (ssl)
		SSL_CTX_set_security_level(ssl, TLS_SECURITY_LEVEL);
	if (ssl && SSL_CTX_use_cert_and_key(ssl, identity->certificate, identity->key, identity->chain, 1) != 1) {
		reason = ERR_reason_error_string(ERR_peek_last_error());
		r = -EINVAL;
	}
	if (r)
		snprintf(why, room, "certificate: %s", !ssl ? "no memory" : reason ? reason : "OpenSSL cannot use it");
	SSL_CTX_free(ssl);
	ERR_clear_error();
	return r;
}

int tls_identity_check(const struct tls_identity *identity, char *why, uint32_t room)
{
	EVP_PKEY *key = X509_get0_pubkey(identity->certificate);
	char curve[64];
	const char *kind = useless_kind(key, curve, sizeof curve);

	if (kind) {
		snprintf(why, room, "key: TLS has no signature algorithm for %s", kind);
		return -EINVAL;
	}
	if (is_restricted(key)) {
		snprintf(why, room,
			 "key: it is restricted to what TLS does not use: RSA-PSS keys of TLS are for SHA-256, -384 or "
			 "-512, MGF1 with the same, and a salt of at most its length");
		return -EINVAL;
	}
	return try(identity, why, room);
}
