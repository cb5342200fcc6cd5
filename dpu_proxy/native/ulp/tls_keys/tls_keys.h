/* What the files of TLS_KEYS share: the keys of one direction, records encrypted with them, and who does the crypto. */
#ifndef XTS_ULP_TLS_KEYS_H
#define XTS_ULP_TLS_KEYS_H

#include <linux/tls.h>
#include <openssl/evp.h>

#include "ulp/tls/tls_config.h"
#include "ulp/ulp.h"

#define TLS_HEADER_BYTES 5u
#define TLS_TAG_BYTES 16u   /* the same for every cipher here */
#define TLS_NONCE_BYTES 12u /* likewise */
#define TLS_PAYLOAD_MAX 16384u
#define TLS_RECORD_MAX (TLS_HEADER_BYTES + TLS_PAYLOAD_MAX + 256u)

enum { TLS_CHANGE_CIPHER_SPEC = 20, TLS_ALERT = 21, TLS_HANDSHAKE = 22, TLS_APPLICATION_DATA = 23, TLS_HEARTBEAT = 24 };

/* One of the kernel's structures: tls_crypto_info, iv, key, salt, sequence number, without padding. */
struct tls_cipher {
	const EVP_CIPHER *(*evp)(void);
	uint16_t type;
	uint8_t iv_bytes, key_bytes, salt_bytes;
	uint8_t explicit_bytes; /* explicit bytes of the nonce in a record of TLS 1.2 */
	bool ccm;
};

union tls_crypto_info_any {
	struct tls_crypto_info info;
	struct tls12_crypto_info_aes_gcm_256 longest; /* as long as ChaCha20-Poly1305's */
	uint8_t bytes[60];
};

/* tls_keys_cipher.c: one direction's key, and the number of its next record. */
struct tls_aead {
	const struct tls_cipher *cipher;
	EVP_CIPHER_CTX *ctx;
	bool tls13, sealing;
	uint8_t iv[TLS_NONCE_BYTES]; /* salt and iv: XORed with the sequence number */
	uint8_t explicit_nonce[8];   /* TLS 1.2: the part of the nonce, behind the salt, that the next record carries */
	uint64_t sequence;
};

const struct tls_cipher *tls_cipher_find(uint16_t type);
static inline uint32_t tls_cipher_info_bytes(const struct tls_cipher *c)
{
	return (uint32_t)sizeof(struct tls_crypto_info) + c->iv_bytes + c->key_bytes + c->salt_bytes + 8u;
}

/* info has to be complete, with a known version and cipher. 0 or -ENOMEM. The key is in a->ctx only. */
int tls_aead_set(struct tls_aead *a, const union tls_crypto_info_any *info, bool sealing);
void tls_aead_clear(struct tls_aead *a);
/* The bytes of a record that are neither header nor payload: explicit nonce, inner type, tag. */
uint32_t tls_aead_overhead(const struct tls_aead *a);
/* Encrypts bytes (at most TLS_PAYLOAD_MAX) of the pieces, from byte skip on, as one record into out (TLS_RECORD_MAX).
 * Returns the record's length; -EOVERFLOW: no sequence number is left; -EIO. */
ssize_t tls_aead_seal(struct tls_aead *a, uint8_t type, const struct iovec *iov, int pieces, size_t skip,
		      uint32_t bytes, uint8_t *out);
/* Decrypts a whole record with body bytes after its header, at least the overhead. out gets the payload (room for body
 * - overhead + inner type) and may lie inside the record (tls_aead_payload()). Returns the payload's length, and *type;
 * or -EBADMSG. The sequence number stays: tls_aead_next() increments it. */
ssize_t tls_aead_open(struct tls_aead *a, uint8_t *record, uint32_t body, uint8_t *out, uint8_t *type);
static inline uint8_t *tls_aead_payload(const struct tls_aead *a, uint8_t *record)
{
	return record + TLS_HEADER_BYTES + (a->tls13 ? 0 : a->cipher->explicit_bytes);
}
void tls_aead_next(struct tls_aead *a);

/* A layer's state. */
struct tls_keys {
	struct tls_aead aead;
	uint16_t version;
	uint8_t wanted, crypto; /* enum xts_tls_crypto; what is in force is never BEST */
	bool try_kernel;        /* the kernel may have the key, as soon as it can take it */
	bool expired;           /* the peer has sent KeyUpdate: nothing is read until the host pushes new keys */
	const char *reason;     /* why it is not the best kind; NULL: it is the best */
	union tls_crypto_info_any info; /* as pushed, while the kernel may still get it; then wiped */
	/* receive */
	uint32_t quiet; /* records without payload in a row */
	uint8_t *in;    /* TLS_RECORD_MAX, from the first read on */
	uint32_t in_first, in_bytes;
	bool opened; /* the record at in_first has been decrypted in place: */
	uint8_t opened_type;
	uint32_t payload_bytes, payload_taken;
	bool within; /* kernel: a control record has been read in part */
	/* send */
	struct ulp_out out;
};

/* tls_keys.c: counts a record that is not payload, or is empty. 0, or the fault: too many in a row. */
int keys_quiet(struct ulp_layer *l);

/* tls_keys_user.c */
ssize_t keys_user_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
/* Is a whole record here? */
bool keys_user_pending(const struct tls_keys *k);
ssize_t keys_user_write(struct ulp_layer *l, const struct iovec *iov, int pieces, uint8_t type);
/* Sets the mark of a piece of a control record, which has this many bytes and begins with
 * `first`; notes a KeyUpdate. */
void keys_control_mark(struct tls_keys *k, struct ulp_mark *mark, uint8_t type, uint8_t first, uint32_t bytes, bool more);

/* tls_keys_kernel.c: should the kernel get this direction? Notes in k who gets it, and why it is not the best kind. */
void keys_kernel_consider(struct ulp_layer *l, struct tls_keys *k);
/* Hands the key, with the current sequence number, to the connection's socket. 0, or -errno: the kernel does not take
 * it. */
int keys_kernel_take(struct ulp_layer *l, struct tls_keys *k);
/* Hands a new key to a kernel that has the first one. 0 or -errno. */
int keys_kernel_change(struct ulp_layer *l, const union tls_crypto_info_any *info, uint32_t bytes, bool receive);
ssize_t keys_kernel_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
ssize_t keys_kernel_write(struct ulp_layer *l, const struct iovec *iov, int pieces, uint8_t type);

#endif
