/* What the parts of the provider share; see provider_keys.c. */
#ifndef XTS_KEYS_PROVIDER_H
#define XTS_KEYS_PROVIDER_H

#include <openssl/core.h>
#include <openssl/evp.h>
#include <stdint.h>

struct numbered_key {
	const char *type;
	uint32_t number;       /* 0: there is only the public part */
	EVP_PKEY *public_part; /* a key of OpenSSL's own provider */
};

extern const OSSL_ALGORITHM key_signatures[], key_ciphers[]; /* provider_signing.c */

#endif
