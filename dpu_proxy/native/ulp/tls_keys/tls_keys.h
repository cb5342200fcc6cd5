/* What the files of TLS_KEYS share: the keys of one direction, and who does the crypto. */
#ifndef XTS_ULP_TLS_KEYS_H
#define XTS_ULP_TLS_KEYS_H

#include "tls_record.h"
#include "ulp/tls/tls_config.h"

/* A layer's state. */
struct tls_keys {
	struct tls_record_in in; /* receive: with the key */
	struct tls_aead out_key; /* send */
	struct tls_idle idle;
	uint16_t version;
	uint8_t wanted, crypto; /* enum xts_tls_crypto; what is in force is never BEST */
	bool try_kernel;        /* the kernel may have the key, as soon as it can take it */
	bool expired;           /* the peer has sent KeyUpdate: nothing is read until the host pushes new keys */
	const char *reason;     /* why it is not the best kind; NULL: it is the best */
	union tls_crypto_info_any info; /* as pushed, while the kernel may still get it; then wiped */
	/* receive */
	uint32_t quiet; /* records without payload in a row */
	bool within;    /* kernel: a control record has been read in part */
	/* send */
	struct ulp_out out;
};

/* tls_keys.c: counts a record that is not payload, or is empty. 0, or the fault: too many in a row. */
int keys_quiet(struct ulp_layer *l);

/* tls_keys_user.c */
ssize_t keys_user_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
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
