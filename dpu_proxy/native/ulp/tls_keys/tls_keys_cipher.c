/*
 * Records of TLS 1.2 (RFC 5246 6.2.3.3, 5288, 6655, 7905) and 1.3 (RFC 8446 5.2) under an AEAD cipher.
 *
 * In 1.2 the nonce of AES is the salt and eight bytes that the record carries. With ChaCha20-Poly1305, and in all of
 * 1.3, the nonce is the twelve bytes of iv XORed with the record's number, and the record carries none of it. The
 * additional data that is authenticated is number, type, version and length in 1.2, and the record's header in 1.3,
 * where the payload ends with the true type.
 *
 * A context of OpenSSL's cipher has the key in the form that it computes with: 1.2 KB, half of what an idle connection
 * took. To make one from a key takes about a microsecond. So a direction has one while it is used: it is made for a
 * record, and given back when nothing was sealed or opened for TLS_IDLE_MS. Where the memory for keys is full, one that
 * all have in common takes the key for a single record.
 */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "common/time_units.h"
#include "key_memory.h"
#include "tls_record.h"

#define COPIED_MAX 1024u /* a shorter record is copied and then encrypted in place */

/* clang-format off */
static const struct tls_cipher ciphers[] = {
	{ .type = TLS_CIPHER_AES_GCM_128, .name = "AES-128-GCM", .iv_bytes = 8, .key_bytes = 16, .salt_bytes = 4, .explicit_bytes = 8, .tag_bytes = 16 },
	{ .type = TLS_CIPHER_AES_GCM_256, .name = "AES-256-GCM", .iv_bytes = 8, .key_bytes = 32, .salt_bytes = 4, .explicit_bytes = 8, .tag_bytes = 16 },
	{ .type = TLS_CIPHER_AES_CCM_128, .name = "AES-128-CCM", .iv_bytes = 8, .key_bytes = 16, .salt_bytes = 4, .explicit_bytes = 8, .tag_bytes = 16, .ccm = true },
	{ .type = TLS_CIPHER_AES_CCM_256, .name = "AES-256-CCM", .iv_bytes = 8, .key_bytes = 32, .salt_bytes = 4, .explicit_bytes = 8, .tag_bytes = 16, .ccm = true },
	{ .type = TLS_CIPHER_AES_CCM8_128, .name = "AES-128-CCM", .iv_bytes = 8, .key_bytes = 16, .salt_bytes = 4, .explicit_bytes = 8, .tag_bytes = 8, .ccm = true },
	{ .type = TLS_CIPHER_AES_CCM8_256, .name = "AES-256-CCM", .iv_bytes = 8, .key_bytes = 32, .salt_bytes = 4, .explicit_bytes = 8, .tag_bytes = 8, .ccm = true },
	{ .type = TLS_CIPHER_CHACHA20_POLY1305, .name = "ChaCha20-Poly1305", .iv_bytes = 12, .key_bytes = 32, .tag_bytes = 16 },
};
/* clang-format on */

const struct tls_cipher *tls_cipher_find(uint16_t type)
{
	for (size_t i = 0; i < sizeof ciphers / sizeof *ciphers; i++) {
		if (ciphers[i].type == type)
			return &ciphers[i];
	}
	return NULL;
}

/* OpenSSL's ciphers, in the order of ours. Looked up once: a look-up allocates what stays. */
static EVP_CIPHER *fetched[sizeof ciphers / sizeof *ciphers];

static void fetch(void)
{
	for (size_t i = 0; i < sizeof ciphers / sizeof *ciphers; i++)
		fetched[i] = EVP_CIPHER_fetch(NULL, ciphers[i].name, NULL);
}

/* --- contexts ----------------------------------------------------------------------------------------------------- */

