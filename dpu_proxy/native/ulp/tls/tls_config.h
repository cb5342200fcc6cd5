/*
 * TLS in the configuration of ULPs: identities (certificate and key), trust roots, and what is allowed. All of it is
 * parsed when it is added, by the supervisor; workers find things by name. It also owns what connections of one
 * configuration share: SSL_CTXs (tls_context.c), sessions to resume and the keys of tickets (tls_session.c). A reload,
 * which makes a new configuration, therefore forgets sessions: none outlives the trust it was verified with.
 *
 * Functions of the first part return 0 or -errno, and then write a reason for people to why, NUL-terminated.
 */
#ifndef XTS_TLS_CONFIG_H
#define XTS_TLS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct xts_ulp_config;

enum xts_tls_crypto {
	XTS_TLS_CRYPTO_BEST = 0,
	XTS_TLS_CRYPTO_USER = 1,
	XTS_TLS_CRYPTO_KERNEL = 2,
	XTS_TLS_CRYPTO_DEVICE = 3
};

struct xts_tls_settings {
	uint16_t min_version;       /* 0x0303 or 0x0304 */
	uint8_t crypto;             /* enum xts_tls_crypto; BEST: as the application asks */
	bool verify_required;       /* clients may not go without verification of the server */
	uint32_t sessions_max;      /* kept for clients; 0: no resumption, of servers neither */
	uint32_t session_timeout_s; /* of those, and of the tickets that servers give out */
	uint32_t rekey_records;     /* of TLS 1.3, after which the keys are updated */
	const char *ciphers;        /* of TLS 1.2, OpenSSL's list; what is not in it cannot be asked for */
	const char *ciphersuites;   /* of TLS 1.3 */
};

/* Queues that may use something, as ranges; without any: all. Those of one tenant, by its id, or of any
 * (0xffffffff). */
struct xts_tls_queues {
	uint32_t first, last, tenant;
};

/* NULL in settings: the defaults stay. */
int xts_tls_configure(struct xts_ulp_config *config, const struct xts_tls_settings *settings, char *why,
		      uint32_t why_room);
/* The defaults. */
void xts_tls_defaults(struct xts_tls_settings *settings);
/* certificate: PEM, the identity's own first, then the chain. key: PEM, not encrypted. ocsp: a
 * response in DER, or NULL. */
int xts_tls_add_identity(struct xts_ulp_config *config, const char *name, const void *certificate,
			 uint32_t certificate_bytes, const void *key, uint32_t key_bytes, const void *ocsp,
			 uint32_t ocsp_bytes, const struct xts_tls_queues *queues, uint32_t queue_count, char *why,
			 uint32_t why_room);
/* The same with a key that is in another process (keys/keys.h), by its number there and its public part
 * (SubjectPublicKeyInfo, DER). It is forgotten there when the identity is freed, also when this fails. */
int xts_tls_add_identity_by_number(struct xts_ulp_config *config, const char *name, const void *certificate,
				   uint32_t certificate_bytes, uint32_t number, const void *public_key,
				   uint32_t public_bytes, const void *ocsp, uint32_t ocsp_bytes,
				   const struct xts_tls_queues *queues, uint32_t queue_count, char *why,
				   uint32_t why_room);
/* roots, crls: PEM, one after the other; with crls a certificate is checked against them. */
int xts_tls_add_trust(struct xts_ulp_config *config, const char *name, const void *roots, uint32_t roots_bytes,
		      const void *crls, uint32_t crls_bytes, const struct xts_tls_queues *queues, uint32_t queue_count,
		      char *why, uint32_t why_room);
/* Asks the kernel, on connections over loopback, whether it does TLS; loads its modules, those of the ciphers too, so
 * this comes before privileges are dropped and may take seconds where it does. -errno: it does not. */
int xts_tls_probe_kernel(struct xts_ulp_config *config, char *why, uint32_t why_room);
/* May the kernel, or the network card below it, have the keys of this version (0x0303, 0x0304)? wanted: enum
 * xts_tls_crypto, of host and configuration together. changes_keys: whoever hands them over can change them there.
 * Those of TLS 1.3 have to change when the peer wants it (RFC 8446 4.6.3), so where they cannot is not the BEST there
 * is; it is taken if it was asked for by name. */
bool xts_tls_kernel_may(uint8_t wanted, uint16_t version, bool changes_keys);

/* From now on OpenSSL's memory is wiped when it is freed; false: OpenSSL has allocated some already, and nothing has
 * changed. To be called first. */
bool xts_tls_wipe_memory(void);

/* Of all connections of this process. */
struct xts_tls_counts {
	uint64_t client_handshakes, server_handshakes, resumed;
	uint64_t sent_by_user, sent_by_kernel, sent_by_device; /* connections, by who encrypts */
	uint64_t received_by_user, received_by_kernel, received_by_device;
	/* Why it was not the best kind, or that asked for: */
	uint64_t fallback_no_kernel;   /* the kernel has no TLS */
	uint64_t fallback_configured;  /* the configuration says so */
	uint64_t fallback_stack;       /* TLS is not next to TCP */
	uint64_t fallback_refused;     /* the kernel or OpenSSL does not do this cipher, version or direction */
	uint64_t fallback_no_device;   /* the network card does none */
	uint64_t fallback_keys_change; /* keys of TLS 1.3 may have to change */
	uint64_t key_updates;          /* begun here */
};
void xts_tls_counts(struct xts_tls_counts *out);
/* SSL_CTXs that it keeps. */
uint32_t xts_tls_contexts(struct xts_ulp_config *config);

#endif
