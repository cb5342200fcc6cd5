/*
 * TLS, terminated here with OpenSSL: what its files share.
 *
 * tls.c             the layer: handshake, read, close (ulp.h)
 * tls_send.c        its write: records of what the host sends
 * tls_ssl.c         the SSL object of a connection
 * tls_parameters.c  what was pushed, as a struct
 * tls_library.c     the part of OpenSSL that TLS needs
 * tls_context.c     an SSL_CTX from parameters and configuration
 * tls_contexts.c    the SSL_CTXs that exist, shared by all connections with the same parameters
 * tls_identity_choice.c      a server's choices: identity by name, ALPN, OCSP
 * tls_identity_check.c       whether an identity can be used at all
 * tls_session.c     session resumption: a cache for clients
 * tls_ticket_keys.c the same of servers: keys of tickets
 * tls_session_ids.c sessions of a server, for clients that have no tickets
 * tls_resumption.c  all of that for another process
 * tls_bio.c         the BIO between OpenSSL and the layer below
 * tls_kernel.c      who does the crypto
 * tls_device.c      whether a network card does it
 * tls_rekey.c       new keys when the kernel does it
 * tls_leave.c       how a connection leaves OpenSSL; tls_ours.h has what carries it then
 * tls_secret.c      keys outside OpenSSL
 * tls_kdf.c         the key derivation of TLS 1.3
 * tls_move.c        a connection as a record, for another process of the proxy
 * tls_about.c       what is known of a connection, when OpenSSL is gone
 * tls_handshake.c handshakes on other threads
 * tls_flood.c       a peer that sends records without data
 * tls_slice.c       how many records OpenSSL is shown at once
 * tls_fault.c       turns OpenSSL's errors into faults
 * tls_info.c        what ULP_INFO reports
 * tls_config.c      identities, trust roots, settings
 * tls_memory.c      wipes OpenSSL's memory when it is freed
 */
#ifndef XTS_TLS_H
#define XTS_TLS_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tls_config.h"
#include "ulp/tls_keys/tls_record.h"
#include "ulp/ulp.h"

#define TLS_NAME_BYTES 64  /* a name in the configuration */
#define TLS_HOST_BYTES 254 /* RFC 1035: 253 */
#define TLS_ALPN_BYTES 256
#define TLS_LIST_BYTES 512 /* a list of ciphers */
#define TLS_IDENTITIES_MAX 8
#define TLS_RECORD_BYTES 16384u          /* RFC 8446 5.1 */
#define TLS_CONTENT_APPLICATION_DATA 23u /* RFC 8446 5.1, ContentType */
#define TLS_KEY_BYTES 32                 /* SHA-256 over everything that must be the same */
#define TLS_CONTEXTS_MAX 128u
#define TLS_SECURITY_LEVEL 2 /* OpenSSL's: 112 bits, so RSA of 2048 and SHA-256 */

/* --- configuration: tls_config.c ---------------------------------------------------------------------------------- */

struct tls_access {
	struct xts_tls_queues *queues;
	uint32_t count;
};

struct tls_identity {
	struct tls_identity *next;
	char name[TLS_NAME_BYTES];
	struct tls_access access;
	X509 *certificate;
	STACK_OF(X509) * chain;
	EVP_PKEY *key;
	uint32_t key_number;           /* the key's number in the key process; 0: the key is here */
	uint8_t digest[TLS_KEY_BYTES]; /* of the certificate's file */
	uint8_t *ocsp;
	uint32_t ocsp_bytes;
};

struct tls_trust {
	struct tls_trust *next;
	char name[TLS_NAME_BYTES];
	struct tls_access access;
	X509_STORE *store;
	uint8_t digest[TLS_KEY_BYTES]; /* of its files */
	STACK_OF(X509_NAME) * names;   /* sent to clients when a certificate is requested; NULL: too many to send */
};

struct tls_ticket_key {
	uint8_t name[16], cipher[32], mac[32];
	uint64_t made_s; /* 0: not in use */
	bool bare;       /* it opens no ticket that stands for a certificate of the client's */
};

