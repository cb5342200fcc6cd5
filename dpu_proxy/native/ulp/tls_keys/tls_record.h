/*
 * Records of TLS under an AEAD cipher: one direction's key and number, and what has been read of its records. This is
 * the one record layer: of TLS_KEYS (keys of the host), and of TLS once the handshake is done (tls/tls_leave.c).
 *
 * tls_keys_cipher.c  a key, and a record sealed or opened with it
 * tls_record_in.c    received records: bytes from the layer below, and the record that is being delivered
 */
#ifndef XTS_TLS_RECORD_H
#define XTS_TLS_RECORD_H

#include <linux/tls.h>
#include <openssl/evp.h>

#include "ulp/ulp.h"
#include "worker/memory_sum.h"

#define TLS_HEADER_BYTES 5u
#define TLS_TAG_BYTES 16u   /* the longest */
#define TLS_NONCE_BYTES 12u /* the same for every cipher here */
#define TLS_PAYLOAD_MAX 16384u
#define TLS_QUIET_MAX 32u /* records, or messages after the handshake, without data between them */
#define TLS_RECORD_MAX (TLS_HEADER_BYTES + TLS_PAYLOAD_MAX + 256u)

enum { TLS_CHANGE_CIPHER_SPEC = 20, TLS_ALERT = 21, TLS_HANDSHAKE = 22, TLS_APPLICATION_DATA = 23, TLS_HEARTBEAT = 24 };

/* Alerts that reading a record may call for (RFC 8446 6.2). */
enum { TLS_UNEXPECTED_MESSAGE = 10, TLS_BAD_RECORD_MAC = 20, TLS_RECORD_OVERFLOW = 22, TLS_DECODE_ERROR = 50 };

/* Ciphers that the kernel has no number for. They cannot be pushed. */
enum {
	TLS_CIPHER_OURS = 0x100,
	TLS_CIPHER_AES_CCM_256 = TLS_CIPHER_OURS,
	TLS_CIPHER_AES_CCM8_128,
	TLS_CIPHER_AES_CCM8_256
};

/* One of the kernel's structures: tls_crypto_info, iv, key, salt, sequence number, without padding. */
struct tls_cipher {
	const char *name; /* in OpenSSL */
	uint16_t type;
	uint8_t iv_bytes, key_bytes, salt_bytes;
	uint8_t explicit_bytes; /* explicit bytes of the nonce in a record of TLS 1.2 */
	uint8_t tag_bytes;
	bool ccm;
};

union tls_crypto_info_any {
	struct tls_crypto_info info;
	struct tls12_crypto_info_aes_gcm_256 longest; /* as long as ChaCha20-Poly1305's */
	uint8_t bytes[60];
};

/* --- tls_keys_cipher.c -------------------------------------------------------------------------------------------- */

#define TLS_AEAD_KEY_BYTES 32u /* the longest */

/* One direction's key, and the number of its next record. It is in the memory for keys (key_memory.h). */
struct tls_aead {
	const struct tls_cipher *cipher; /* NULL: there is no key */
	EVP_CIPHER_CTX *ctx;             /* made from the key, while it is used; NULL: it rests */
	bool tls13, sealing;
	uint8_t key[TLS_AEAD_KEY_BYTES];
	uint8_t iv[TLS_NONCE_BYTES];    /* salt and iv: XORed with the sequence number */
	uint8_t nonce[TLS_NONCE_BYTES]; /* of the record under way: of record 0 it is iv, which is not to be on a stack */
	uint8_t explicit_nonce[8]; /* TLS 1.2: the part of the nonce, behind the salt, that the next record carries */
	uint64_t sequence;
#ifdef XTS_DEBUG
	uint64_t sealed; /* records up to this number have been sealed with this key: seal() ends the process at a second */
#endif
};

const struct tls_cipher *tls_cipher_find(uint16_t type);
static inline uint32_t tls_cipher_info_bytes(const struct tls_cipher *c)
{
	return (uint32_t)sizeof(struct tls_crypto_info) + c->iv_bytes + c->key_bytes + c->salt_bytes + 8u;
}

/* Since when neither direction of a connection has been used. */
struct tls_idle {
	uint64_t until_ns, used;
};

#define TLS_IDLE_MS 1000u

/* info has to be complete, with a known version and cipher. 0, or -ENOMEM, and a is as it was: the memory for keys is
 * full, or OpenSSL does not have the cipher. Another key needs no more memory. */
int tls_aead_set(struct tls_aead *a, const union tls_crypto_info_any *info, bool sealing);
void tls_aead_clear(struct tls_aead *a);
/* Gives its context back, until the next record. */
void tls_aead_rest(struct tls_aead *a);
/* Has to be called after records, and when the layer is woken: both rest when neither was used for TLS_IDLE_MS. */
void tls_idle_time(struct ulp_layer *l, struct tls_idle *i, struct tls_aead *out, struct tls_aead *in);
/* The bytes of a record that are neither header nor payload: explicit nonce, inner type, tag. */
uint32_t tls_aead_overhead(const struct tls_aead *a);
/* Encrypts bytes (at most TLS_PAYLOAD_MAX) of the pieces, from byte skip on, as one record into out (TLS_HEADER_BYTES +
 * bytes + overhead), which the pieces are not in. Returns the record's length; -EOVERFLOW: no sequence number is left;
 * -EIO. The number is used up in any case. */
