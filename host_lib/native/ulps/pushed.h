/* What has been pushed onto a socket: push_ulp.c, connect_pushes.c, ulp_info.c. */
#ifndef XTS_HOST_PUSHED_H
#define XTS_HOST_PUSHED_H

#include <linux/tls.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

struct call;
struct xts_sock;

#define ULP_DEPTH 8u /* the highest stack of protocols */

enum { ULPS_RECEIVE, ULPS_SEND };

/* The protocols pushed onto a socket, and the PDU that is being sent: push_ulp.c. */
struct ulps {
	uint8_t id[2][ULP_DEPTH]; /* indexed by ULPS_RECEIVE and ULPS_SEND; the first is next to TCP */
	uint8_t depth[2];
	bool peeking;          /* peek mode */
	bool handshaking;      /* READY is still to come, or RESET */
	bool sending;          /* a thread waits in the middle of a PDU */
	bool begun;            /* a PDU has begun, and the next send call continues it */
	uint32_t record_bytes; /* length of that PDU; 0: not known */
	uint32_t sent;         /* bytes of it that have been sent */
	uint32_t wanted;       /* the number of credits for lack of which a PDU was refused */
	/* version and cipher set through the kernel's interface (ktls.c); version 0: none */
	struct tls_crypto_info keys[2];
	uint16_t tls_version, tls_cipher; /* from the event TLS; 0: none so far */
	uint8_t tls_by[2];                /* where data is decrypted and encrypted, by ULPS_RECEIVE and ULPS_SEND */
	bool tls;                         /* setsockopt(TCP_ULP, "tls") */
	bool keys_expired;                /* the peer has sent KeyUpdate */
	bool with_connect;                /* pushed in a CONNECT: if that fails, it is unknown what is pushed */
	bool zerocopy_ro, expect_no_pad;
};

/* Pushes a protocol: request is SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX or SIOC_PUSH_ULP. Waits; 0 or -errno. */
int socket_push(struct xts_sock *s, uint32_t request, uint16_t ulp_id, const uint8_t *attributes, uint32_t bytes);
int push_ioctl(struct xts_sock *s, unsigned long request, const void *argument);
/* The pushes in the payload of a CONNECT: connect_pushes.c. */
struct connect_pushes {
	uint32_t bytes;
	uint8_t payload[XTS_CONNECT_PUSH_BYTES];
};
void push_note(struct xts_sock *s, uint32_t request, uint16_t ulp_id);              /* it is pushed, or will be */
void connect_pushes_sent(struct xts_sock *s, const struct connect_pushes *encoded); /* they have been sent */
int push_give_back(struct xts_sock *s); /* 0: everything is given back; -EAGAIN: no frame can leave now; -ENETDOWN */
void push_forget(struct xts_sock *s);   /* a new connection begins without pushed protocols */
void push_inherit(struct xts_sock *s, const struct xts_sock *listener); /* it was accepted with these */
uint32_t push_window(const struct xts_sock *s, uint32_t window); /* raised to at least what such a socket needs */
void fault_forget(struct xts_sock *s);

#endif