struct tls_session;
struct tls_ids;
struct forgotten;

#define TLS_CHAINS 64u
#define TLS_MESSAGE_STEPS 128u /* a message after the handshake: new keys take 25 us */

/* Certificates of a peer in DER, one after the other, its own first; shared by connections of one configuration. */
struct tls_chain {
	struct tls_chain *next;
	uint32_t references;
	uint8_t hash[TLS_KEY_BYTES];
	uint32_t own_bytes, bytes;
	uint8_t der[];
};

/* Directions for which some interface of this machine has TLS offload switched on (ethtool: tls-hw-tx-offload,
 * tls-hw-rx-offload). */
struct tls_device {
	bool send, receive;
};

/* What sessions are resumed from. Configurations that come after each other share it: tls_resumable.c. */
struct tls_resumable {
	atomic_uint references;
	pthread_mutex_t lock;         /* protects what follows */
	struct tls_session *sessions; /* of clients, newest first */
	uint32_t session_count;
	pthread_mutex_t ticket_lock;        /* of threads of the pool only; protects what follows */
	struct tls_ticket_key *ticket_keys; /* tls_ticket_keys.c; NULL: none yet */
	struct tls_ids *ids;                /* of a server's sessions; NULL: none yet */
	/* --- without a lock */
	_Atomic(struct forgotten *) forgotten_ids;   /* of sessions that are not to be resumed */
	_Atomic(struct tls_session *) come_sessions; /* that threads of the pool have made of tickets */
};

/* NULL: no memory. */
struct tls_resumable *tls_resumable_new(void);
/* A reference less; the last one frees it. */
void tls_resumable_put(struct tls_resumable *r);

struct xts_tls_config {
	struct xts_tls_settings settings; /* owns its strings */
	struct tls_identity *identities;
	struct tls_trust *trusts;
	int kernel_error;             /* 0: the kernel has TLS; else -errno */
	struct tls_device device;     /* as it was when this machine was probed */
	bool kernel_changes_keys;     /* for TLS 1.3: Linux since 6.14 */
	pthread_mutex_t lock;         /* protects what follows */
	struct tls_context *contexts; /* most recently used first */
	uint32_t context_count;
	struct tls_chain *chains[TLS_CHAINS]; /* by their hashes */
	struct tls_resumable *resumable;
};

struct xts_tls_config *tls_config_new(void);
void tls_config_free(struct xts_tls_config *config);
/* NULL: no identity of this name for this queue. */
struct tls_identity *tls_config_identity(const struct xts_tls_config *config, const char *name, uint32_t tenant,
					 uint32_t queue_id);
struct tls_trust *tls_config_trust(const struct xts_tls_config *config, const char *name, uint32_t tenant,
				   uint32_t queue_id);

/* --- tls_identity_check.c ----------------------------------------------------------------------------------------- */

/* Can handshakes be made with it? 0, or -EINVAL or -ENOMEM with the reason. */
int tls_identity_check(const struct tls_identity *identity, char *why, uint32_t room);

/* --- parameters: tls_parameters.c --------------------------------------------------------------------------------- */

enum { TLS_BY_CONNECT, TLS_CLIENT, TLS_SERVER };
enum { TLS_VERIFY_NOT, TLS_VERIFY_IF_ANY, TLS_VERIFY_REQUIRED, TLS_VERIFY_DEFAULT };

/* Zero where nothing was given. It has no pointers, so that it can be compared and hashed as bytes. */
struct tls_parameters {
	uint8_t role, verify, crypto, identity_count;
	bool verify_host, no_resumption;
	uint16_t min_version, max_version, alpn_bytes;
	char trust[TLS_NAME_BYTES];
	char identity[TLS_IDENTITIES_MAX][TLS_NAME_BYTES];
	uint8_t alpn[TLS_ALPN_BYTES]; /* as in RFC 7301: each name with its length before it */
	char ciphers[TLS_LIST_BYTES], ciphersuites[TLS_LIST_BYTES];
	char server_name[TLS_HOST_BYTES];
};

