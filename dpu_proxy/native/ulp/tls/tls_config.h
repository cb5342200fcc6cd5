/*
 * TLS in the configuration of ULPs: identities (certificate and key), trust roots, and what is allowed. The supervisor
 * adds it, and everything is parsed when it is added; workers look it up by name. It also owns what the connections of
 * one configuration share: SSL_CTXs (tls_context.c), sessions to resume and ticket keys (tls_session.c). A reload makes
 * a new configuration. Sessions go on in it, as far as nothing has changed that they depend on (tls_resumable.c): no
 * session outlives the trust it was verified with.
 *
 * The functions of the first part return 0 or -errno; with an error they write a reason for people, NUL-terminated, to
 * why.
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

/* Who makes the records of a connection: our record layer where it can, or OpenSSL always. */
enum xts_tls_records { XTS_TLS_RECORDS_AUTO, XTS_TLS_RECORDS_OPENSSL };

struct xts_tls_settings {
	uint16_t min_version;       /* 0x0303 or 0x0304 */
	uint8_t crypto;             /* enum xts_tls_crypto; BEST: what the application asks for */
	bool verify_required;       /* clients have to verify the server */
	uint32_t sessions_max;      /* kept for clients, and for servers by ID; 0: no resumption, by tickets neither */
	uint32_t session_timeout_s; /* of these sessions, and of the tickets that servers give out */
	uint8_t records;            /* enum xts_tls_records */
	uint32_t ticket_wait_ms;    /* how long a client reads tickets, if the server sends no data before */
	uint32_t rekey_records;     /* how many records of TLS 1.3 are sent before a key update */
	const char *ciphers;        /* for TLS 1.2, in OpenSSL's syntax; others cannot be asked for */
	const char *ciphersuites;   /* for TLS 1.3 */
};

/* The queues that may use something: ranges (none: all queues) and a tenant's id (0xffffffff: any tenant). */
struct xts_tls_queues {
	uint32_t first, last, tenant;
};

/* NULL strings in settings keep the defaults. */
int xts_tls_configure(struct xts_ulp_config *config, const struct xts_tls_settings *settings, char *why,
		      uint32_t why_room);
/* Fills in the defaults. */
void xts_tls_defaults(struct xts_tls_settings *settings);
/* certificate: PEM, the identity's own first, then the chain. key: PEM, not encrypted. ocsp: a
 * response in DER, or NULL. */
int xts_tls_add_identity(struct xts_ulp_config *config, const char *name, const void *certificate,
			 uint32_t certificate_bytes, const void *key, uint32_t key_bytes, const void *ocsp,
			 uint32_t ocsp_bytes, const struct xts_tls_queues *queues, uint32_t queue_count, char *why,
			 uint32_t why_room);
/* The same with a key that another process holds (keys/keys.h): its number there, and its public part
 * (SubjectPublicKeyInfo, DER). That process forgets the key when the last identity with it is freed, and also when
 * this function fails. */
int xts_tls_add_identity_by_number(struct xts_ulp_config *config, const char *name, const void *certificate,
				   uint32_t certificate_bytes, uint32_t number, const void *public_key,
				   uint32_t public_bytes, const void *ocsp, uint32_t ocsp_bytes,
				   const struct xts_tls_queues *queues, uint32_t queue_count, char *why,
				   uint32_t why_room);
/* roots, crls: PEM, one after the other. If there are crls, certificates are checked against them. */
int xts_tls_add_trust(struct xts_ulp_config *config, const char *name, const void *roots, uint32_t roots_bytes,
		      const void *crls, uint32_t crls_bytes, const struct xts_tls_queues *queues, uint32_t queue_count,
		      char *why, uint32_t why_room);
/* The new configuration, which nobody uses yet, comes after this one: sessions go on to be resumed. Without effect if
 * it keeps another number of sessions, or for another time. */
void xts_tls_come_after(struct xts_ulp_config *config, struct xts_ulp_config *before);
/* In the process that goes on for one that has died: its keys of tickets open those that it has given out, except where
 * the client has to show a certificate. Once, before workers use the configuration. */
void xts_tls_go_on(struct xts_ulp_config *config);
/* What sessions are resumed from, for the process that takes over: writes it into this memory, and returns how many
 * bytes it has, or -errno. Takes it there, and returns how many keys and sessions it was, or -errno. */