/* A context without a key, in the memory for keys; NULL: there is no room, or OpenSSL does not have the cipher. */
static EVP_CIPHER_CTX *make_context(const struct tls_cipher *c, bool sealing)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	EVP_CIPHER_CTX *ctx;
	bool ok;

	(void)pthread_once(&once, fetch);
	key_memory_begin();
	ctx = EVP_CIPHER_CTX_new();
	ok = ctx && fetched[c - ciphers] &&
	     EVP_CipherInit_ex(ctx, fetched[c - ciphers], NULL, NULL, NULL, sealing) > 0 &&
	     EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, TLS_NONCE_BYTES, NULL) > 0 &&
	     (!c->ccm || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, c->tag_bytes, NULL) > 0);
	key_memory_end();
	if (ok)
		return ctx;
	EVP_CIPHER_CTX_free(ctx);
	return NULL;
}

/* Those that all have in common, of each cipher and direction; made with the first key, so that no record fails. */
static struct {
	pthread_mutex_t lock;
	EVP_CIPHER_CTX *ctx[sizeof ciphers / sizeof *ciphers][2];
} common = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool common_is_there(const struct tls_cipher *c, bool sealing)
{
	EVP_CIPHER_CTX **ctx = &common.ctx[c - ciphers][sealing];
	bool there;

	pthread_mutex_lock(&common.lock);
	if (!*ctx)
		*ctx = make_context(c, sealing);
	there = *ctx;
	pthread_mutex_unlock(&common.lock);
	return there;
}

static bool give_key(const struct tls_aead *a, EVP_CIPHER_CTX *ctx)
{
	return EVP_CipherInit_ex(ctx, NULL, NULL, a->key, NULL, a->sealing) > 0;
}

/* Its own, or the common one. */
static EVP_CIPHER_CTX *find_context(struct tls_aead *a)
{
	EVP_CIPHER_CTX *ctx = make_context(a->cipher, a->sealing);

	if (ctx && give_key(a, ctx))
		return a->ctx = ctx;
	EVP_CIPHER_CTX_free(ctx);
	pthread_mutex_lock(&common.lock);
	ctx = common.ctx[a->cipher - ciphers][a->sealing];
	if (ctx && give_key(a, ctx))
		return ctx;
	pthread_mutex_unlock(&common.lock);
	return NULL;
}

/* For one record. NULL: OpenSSL fails. */
static inline EVP_CIPHER_CTX *context_begin(struct tls_aead *a)
{
	return a->ctx ? a->ctx : find_context(a);
}

static void context_end(const struct tls_aead *a, EVP_CIPHER_CTX *ctx)
{
	static const uint8_t nothing[sizeof a->key];

	if (!ctx || ctx == a->ctx)
		return;
	(void)EVP_CipherInit_ex(ctx, NULL, NULL, nothing, NULL, a->sealing);
	pthread_mutex_unlock(&common.lock);
}

void tls_aead_rest(struct tls_aead *a)
{
	EVP_CIPHER_CTX_free(a->ctx);
	a->ctx = NULL;
}