/* 0 or ulp_refuse(). */
int tls_parameters_read(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes, struct tls_parameters *out);
/* The role is known: fills in defaults that depend on it, and checks the rest. 0 or ulp_refuse(). */
int tls_parameters_settle(struct ulp_layer *l, struct tls_parameters *p, bool client);

/* --- tls_library.c ------------------------------------------------------------------------------------------------ */

/* The library context of SSL_CTXs and of the certificates that they are given; NULL: OpenSSL's default one. On any
 * thread. */
OSSL_LIB_CTX *tls_library(void);

/* --- contexts: tls_context.c, tls_contexts.c ---------------------------------------------------------------------- */

#define TLS_WHY_BYTES 160
#define TLS_CONTEXT_BYTES 16384u /* measured: 15 KB */

/* How many connections of one payer use a context. */
struct tls_context_payer {
	struct tls_context_payer *next;
	struct ulp_payer payer;
	uint32_t connections;
};

struct tls_context {
	struct tls_context *next; /* on config->contexts */
	uint32_t references;      /* protected by the lock; the list holds one */
	uint8_t key[TLS_KEY_BYTES];
	uint8_t bound[TLS_KEY_BYTES]; /* what its sessions are bound to: tls_resumable.c */
	SSL_CTX *ssl;                 /* NULL: refused, for this reason: */
	int error;
	char why[TLS_WHY_BYTES];
	struct xts_tls_config *config;
	struct tls_context_payer *payers; /* protected by the lock */
	uint32_t tenant;                  /* that first asked for it */
	const struct tls_identity *identity[TLS_IDENTITIES_MAX];
	uint32_t identity_count;
};

/* Whose configured names apply. */
struct tls_asker {
	struct xts_tls_config *config;
	uint32_t tenant, queue_id;
};

struct tls_asker tls_asker(const struct ulp_layer *l);
/* Looks for the context of settled parameters, and takes a reference. NULL: there is none. */
struct tls_context *tls_context_find(struct xts_tls_config *config, const struct tls_parameters *p);
/* Makes a context, which takes long; on any thread. NULL: no memory. */
struct tls_context *tls_context_make(const struct tls_asker *asker, const struct tls_parameters *p);
/* Fills in the SSL_CTX, or the reason why there is none. */
void tls_context_build(struct tls_context *context, const struct tls_asker *asker, const struct tls_parameters *p);
/* 0; or ulp_refuse() if the context was refused or there was no memory for it, and *context is NULL then. */
int tls_context_check(const struct ulp_layer *l, struct tls_context **context);
/* 0, with the context in *out, or NULL if a thread of the pool has to make it; or ulp_refuse(). */
int tls_context_get(const struct ulp_layer *l, const struct tls_parameters *p, struct tls_context **out);
void tls_context_put(struct tls_context *context);
/* One more connection of this payer uses the context; the payer is charged for the first. 0, with *out for
 * tls_context_leave(); -ENOBUFS or -ENOMEM. */
int tls_context_join(struct tls_context *context, struct ulp_payer payer, struct tls_context_payer **out);
/* One connection less; the last one of a payer ends the charge. */
void tls_context_leave(struct tls_context *context, struct tls_context_payer *joined);
void tls_contexts_free(struct xts_tls_config *config);
/* Implements prepare() of a protocol (ulp.h). */
struct ulp_preparation *tls_contexts_prepare(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes);
/* Can these lists of ciphers be used? 0, or -EINVAL with a reason. */
int tls_check_ciphers(const struct xts_tls_settings *settings, char *why, uint32_t why_room);

/* --- a server's choices: tls_identity_choice.c ----------------------------------------------------------------------------- */

void tls_choice_install(struct tls_context *context);

/* --- connections -------------------------------------------------------------------------------------------------- */

