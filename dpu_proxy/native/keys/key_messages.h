/*
 * What is said to the process that holds the private keys of TLS: by workers over connections of their own (signatures
 * and decryption), by the supervisor over another (keys to load and to forget). A datagram asks and one answers;
 * sockets are SOCK_SEQPACKET pairs made at the start, and nobody else has an end of them.
 */
#ifndef XTS_KEY_MESSAGES_H
#define XTS_KEY_MESSAGES_H

#include <stdint.h>

#define KEY_DATA_MAX (64u << 10) /* a handshake to be signed whole, as Ed25519 does; digests have 64 bytes at most */
#define KEY_ANSWER_MAX 2048u     /* RSA of 16384 bits */

enum key_operation {
	KEY_SIGN_PKCS1 = 1, /* a digest */
	KEY_SIGN_PSS,       /* a digest; the salt is as long */
	KEY_SIGN_ECDSA,     /* a digest */
	KEY_SIGN_WHOLE,     /* a message: Ed25519, Ed448 */
	/* a premaster secret of TLS 1.2 without forward secrecy; 48 bytes whatever is wrong with it */
	KEY_DECRYPT_TLS,
	KEY_FORGET,
};

struct key_request {
	uint32_t operation;                    /* enum key_operation */
	uint32_t number;                       /* the key's */
	char digest[16];                       /* OpenSSL's name of it, NUL-terminated; of digests */
	uint32_t version, alternative_version; /* of TLS, for KEY_DECRYPT_TLS; 0: no alternative */
}; /* data follow, to the datagram's end */

struct key_answer {
	int32_t error; /* -errno; 0: a signature or secret follows */
};

/* The supervisor's: with a file of a key in PEM as descriptor to load it, with a number to forget that. */
struct key_order {
	uint32_t forget; /* 0: load */
};

#define KEY_REASON_BYTES 160u
#define KEY_PUBLIC_MAX 4096u

struct key_loaded {
	int32_t error;
	uint32_t number;
	char reason[KEY_REASON_BYTES]; /* of an error, for people, NUL-terminated */
	uint32_t public_bytes;
	uint8_t public_key[KEY_PUBLIC_MAX]; /* SubjectPublicKeyInfo, DER */
};

#endif