void tls_idle_time(struct ulp_layer *l, struct tls_idle *i, struct tls_aead *out, struct tls_aead *in)
{
	uint64_t used, now;

	if (!out->ctx && !in->ctx)
		return;
	used = out->sequence + in->sequence;
	now = ulp_now_ns(l);
	if (!i->until_ns || used != i->used)
		*i = (struct tls_idle){ .until_ns = now + (uint64_t)TLS_IDLE_MS * NS_PER_MS, .used = used };
	if (now < i->until_ns) {
		ulp_wake_after(l, (uint32_t)((i->until_ns - now + NS_PER_MS - 1) / NS_PER_MS));
		return;
	}
	i->until_ns = 0;
	tls_aead_rest(out);
	tls_aead_rest(in);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

int tls_aead_set(struct tls_aead *a, const union tls_crypto_info_any *info, bool sealing)
{
	const struct tls_cipher *c = tls_cipher_find(info->info.cipher_type);
	const uint8_t *iv = info->bytes + sizeof info->info, *key = iv + c->iv_bytes, *salt = key + c->key_bytes;
	uint64_t sequence;

	if (!common_is_there(c, sealing))
		return -ENOMEM;
	tls_aead_clear(a);
	memcpy(&sequence, salt + c->salt_bytes, sizeof sequence);
	a->cipher = c;
	a->tls13 = info->info.version == TLS_1_3_VERSION;
	a->sealing = sealing;
	a->sequence = be64toh(sequence);
	memcpy(a->key, key, c->key_bytes);
	memcpy(a->iv, salt, c->salt_bytes);
	memcpy(a->iv + c->salt_bytes, iv, c->iv_bytes);
	memcpy(a->explicit_nonce, iv, sizeof a->explicit_nonce);
	return 0;
}

void tls_aead_clear(struct tls_aead *a)
{
	EVP_CIPHER_CTX_free(a->ctx);
	OPENSSL_cleanse(a, sizeof *a);
}

uint32_t tls_aead_overhead(const struct tls_aead *a)
{
	return a->cipher->tag_bytes + (a->tls13 ? 1u : a->cipher->explicit_bytes);
}

void tls_aead_next(struct tls_aead *a)
{
	a->sequence++;
	for (unsigned i = sizeof a->explicit_nonce; i-- && !++a->explicit_nonce[i];)
		;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* Makes the nonce of the next record. `travels`: the explicit part, which the record carries. */
static void make_nonce(struct tls_aead *a, const uint8_t *travels)
{
	memcpy(a->nonce, a->iv, TLS_NONCE_BYTES);
	if (!a->tls13 && a->cipher->explicit_bytes) {
		memcpy(a->nonce + a->cipher->salt_bytes, travels, a->cipher->explicit_bytes);
		return;
	}
	for (unsigned i = 0; i < 8; i++)
		a->nonce[TLS_NONCE_BYTES - 1 - i] ^= (uint8_t)(a->sequence >> 8 * i);
}

/* Makes the additional data that is authenticated with a payload of this many bytes; returns its length. */
static int make_associated(const struct tls_aead *a, const uint8_t *record, uint32_t payload, uint8_t out[13])
{
	uint64_t sequence = htobe64(a->sequence);

	if (a->tls13) {
		memcpy(out, record, TLS_HEADER_BYTES);
		return TLS_HEADER_BYTES;
	}
	memcpy(out, &sequence, 8);
	memcpy(out + 8, record, 3);
	out[11] = (uint8_t)(payload >> 8);
	out[12] = (uint8_t)payload;
	return 13;
}

/* Begins the record of a->nonce, with what is authenticated besides its payload. 1, or 0 on failure, as in OpenSSL. */
static int begin(const struct tls_aead *a, EVP_CIPHER_CTX *ctx, const uint8_t *associated, int associated_bytes,
		 uint32_t bytes, uint8_t *tag)
{
	int n = 0;

	if (!a->sealing && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, a->cipher->tag_bytes, tag) <= 0)
		return 0;
	if (EVP_CipherInit_ex(ctx, NULL, NULL, NULL, a->nonce, -1) <= 0)
		return 0;
	if (a->cipher->ccm && EVP_CipherUpdate(ctx, NULL, &n, NULL, (int)bytes) <= 0)
		return 0;
	return EVP_CipherUpdate(ctx, NULL, &n, associated, associated_bytes) > 0;
}

static int update(const struct tls_aead *a, EVP_CIPHER_CTX *ctx, const uint8_t *in, size_t bytes, uint8_t *out)
{
	int n = 0;

	/* CCM checks its tag here, the other ciphers at the end. */
	return (!bytes && !a->cipher->ccm) || EVP_CipherUpdate(ctx, out, &n, in, (int)bytes) > 0;
}

static int end(const struct tls_aead *a, EVP_CIPHER_CTX *ctx, uint8_t *behind, uint8_t *tag)
{
	int n = 0;

	if (!a->cipher->ccm && EVP_CipherFinal_ex(ctx, behind, &n) <= 0)
		return 0;
	return !a->sealing || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, a->cipher->tag_bytes, tag) > 0;
}