/* The position in the current record of the bytes that OpenSSL has been shown. */
struct tls_position {
	uint8_t header[5];
	uint8_t header_bytes; /* bytes of the header that OpenSSL has been shown */
	bool in_body;
	uint16_t body_left;
};

/* That, and the bytes that were read beyond it. Of these a thread of the pool changes only which are left: the worker
 * may end the charge for their memory meanwhile. tls_slice.c */
struct tls_slice {
	struct ulp_out ahead;
	struct tls_position position;
};

/* A traffic secret of TLS 1.3; bytes 0: there is none, or it has been forgotten. */
struct tls_secret {
	uint8_t bytes, data[48]; /* at most SHA-384 */
};

/* Of both directions, in the memory for keys (tls_keys/key_memory.h). */
struct tls_secrets {
	struct tls_secret send, receive;
};

/* The records of a handshake, each direction counted since its keys last changed; and the last one that was sent, with
 * the nonce that it carries. tls_leave.c */
struct tls_watch {
	uint32_t sent, received;
	uint16_t left; /* bytes of the last record that have not been sent yet */
	uint8_t seen;  /* bytes of last */
	uint8_t last[TLS_HEADER_BYTES + 8];
};

/* Who has the records of a connection, and why. */
enum tls_carrier {
	TLS_OURS,
	TLS_KEPT_CONFIGURED,
	TLS_KEPT_CIPHER,
	TLS_KEPT_KERNEL,
	TLS_KEPT_MEMORY,
	TLS_KEPT_UNKNOWN,
	TLS_CARRIERS
};

/* What is known of a connection whose handshake is done: tls_about.c. */
struct tls_about {
	uint16_t version, cipher_id, name_bytes, alpn_bytes;
	const char *cipher;
	bool resumed, verified;
	struct tls_chain *chain; /* NULL: the peer has no certificate */
	/* the server's name that the client asked for, the protocol agreed on, the name of the cipher with its NUL */
	uint8_t text[];
};

struct tls_ours;

struct tls {
	struct ulp_layer *layer;
	struct tls_parameters *parameters; /* until started */
	struct tls_context *context;
	SSL *ssl;                /* NULL: not yet, or the connection has left OpenSSL: */
	struct tls_ours *ours;   /* the records; NULL: OpenSSL has them */
	struct tls_about *about; /* from the end of the handshake on */
	enum tls_carrier carrier;
	struct tls_watch watch;
	struct tls_secrets *secrets; /* until it is settled who needs them; NULL: none */
	uint8_t *alpn;               /* a server's protocols; NULL: none */
	uint16_t alpn_bytes;
	uint32_t counted;   /* bytes of memory counted so far */
	BIO *socket;        /* for the kernel's TLS; NULL: not wanted or not possible */
	struct ulp_out out; /* records that the layer below has not taken */
	uint8_t *part;      /* plain text of a PDU that comes in parts: what is not in a record yet */
	uint32_t part_bytes;
	uint32_t record_max;         /* the longest plain text of a record that the peer takes */
	uint32_t write_max;          /* so much in such records fits into the buffer of tls_bio.c */
	uint32_t record_bytes;       /* of the record that is being read; 0: none */
	int failed;                  /* -errno of a fault, or 0 */
	int below_error;             /* -errno of the layer below */
	uint32_t records;            /* records sent with these keys */
	uint32_t burst_bytes;        /* sent since the last pause, as far as it matters (tls_seal.c) */
	uint64_t sent_ns;            /* when data was last sent */
	uint8_t crypto;              /* wanted */
	uint8_t send_by, receive_by; /* enum xts_tls_crypto */
	const char *crypto_reason;
	struct tls_context_payer *joined; /* the payer charged for the context; NULL: none yet */
	bool client, done;
	bool prepared;    /* what an SSL is made with has been settled: tls_prepare() */
	bool asks_kernel; /* it is to give its keys to the kernel: t->socket */
	bool in_pdu;      /* more of the PDU has to be written */
	bool in_stream;   /* what is being written is no PDU, and may be cut anywhere */
	bool send_waits;  /* OpenSSL takes no data before it has read the rest of a message */
	bool starved;     /* OpenSSL needs more from below for the next byte */
	bool dry;         /* the layer below had nothing when it was last read */
	bool away;        /* the handshake is on a thread of the pool, in this job: */
	struct tls_handshake_job *handshake_job;
	bool refused;                           /* the BIO has made OpenSSL wait since OpenSSL was last called */
	bool flooded;                           /* too many of these came in a row: */
	uint16_t quiet_records, quiet_messages; /* read since the last data, or since the handshake began or ended */
	uint32_t shaking_bytes;                 /* of the handshake's records, with their heads */
	struct tls_slice slice;
	bool ended;          /* close_notify came behind data: the next read reports it */
	bool cut;            /* FIN came without it; OpenSSL is not told, because it would send no more */
	bool notified;       /* our close_notify was sent */
	bool keys_lost;      /* new keys are due, but the kernel has the old ones */
	bool update_due;     /* the kernel sends, and a KeyUpdate has to be written */
	bool update_written; /* OpenSSL has written it; SSL_in_init() says whether it has left */
	bool watches_keys;   /* the keys are in the kernel, and may change */
	bool keeps_session;
	SSL_SESSION *session;               /* that the handshake will offer; then one that it has made */
	uint8_t session_key[TLS_KEY_BYTES]; /* of a client's session (tls_session.c); a server's: its ID */
};

