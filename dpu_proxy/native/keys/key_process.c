/*
 * The process that has the private keys. Each connection of the workers has a thread, and the main thread serves the
 * supervisor. A request is a fixed header and bytes to sign or to decrypt; nothing else is understood, and no key ever
 * leaves the process.
 *
 * Keys are in OpenSSL's secure heap: locked, not in core dumps, and surrounded by guard pages.
 */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/allowed_syscalls.h"
#include "key_messages.h"
#include "keys.h"

#define PEM_BYTES_MAX (64u << 10)
#define SECURE_HEAP_BYTES (4u << 20)
#define SECURE_HEAP_UNIT 32u
#define PREMASTER_BYTES 48u

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct {
	uint32_t number; /* 0: free */
	EVP_PKEY *key;
} held[KEYS_MAX];
static uint32_t last_number;

static EVP_PKEY *find(uint32_t number)
{
	EVP_PKEY *found = NULL;

	pthread_rwlock_rdlock(&lock);
	for (uint32_t i = 0; number && i < KEYS_MAX && !found; i++) {
		if (held[i].number == number)
			found = held[i].key;
	}
	if (found)
		EVP_PKEY_up_ref(found);
	pthread_rwlock_unlock(&lock);
	return found;
}

/* Takes over the key, under this number, or a new one if that is 0. Returns its number, or 0 when there is no room. */
static uint32_t keep(EVP_PKEY *key, uint32_t number)
{
	uint32_t kept = 0;

	pthread_rwlock_wrlock(&lock);
	for (uint32_t i = 0; i < KEYS_MAX && !kept; i++) {
		if (held[i].number)
			continue;
		if (!number)
			number = ++last_number ? last_number : ++last_number;
		kept = held[i].number = number;
		held[i].key = key;
	}
	pthread_rwlock_unlock(&lock);
	return kept;
}

static void forget(uint32_t number)
{
	pthread_rwlock_wrlock(&lock);
	for (uint32_t i = 0; number && i < KEYS_MAX; i++) {
		if (held[i].number != number)
			continue;
		EVP_PKEY_free(held[i].key);
		held[i].number = 0;
		held[i].key = NULL;
	}
	pthread_rwlock_unlock(&lock);
}

/* --- signing and decrypting --------------------------------------------------------------------------------------- */

static bool sign_digest(EVP_PKEY *key, const struct key_request *r, const uint8_t *data, size_t bytes, uint8_t *out,
			size_t *out_bytes)
{
	const EVP_MD *digest = EVP_get_digestbyname(r->digest);
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
	bool rsa = r->operation != KEY_SIGN_ECDSA, ok;

	ok = ctx && digest && bytes == (size_t)EVP_MD_get_size(digest) && EVP_PKEY_sign_init(ctx) == 1;
	if (ok && rsa)
		ok = EVP_PKEY_CTX_set_rsa_padding(ctx, r->operation == KEY_SIGN_PSS ? RSA_PKCS1_PSS_PADDING :
										      RSA_PKCS1_PADDING) == 1;
	if (ok && r->operation == KEY_SIGN_PSS)
		ok = EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, RSA_PSS_SALTLEN_DIGEST) == 1;
	ok = ok && EVP_PKEY_CTX_set_signature_md(ctx, digest) == 1 &&
	     EVP_PKEY_sign(ctx, out, out_bytes, data, bytes) == 1;
	EVP_PKEY_CTX_free(ctx);
	return ok;
}

static bool sign_whole(EVP_PKEY *key, const uint8_t *data, size_t bytes, uint8_t *out, size_t *out_bytes)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1 &&
		  EVP_DigestSign(ctx, out, out_bytes, data, bytes) == 1;

	EVP_MD_CTX_free(ctx);
	return ok;
}

/* Decrypts with the padding check of TLS: wrong padding gives a random secret, and takes the same time. */
static bool decrypt(EVP_PKEY *key, const struct key_request *r, const uint8_t *data, size_t bytes, uint8_t *out,
		    size_t *out_bytes)
{
	unsigned version = r->version, alternative = r->alternative_version;
	OSSL_PARAM versions[] = {
		OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_CLIENT_VERSION, &version),
		OSSL_PARAM_construct_uint(OSSL_ASYM_CIPHER_PARAM_TLS_NEGOTIATED_VERSION, &alternative),
		OSSL_PARAM_construct_end(),
	};
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
	bool ok = ctx && EVP_PKEY_decrypt_init(ctx) == 1 &&
		  EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_WITH_TLS_PADDING) == 1 &&
		  EVP_PKEY_CTX_set_params(ctx, versions) == 1 &&
		  EVP_PKEY_decrypt(ctx, out, out_bytes, data, bytes) == 1 && *out_bytes == PREMASTER_BYTES;

	EVP_PKEY_CTX_free(ctx);
	return ok;
}