/* Encrypts bytes of the pieces from where they lie to out, reading each once, and the type behind them. */
static int update_pieces(const struct tls_aead *a, EVP_CIPHER_CTX *ctx, const struct iovec *iov, int pieces,
			 size_t skip, uint32_t bytes, const uint8_t *type, uint8_t *out)
{
	for (; pieces && bytes; iov++, pieces--) {
		size_t n = iov->iov_len > skip ? iov->iov_len - skip : 0;

		if (n > bytes)
			n = bytes;
		if (n && !update(a, ctx, (const uint8_t *)iov->iov_base + skip, n, out))
			return 0;
		skip = n ? 0 : skip - iov->iov_len;
		out += n;
		bytes -= (uint32_t)n;
	}
	return !bytes && (!a->tls13 || update(a, ctx, type, 1, out));
}

ssize_t tls_aead_seal(struct tls_aead *a, uint8_t type, const struct iovec *iov, int pieces, size_t skip,
		      uint32_t bytes, uint8_t *out)
{
	uint8_t *payload = tls_aead_payload(a, out), associated[13];
	uint32_t body = bytes + tls_aead_overhead(a), inner = bytes + a->tls13;
	EVP_CIPHER_CTX *ctx;
	int associated_bytes, ok;

	if (a->sequence == UINT64_MAX)
		return -EOVERFLOW;
	out[0] = a->tls13 ? TLS_APPLICATION_DATA : type;
	out[1] = TLS_1_2_VERSION_MAJOR;
	out[2] = TLS_1_2_VERSION_MINOR;
	out[3] = (uint8_t)(body >> 8);
	out[4] = (uint8_t)body;
	memcpy(out + TLS_HEADER_BYTES, a->explicit_nonce, (size_t)(payload - out) - TLS_HEADER_BYTES);
	make_nonce(a, a->explicit_nonce);
	associated_bytes = make_associated(a, out, bytes, associated);
#ifdef XTS_DEBUG
	if (a->sequence < a->sealed)
		abort(); /* a number for the second time */
	a->sealed = a->sequence + 1;
#endif
	tls_aead_next(a); /* before anything is encrypted: this number is not used again, whatever happens */
	ctx = context_begin(a);
	ok = ctx && begin(a, ctx, associated, associated_bytes, inner, payload + inner);
	if (a->cipher->ccm || bytes < COPIED_MAX) {
		/* CCM takes a record only whole; and a short one costs more by its pieces than by its bytes */
		ulp_iov_copy(payload, iov, pieces, skip, bytes);
		if (a->tls13)
			payload[bytes] = type;
		ok = ok && update(a, ctx, payload, inner, payload);
	} else {
		ok = ok && update_pieces(a, ctx, iov, pieces, skip, bytes, &type, payload);
	}
	ok = ok && end(a, ctx, payload + inner, payload + inner);
	context_end(a, ctx);
	return ok ? (ssize_t)(TLS_HEADER_BYTES + body) : -EIO;
}

ssize_t tls_aead_open(struct tls_aead *a, uint8_t *record, uint32_t body, uint8_t *out, uint8_t *type)
{
	uint8_t *payload = tls_aead_payload(a, record), associated[13];
	uint32_t bytes = body - tls_aead_overhead(a) + a->tls13;
	int associated_bytes = make_associated(a, record, bytes, associated);
	EVP_CIPHER_CTX *ctx = context_begin(a);
	bool ok;

	make_nonce(a, record + TLS_HEADER_BYTES);
	ok = ctx && begin(a, ctx, associated, associated_bytes, bytes, payload + bytes) &&
	     update(a, ctx, payload, bytes, out) && end(a, ctx, out + bytes, payload + bytes);
	context_end(a, ctx);
	if (!ok)
		return -EBADMSG;
	*type = record[0];
	if (!a->tls13)
		return (ssize_t)bytes;
	while (bytes && !out[bytes - 1]) /* padding */
		bytes--;
	if (!bytes)
		return -ENOMSG;
	*type = out[--bytes];
	return (ssize_t)bytes;
}