/* --- tls_ssl.c ---------------------------------------------------------------------------------------------------- */

/* An SSL, and the BIOs and sessions that it has, are made, used and freed by threads of the pool, where there is one:
 * OpenSSL takes locks of the whole process for that, and such a thread may get no CPU while it has one. Workers use an
 * SSL only where OpenSSL carries the connection. */

/* Makes t->ssl by t->context and t->parameters, which it frees. fd: the socket, if t->asks_kernel. On any thread. 0 or
 * -ENOMEM. */
int tls_make_ssl(struct tls *t, int fd);
/* Frees the SSL, in this thread. If the handshake is done: without telling anybody that the connection ends. */
void tls_free_ssl(struct tls *t);
/* The worker needs it no more: a thread of the pool frees it. */
void tls_give_ssl(struct tls *t);

/* --- tls_send.c --------------------------------------------------------------------------------------------------- */

/* The handshake is done: how long records may be. */
void tls_send_settle(struct tls *t);
/* The longest plain text of a record is known. */
void tls_send_lengths(struct tls *t, uint32_t record_max);
/* ulp_protocol.write */
ssize_t tls_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);

/* --- tls_bio.c: gathers what OpenSSL writes, per thread, for one write ---------------------------- */

#define TLS_RECORD_EXTRA 256u                                        /* of ciphertext: RFC 8446 5.2 */
#define TLS_GATHER_BYTES (4 * (TLS_RECORD_BYTES + TLS_RECORD_EXTRA)) /* four records of the usual length */
#define TLS_OUT_MAX (512u << 10) /* a handshake, or answers that the peer does not read */

/* From now on reads and writes of t->ssl go through the BIO. 0 or -ENOMEM. */
int tls_bio_attach(struct tls *t);
/* Writes what was gathered and what still waits. 0: nothing waits; -EAGAIN; else -errno. */
int tls_bio_flush(struct tls *t);

/* For records that are made here: room for one of this many bytes, behind what was gathered or what waits; NULL: there
 * is no memory, and t->below_error is set. tls_bio_add(): the record has this many bytes. */
uint8_t *tls_bio_room(struct tls *t, uint32_t bytes);
void tls_bio_add(struct tls *t, const uint8_t *record, uint32_t bytes);
/* Sends these bytes behind what waits. Returns as tls_bio_flush(). */
int tls_bio_send(struct tls *t, const void *data, uint32_t bytes);

/* --- tls_slice.c -------------------------------------------------------------------------------------------------- */