/* An operation that the key is not for fails in OpenSSL. */
static bool operate(EVP_PKEY *key, const struct key_request *r, const uint8_t *data, size_t bytes, uint8_t *out,
		    size_t *out_bytes)
{
	switch (r->operation) {
	case KEY_SIGN_PKCS1:
	case KEY_SIGN_PSS:
		return (EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_is_a(key, "RSA-PSS")) &&
		       sign_digest(key, r, data, bytes, out, out_bytes);
	case KEY_SIGN_ECDSA:
		return EVP_PKEY_is_a(key, "EC") && sign_digest(key, r, data, bytes, out, out_bytes);
	case KEY_SIGN_WHOLE:
		return (EVP_PKEY_is_a(key, "ED25519") || EVP_PKEY_is_a(key, "ED448")) &&
		       sign_whole(key, data, bytes, out, out_bytes);
	case KEY_DECRYPT_TLS:
		return EVP_PKEY_is_a(key, "RSA") && decrypt(key, r, data, bytes, out, out_bytes);
	default:
		return false;
	}
}

static void forget_all(const uint8_t *numbers, size_t bytes)
{
	uint32_t number;

	for (; bytes >= sizeof number; numbers += sizeof number, bytes -= sizeof number) {
		memcpy(&number, numbers, sizeof number);
		forget(number);
	}
}

/* Makes the answer to a request of n bytes. Returns its length; 0: there is none. */
static size_t answer(const uint8_t *in, size_t n, uint8_t *out)
{
	struct key_answer head = { 0 };
	size_t bytes = KEY_ANSWER_MAX;
	struct key_request r;
	EVP_PKEY *key;

	if (n < sizeof r)
		return 0;
	memcpy(&r, in, sizeof r);
	r.digest[sizeof r.digest - 1] = 0;
	if (r.operation == KEY_FORGET) {
		forget_all(in + sizeof r, n - sizeof r);
		return 0;
	}
	head.sequence = r.sequence;
	key = find(r.number);
	if (!key)
		head.error = -ENOENT;
	else if ((size_t)EVP_PKEY_get_size(key) > KEY_ANSWER_MAX)
		head.error = -EMSGSIZE;
	else if (!operate(key, &r, in + sizeof r, n - sizeof r, out + sizeof head, &bytes))
		head.error = -EINVAL;
	EVP_PKEY_free(key);
	ERR_clear_error();
	memcpy(out, &head, sizeof head);
	return head.error ? sizeof head : sizeof head + bytes;
}

struct served {
	int fd;
	bool background;
	uint8_t in[sizeof(struct key_request) + KEY_DATA_MAX];
	uint8_t out[sizeof(struct key_answer) + KEY_ANSWER_MAX];
};

