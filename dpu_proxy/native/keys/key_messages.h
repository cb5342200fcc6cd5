/*
 * Messages to the process that holds the private keys of TLS. Workers ask for signatures and decryption over their own
 * connections; the supervisor loads and forgets keys over another one. A request is one datagram, and so is its answer.
 * The sockets are SOCK_SEQPACKET pairs made when the process is, and nobody else has an end of them.
 */
#ifndef XTS_KEY_MESSAGES_H
#define XTS_KEY_MESSAGES_H

#include <stdint.h>

#define KEY_DATA_MAX (64u << 10) /* Ed25519 signs a whole handshake; digests have 64 bytes at most */
#define KEY_ANSWER_MAX 2048u     /* RSA of 16384 bits */
#define KEYS_MAX 4096u           /* in the process at a time */

enum key_operation {
	KEY_SIGN_PKCS1 = 1, /* a digest */
	KEY_SIGN_PSS,       /* a digest, with a salt of the same length */
	KEY_SIGN_ECDSA,     /* a digest */
	KEY_SIGN_WHOLE,     /* a message: Ed25519, Ed448 */
	/* a premaster secret of TLS 1.2 without forward secrecy; the answer is 48 bytes even if it is invalid */
	KEY_DECRYPT_TLS,
	/* without an answer: the data is numbers of keys, each a uint32_t */
	KEY_FORGET,
};

struct key_request {
	uint32_t sequence;                     /* number of the request, which its answer repeats */
	uint32_t operation;                    /* enum key_operation */
	uint32_t number;                       /* number of the key */
	char digest[16];                       /* OpenSSL's name of the digest, NUL-terminated; only for digests */
	uint32_t version, alternative_version; /* TLS versions, for KEY_DECRYPT_TLS; 0: no alternative */
}; /* the data follows, to the end of the datagram */

struct key_answer {
	uint32_t sequence; /* of the request */
	int32_t error;     /* -errno; 0: a signature or secret follows */
};

/* An order of the supervisor: to load a key, with the descriptor of its PEM file, or to forget the key of a number. */
struct key_order {
	uint32_t forget; /* 0: load */
	uint32_t number; /* of a key to load, which a process before has had under it; 0: the next one that is free */
};

#define KEY_REASON_BYTES 160u
#define KEY_PUBLIC_MAX 4096u

struct key_loaded {
	int32_t error;
	uint32_t number;
	char reason[KEY_REASON_BYTES]; /* reason of an error, for people, NUL-terminated */
	uint32_t public_bytes;
	uint8_t public_key[KEY_PUBLIC_MAX]; /* SubjectPublicKeyInfo, DER */
};

#endif