/* Fewer while they bring no data. */
#define TLS_SLICE_RECORDS 4u
#define TLS_RECORD_STEPS 8u /* cost in steps of a turn to decrypt and deliver a record */

/* As ulp_read_stream_below(), but the bytes end with the last of this many whole records, or
 * are the beginning of one. */
ssize_t tls_slice_read(struct tls *t, void *out, size_t room);

/* --- tls_flood.c -------------------------------------------------------------------------------------------------- */

void tls_flood_watch(struct tls *t);
/* Called when data has come or the handshake is done. */
static inline void tls_flood_calm(struct tls *t)
{
	t->quiet_records = t->quiet_messages = 0;
}
/* t->flooded is set: makes OpenSSL write an alert, where it is used. */
void tls_flood_alert(struct tls *t);
/* Then, on the worker: ends the connection. Returns the -errno of the fault. */
int tls_flood_fail(struct tls *t);

/* --- tls_session.c ------------------------------------------------------------------------------------------------ */

void tls_session_install(SSL_CTX *ssl, bool client);
/* Before a client's handshake, on the worker: takes a stored session, if there is one. */
void tls_session_prepare(struct tls *t, const struct tls_parameters *p);
/* Offers it. On any thread. */
void tls_session_offer(struct tls *t);
/* Where sessions of tickets belong that a thread of the pool reads when their connection may be gone. */
struct tls_session_place {
	struct xts_tls_config *config;
	uint8_t key[TLS_KEY_BYTES];
};

/* On a thread of the pool: what OpenSSL makes of tickets from now on is of this place. NULL: of none. */
void tls_session_reads(const struct tls_session_place *place);
/* The handshake is done, on the worker: stores the session that it has made. */
void tls_session_store(struct tls *t);
/* The connection has failed: its session is not offered again (RFC 5246 7.2.2). */
void tls_session_forget(struct tls *t);
void tls_sessions_free(struct tls_resumable *r);

/* --- tls_ticket_keys.c -------------------------------------------------------------------------------------------- */

/* A server gives out tickets. */
void tls_ticket_keys_install(SSL_CTX *ssl);
void tls_ticket_keys_free(struct tls_resumable *r);

/* --- tls_resumable.c ---------------------------------------------------------------------------------------------- */

/* Fills in what sessions of this context, which has these parameters, are bound to. False: no memory. */
bool tls_resumable_bind(struct tls_context *context, const struct tls_asker *asker, const struct tls_parameters *p);

/* --- tls_session_ids.c -------------------------------------------------------------------------------------------- */

/* A server of these parameters keeps sessions of TLS 1.2 by their IDs. */
void tls_ids_install(SSL_CTX *ssl);
/* This session is not to be resumed. On a worker. */
void tls_ids_forget(struct tls_resumable *r, const uint8_t *id);
void tls_ids_free(struct tls_resumable *r);

enum tls_fallback {
	TLS_NO_KERNEL,
	TLS_CONFIGURED,
	TLS_STACK,
	TLS_REFUSED,
	TLS_NO_DEVICE,
	TLS_KEYS_CHANGE,
	TLS_FALLBACKS
};

/* --- tls_kernel.c ------------------------------------------------------------------------------------------------- */

/* Before the handshake, on the worker: who may do the crypto; sets t->asks_kernel if the kernel may. */
void tls_kernel_prepare(struct tls *t);
/* After the handshake: who does the crypto. */
void tls_kernel_settle(struct tls *t);
/* As BIO_ctrl(), for the kernel's TLS; notes whether the network card took the keys. */
long tls_kernel_control(struct tls *t, int command, long number, void *argument);
/* Also used by TLS_KEYS. tls_crypto_wanted(): who should do the crypto, from what was asked for and what is configured.
 * tls_kernel_give(): hands the keys to the kernel's TLS of this socket, and *by says who has them now (0 or -errno).
 * tls_fall_back(): counts and returns the reason why it is not the best. */