ssize_t tls_aead_seal(struct tls_aead *a, uint8_t type, const struct iovec *iov, int pieces, size_t skip,
		      uint32_t bytes, uint8_t *out);
/* Decrypts a whole record with body bytes after its header, at least the overhead. out gets the payload (room for body
 * - overhead + inner type) and may lie inside the record (tls_aead_payload()). Returns the payload's length, and *type;
 * -EBADMSG; -ENOMSG: it is right, and has no type. The sequence number stays: tls_aead_next() increments it. */
ssize_t tls_aead_open(struct tls_aead *a, uint8_t *record, uint32_t body, uint8_t *out, uint8_t *type);
static inline uint8_t *tls_aead_payload(const struct tls_aead *a, uint8_t *record)
{
	return record + TLS_HEADER_BYTES + (a->tls13 ? 0 : a->cipher->explicit_bytes);
}
void tls_aead_next(struct tls_aead *a);

/* --- tls_record_in.c ---------------------------------------------------------------------------------------------- */

/* What is known of received records, written down as it changes for the process that goes on when this one has died
 * (tls/tls_kept.h). It is of one moment, at which everything that it names is whole, unless it is torn: between two
 * such moments only bytes are read behind those that are here. */
struct tls_in_kept {
	uint64_t sequence;  /* of the next record */
	uint64_t delivered; /* bytes of payload, since this was begun */
	uint64_t read;      /* bytes of the stream, as far as those that are here */
	uint64_t at;        /* where these begin, as an offset (lasting.h); 0: not there */
	uint32_t bytes, room;
	uint32_t payload_bytes, taken;
	uint8_t opened, type, ended;
	uint8_t spare[5];
	uint32_t sum; /* of all that is above */
	uint8_t torn; /* something is being changed */
};
static inline uint32_t tls_in_sum(const struct tls_in_kept *k)
{
	return memory_sum(k, offsetof(struct tls_in_kept, sum));
}

#define TLS_IN_BYTES (4 * TLS_RECORD_MAX) /* read with one call, where the thread's buffer is free */

struct tls_record_in {
	struct tls_aead aead;
	uint32_t payload_max; /* the longest payload that the peer may send */
	bool one_fault;       /* a record of a wrong length is XTS_FAULT_RECORD, too, as with OpenSSL */
	bool exact;           /* no byte beyond the record may be read: somebody else may read on there */
	uint8_t *data; /* in the thread's buffer while a read is under way, else in kept; NULL: nothing is here */
	uint32_t first, bytes; /* in data; the next record is at first */
	struct ulp_out kept;   /* what is left between two reads, and not first in it: first says that */
	bool borrowed;         /* data is the thread's buffer */
	bool opened;           /* the record at first has been decrypted in place: */
	uint8_t type;
	uint32_t payload_bytes, taken;
	uint8_t alert;                 /* when a record was refused: what the peer may be told */
	uint64_t delivered, read;      /* bytes of payload, and of the stream: */
	struct tls_in_kept *kept_down; /* NULL: nothing is written down */
	bool changes;                  /* what was read changes more than what is here: it is torn until that is done */
	bool ended;                    /* nothing comes behind what is here: the peer has said so in a record */
};

void tls_in_free(struct tls_record_in *in);
/* Before the first read: the beginning of the stream, which somebody else has read; the memory is in's from now on. */
void tls_in_begin(struct tls_record_in *in, struct ulp_out *ahead);
/* Is a record here that can be delivered, in part or whole? */
bool tls_in_pending(const struct tls_record_in *in);
/* Reads until the next record is here whole: 0, and *record with its header. As ulp_read_stream_below(), and a record
 * that nobody may send is a fault. */
int tls_in_whole(struct ulp_layer *l, struct tls_record_in *in, const uint8_t **record, uint32_t *bytes);
/* Opens the next record, while none is open. Where it is application data and out has room for it, it may be delivered
 * at once: returns its bytes. 0: it is open now (in->opened), and waits for tls_in_take() or tls_in_drop(). Else as
 * tls_in_whole(). Nothing of a record is delivered before its tag has been verified. */
ssize_t tls_in_next(struct ulp_layer *l, struct tls_record_in *in, void *out, size_t room);
/* The payload of the record that is open. */
const uint8_t *tls_in_payload(const struct tls_record_in *in);
/* Copies from its payload; the record is gone with its last byte. Returns how many. */
size_t tls_in_take(struct tls_record_in *in, void *out, size_t room);
void tls_in_drop(struct tls_record_in *in);
/* Writes down what is here, after `read` bytes of the stream, or after as many more as have been read. */
void tls_in_keep(struct tls_record_in *in, struct tls_in_kept *k, uint64_t read);
void tls_in_note(struct tls_record_in *in);
/* Until tls_in_note(), what is here cannot be used by anybody else. */
static inline void tls_in_tears(struct tls_record_in *in)
{
	if (in->kept_down)
		*(volatile uint8_t *)&in->kept_down->torn = 1;
}
/* Has to be called at the end of a read: keeps what is left. 0, or the fault. */
int tls_in_rest(struct ulp_layer *l, struct tls_record_in *in);

#endif