static void *serve_connection(void *argument)
{
	struct sched_param none = { 0 };
	struct served *c = argument;
	ssize_t n;

	if (c->background)
		(void)sched_setscheduler(0, SCHED_IDLE, &none);
	if (xts_calls_only(XTS_CALLS_OF_KEYS))
		_exit(1);
	for (;;) {
		n = recv(c->fd, c->in, sizeof c->in, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return NULL; /* the workers are gone; the supervisor will end this process */
		n = (ssize_t)answer(c->in, (size_t)n, c->out);
		while (n && send(c->fd, c->out, (size_t)n, MSG_NOSIGNAL) < 0 && errno == EINTR)
			; /* another error: the workers are gone, which the next recv() finds */
		OPENSSL_cleanse(c->out, sizeof c->out);
	}
}

/* --- the supervisor's orders -------------------------------------------------------------------------------------- */

static int no_passphrase(char *buffer, int room, int writing, void *argument)
{
	(void)buffer, (void)room, (void)writing, (void)argument;
	return -1;
}

static void explain(struct key_loaded *out, int error, const char *reason)
{
	out->error = -error;
	(void)snprintf(out->reason, sizeof out->reason, "%s", reason ? reason : "not what OpenSSL expects");
}

/* Reads the PEM text of the file into locked memory; or -errno. */
static ssize_t read_text(int fd, uint8_t *text)
{
	size_t bytes = 0;
	ssize_t n;

	while (bytes < PEM_BYTES_MAX && (n = read(fd, text + bytes, PEM_BYTES_MAX - bytes)) != 0) {
		if (n < 0)
			return -errno;
		bytes += (size_t)n;
	}
	return bytes == PEM_BYTES_MAX ? -EFBIG : (ssize_t)bytes;
}

static EVP_PKEY *parse(const uint8_t *text, size_t bytes, struct key_loaded *out)
{
	BIO *pem = BIO_new_mem_buf(text, (int)bytes);
	EVP_PKEY *key = pem ? PEM_read_bio_PrivateKey(pem, NULL, no_passphrase, NULL) : NULL;

	if (!key)
		explain(out, EINVAL, ERR_reason_error_string(ERR_peek_last_error()));
	BIO_free(pem);
	return key;
}

static void load(int fd, uint32_t number, struct key_loaded *out)
{
	uint8_t *text = OPENSSL_secure_malloc(PEM_BYTES_MAX), *public_key = out->public_key;
	ssize_t bytes = text ? read_text(fd, text) : -ENOMEM;
	EVP_PKEY *key = NULL;
	int length;

	if (bytes < 0)
		explain(out, (int)-bytes, strerror((int)-bytes));
	else
		key = parse(text, (size_t)bytes, out);
	OPENSSL_secure_clear_free(text, PEM_BYTES_MAX);
	if (!key)
		return;
	length = i2d_PUBKEY(key, NULL);
	if (length <= 0 || (uint32_t)length > KEY_PUBLIC_MAX || i2d_PUBKEY(key, &public_key) != length) {
		explain(out, EINVAL, "its public key cannot be derived");
	} else {
		out->public_bytes = (uint32_t)length;
		out->number = keep(key, number);
		if (!out->number)
			explain(out, ENOSPC, "too many keys");
	}
	if (out->error)
		EVP_PKEY_free(key);
}

/* Carries out one order, with at most one descriptor. False: the supervisor is gone. */
static bool obey(int control)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} attached;
	static struct key_loaded out;
	struct key_order order = { 0 };
	struct iovec in = { &order, sizeof order };
	struct msghdr message = {
		.msg_iov = &in, .msg_iovlen = 1, .msg_control = &attached, .msg_controllen = sizeof attached
	};
	ssize_t n = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	int fd = -1;

	if (n < 0 && errno == EINTR)
		return true;
	if (n != (ssize_t)sizeof order)
		return false;
	memset(&out, 0, sizeof out);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	if (order.forget)
		forget(order.forget);
	else if (fd >= 0)
		load(fd, order.number, &out);
	else
		explain(&out, message.msg_flags & MSG_CTRUNC ? EMFILE : EBADMSG,
			message.msg_flags & MSG_CTRUNC ? "the process that has the keys has no descriptors left" :
							 "no file came with the order");
	if (fd >= 0)
		close(fd);
	ERR_clear_error();
	return send(control, &out, sizeof out, MSG_NOSIGNAL) == (ssize_t)sizeof out;
}

void xts_keys_serve(int control, const int *connections, uint32_t count, uint32_t numbers_to)
{
	struct served *served = calloc(count, sizeof *served);
	pthread_t thread;

	last_number = numbers_to;

	/* if this fails, keys are in ordinary memory, which is wiped */
	(void)CRYPTO_secure_malloc_init(SECURE_HEAP_BYTES, SECURE_HEAP_UNIT);
	OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS | OPENSSL_INIT_ADD_ALL_DIGESTS | OPENSSL_INIT_LOAD_CONFIG,
			    NULL);
	for (uint32_t i = 0; served && i < count; i++) {
		served[i].fd = connections[i];
		served[i].background = i > 0;
		if (pthread_create(&thread, NULL, serve_connection, &served[i]))
			_exit(1);
	}
	if (!served || xts_calls_only(XTS_CALLS_OF_KEYS))
		_exit(1);
	while (obey(control))
		;
	_exit(0);
}