uint8_t tls_crypto_wanted(uint8_t asked, uint8_t configured);
int tls_kernel_give(const struct xts_tls_config *config, int fd, bool send, const void *info, uint32_t bytes,
		    uint8_t *by);
const char *tls_fall_back(enum tls_fallback why);
/* The reason of these bytes; NULL: it is none. */
const char *tls_fallback_named(const uint8_t *text, uint32_t bytes);
/* The same, if this is one: else NULL. */
const char *tls_fallback_is(const char *reason);

/* --- tls_device.c ------------------------------------------------------------------------------------------------- */

/* What the interfaces of this network namespace can do. */
struct tls_device tls_device(void);

/* --- tls_rekey.c -------------------------------------------------------------------------------------------------- */

/* The handshake is done, and it is settled who does the crypto. */
void tls_rekey_settled(struct tls *t);
/* A handshake message has been read, or will be written. */
void tls_rekey_message(struct tls *t, bool write, const uint8_t *message, size_t bytes);
/* The kernel has sent this many bytes. */
void tls_rekey_count(struct tls *t, size_t bytes);
/* Writes a KeyUpdate that is due. 0: none is due any more; -EAGAIN; -errno of the fault: the keys cannot be changed. */
int tls_rekey_settle(struct tls *t);

/* --- tls_secret.c ------------------------------------------------------------------------------------------------- */

/* From now on connections learn their traffic secrets, if anybody may need them. */
void tls_secret_install(const struct xts_tls_config *config, SSL_CTX *ssl);
/* As SSL_do_handshake(), with OpenSSL's errors cleared before: so that t gets its secrets. */
int tls_shake_hands(struct tls *t);
void tls_secret_forget(struct tls_secret *s);
/* Forgets those of a connection, and frees their memory. */
void tls_secrets_forget(struct tls *t);
/* The next secret, after a KeyUpdate. False: there is none, and s stays as it was. */
bool tls_secret_next(struct tls_secret *s, const EVP_MD *digest);
/* Its keys, from record 0 on. The caller wipes info. */
bool tls_secret_keys(const struct tls_secret *s, const EVP_MD *digest, const struct tls_cipher *c,
		     union tls_crypto_info_any *info);
/* The keys of TLS 1.2 with which the client or the server sends. The number is 0. */
bool tls_secret_keys_12(const SSL *ssl, bool of_client, const struct tls_cipher *c, union tls_crypto_info_any *info);
/* The kernel's struct of a key of TLS 1.2, from its parts: salt and IV as one, and the nonce that the first record
 * carries; number 0. And any number. */
void tls_secret_put(union tls_crypto_info_any *info, const struct tls_cipher *c, const uint8_t *key, const uint8_t *iv,
		    const uint8_t *nonce);
void tls_secret_put_number(union tls_crypto_info_any *info, const struct tls_cipher *c, uint64_t number);
/* The cipher agreed on; NULL: it is not an AEAD that we know. */
const struct tls_cipher *tls_secret_cipher(const SSL *ssl);

/* --- tls_leave.c -------------------------------------------------------------------------------------------------- */

/* During the handshake: the header of a record that was sent or read; bytes that go to the wire. */
void tls_leave_header(struct tls *t, bool write, const uint8_t *header);
void tls_leave_wire(struct tls *t, const uint8_t *data, size_t bytes);
/* The handshake is done, on any thread: gives the records to our record layer, in t->ours, if it can carry them. */
enum tls_carrier tls_leave(struct tls *t);
/* Implements carrier() of a protocol (ulp.h). tls_carrier_name(): who has keys for which this of enum xts_tls_crypto
 * holds, where what is done here is ours. */
void tls_carrier(const struct ulp_layer *l, bool receive, char *out, size_t room);
const char *tls_carrier_name(uint8_t by);
/* Why OpenSSL or the kernel has its records; NULL: we have. */
const char *tls_kept_because(const struct tls *t);

/* --- tls_move.c: implements stays(), save(), wipe() and restore() of a protocol (ulp.h) ----------------------------- */