int64_t xts_tls_resumption_give(struct xts_ulp_config *config, int private_fd);
int xts_tls_resumption_take(struct xts_ulp_config *config, int private_fd, uint32_t bytes);
/* Finds out, by connections over loopback, whether the kernel does TLS. This loads the kernel's modules, also those of
 * the ciphers, so it has to happen before privileges are dropped, and may take seconds. -errno: the kernel does not do
 * TLS. */
int xts_tls_probe_kernel(struct xts_ulp_config *config, char *why, uint32_t why_room);
/* May the kernel, or the network card below it, have the keys of this version (0x0303, 0x0304)? wanted: enum
 * xts_tls_crypto, from host and configuration together. changes_keys: keys can be changed after they were handed over.
 * Keys of TLS 1.3 have to change when the peer asks for it (RFC 8446 4.6.3), so BEST does not choose a kernel where
 * they cannot; asked for by name, it is used anyway. */
bool xts_tls_kernel_may(uint8_t wanted, uint16_t version, bool changes_keys);

/* From now on OpenSSL's memory is wiped when it is freed. It has to be called first; false: OpenSSL has allocated
 * memory already, and nothing has changed. */
bool xts_tls_wipe_memory(void);

/* The memory for keys of connections (ulp/tls_keys/key_memory.h), from the best kind down. */
enum xts_tls_key_memory {
	XTS_TLS_KEY_MEMORY_NONE,   /* not made yet */
	XTS_TLS_KEY_MEMORY_SECRET, /* memfd_secret(2): out of reach of everybody else */
	XTS_TLS_KEY_MEMORY_LOCKED, /* never swapped */
	XTS_TLS_KEY_MEMORY_PLAIN
};
/* Makes it, of this size, once for the process, before it may make no such calls any more. 0, with an empty why or the
 * reason why the kernel gave no better kind; or -errno. Where nobody asks, the first key makes it. */
int xts_tls_key_memory_open(uint64_t bytes, char *why, uint32_t why_room);

/* Counts of all connections of this process. */
struct xts_tls_counts {
	uint64_t client_handshakes, server_handshakes, resumed;
	uint64_t sent_by_user, sent_by_kernel, sent_by_device; /* connections, by who encrypts */
	uint64_t received_by_user, received_by_kernel, received_by_device;
	/* Why the best kind, or the one asked for, was not used: */
	uint64_t fallback_no_kernel;   /* the kernel has no TLS */
	uint64_t fallback_configured;  /* the configuration does not allow it */
	uint64_t fallback_stack;       /* TLS is not directly above TCP */
	uint64_t fallback_refused;     /* the kernel or OpenSSL does not support this cipher, version or direction */
	uint64_t fallback_no_device;   /* no network card does TLS */
	uint64_t fallback_keys_change; /* keys of TLS 1.3 may have to change */
	uint64_t key_updates;          /* begun by this side */
	uint64_t carried_ours;         /* connections whose records our record layer has */
	/* Connections that stayed with OpenSSL: */
	uint64_t kept_configured; /* the configuration says so */
	uint64_t kept_cipher;     /* their cipher is not an AEAD */
	uint64_t kept_kernel;     /* the kernel has the keys of a direction */
	uint64_t kept_memory;     /* the memory for keys was full */
	uint64_t kept_unknown;    /* their keys or numbers were not known, or there was no memory */
	uint64_t tickets_late;    /* tickets that came when OpenSSL was gone */
	/* Requests to the process with the private keys: */
	uint64_t keys_late;       /* not answered within a second */
	uint64_t keys_late_now;   /* those of them that still wait */
	uint64_t keys_unanswered; /* never answered: the process is gone */
	/* The memory for keys: */
	uint64_t key_memory_kind;                                    /* enum xts_tls_key_memory */
	uint64_t key_memory_limit, key_memory_used, key_memory_most; /* bytes */
	uint64_t key_memory_refused;                                 /* blocks, because it was full */
};
void xts_tls_counts(struct xts_tls_counts *out);
/* How many SSL_CTXs it keeps. */
uint32_t xts_tls_contexts(struct xts_ulp_config *config);

#endif