const char *tls_stays(const struct ulp_layer *l);
ssize_t tls_save(const struct ulp_layer *l, void *out, size_t room);
void tls_wipe(struct ulp_layer *l);
int tls_restore(struct ulp_layer *l, const void *state, size_t bytes);

/* --- tls_about.c -------------------------------------------------------------------------------------------------- */

/* Copies it into t->about, on any thread. 0 or -ENOMEM. */
int tls_about_take(struct tls *t);
void tls_about_free(struct tls *t);
/* On a worker, once: shares the certificates with other connections. */
void tls_about_share(struct tls *t);
/* The configuration that it is under, also of a connection that has come from another process, without a context. */
struct xts_tls_config *tls_config_of(const struct tls *t);
/* Its memory, with the certificates, which may be shared. */
uint32_t tls_about_bytes(const struct tls *t);

/* --- tls_fault.c -------------------------------------------------------------------------------------------------- */

/* How an SSL function ended. It has to be filled in by the thread that called the function. */
struct tls_outcome {
	int result, kind; /* as it returned, and SSL_get_error() */
	unsigned long error;
	long verified; /* SSL_get_verify_result() */
};
struct tls_outcome tls_outcome(struct tls *t, int result);
/* Returns -EAGAIN, -ENODATA, or the fault, which is then in t->failed. */
int tls_fault_of(struct tls *t, const struct tls_outcome *o);
/* The peer has sent this alert, which ends the connection. Returns t->failed. */
int tls_fault_alert(struct tls *t, unsigned alert);
/* Fills in an outcome and returns tls_fault_of() of it. */
int tls_fault(struct tls *t, int result);

/* --- tls_handshake.c ---------------------------------------------------------------------------------------------- */

/* Continues the handshake: 1 when it is done; -EAGAIN; else the fault. */
int tls_handshake_step(struct tls *t);
void tls_handshake_move(struct ulp_layer *l);
/* The handshake is done: frees what only it needs. */
void tls_handshake_forget(struct tls *t);
/* The connection ends. False: a thread of the pool frees t. */
bool tls_handshake_end(struct tls *t);
/* The BIO's functions while the handshake is on another thread. receive(): as recv(), but -errno, and -ENODATA at the
 * end; send(): 0 or -ENOMEM; flush(): 0 or -EAGAIN. refused(): a write to the socket has got this errno. */
ssize_t tls_handshake_receive(struct tls *t, void *out, size_t room);
int tls_handshake_put(struct tls *t, const void *data, uint32_t bytes);
int tls_handshake_flush(struct tls *t);
void tls_handshake_refused(struct tls *t, int error);
/* The handshake is done, on any thread, with OpenSSL still here: who carries the connection, and what is known of it. 0
 * or -ENOMEM. tls.c */
int tls_settle(struct tls *t);
/* Counts the memory that the connection has now. tls.c */
void tls_recount(struct tls *t);
/* Frees everything, on any thread. tls.c */
void tls_free(struct tls *t);
/* The context is there. On the worker: settles what an SSL is made with. 0, or the fault. tls.c */
int tls_prepare(struct tls *t);

/* --- tls_info.c --------------------------------------------------------------------------------------------------- */

ssize_t tls_info(const struct ulp_layer *l, bool receive, uint16_t item, uint32_t offset, void *out, size_t room,
		 uint32_t *total);

/* --- counters: tls_kernel.c --------------------------------------------------------------------------------------- */

struct tls_counters {
	atomic_ullong client_handshakes, server_handshakes, resumed;
	atomic_ullong sent_by[4], received_by[4]; /* by enum xts_tls_crypto */
	atomic_ullong fallback[TLS_FALLBACKS];
	atomic_ullong key_updates;
	atomic_ullong carried[TLS_CARRIERS];
	atomic_ullong tickets_late; /* that came when nobody could read them any more */
};
extern struct tls_counters tls_counters;

static inline void tls_count(atomic_ullong *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

#endif
