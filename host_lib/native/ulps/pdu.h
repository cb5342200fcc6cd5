/* PDUs: received (pdu.c, pdu_recv.c) and sent (pdu_send.c). */
#ifndef XTS_HOST_PDU_H
#define XTS_HOST_PDU_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "wire.h"

struct about;
struct offered;
struct source;
struct stack;
struct xts_head;
struct xts_rx_frame;
struct xts_sock;

#define CONTROL_BYTES 16u /* of a PDU's control data */

/* A PDU whose data is among the pieces, or a run of stream data between PDUs: pdu.c. */
struct pdu {
	struct pdu *next;
	uint32_t bytes;        /* received and unread */
	uint32_t read;         /* of it, modulo 2^32 */
	uint32_t record_bytes; /* length of all of it; 0: not known */
	uint32_t messages;     /* that it came in and whose XTS_PDU_CREDITS are still taken */
	bool stream;           /* no PDU: data of the byte stream */
	bool whole;            /* its last byte has come */
	uint8_t control_bytes;
	uint16_t control_type;
	uint8_t control[CONTROL_BYTES];
};
/* With what malloc() takes for itself: what waits must not cost more than the credits it has taken. */
_Static_assert(sizeof(struct pdu) + 16 <= XTS_PDU_CREDITS, "struct pdu");

bool pdu_stream_data(struct xts_sock *s, uint32_t bytes); /* stream data between PDUs; false: not allowed here */
bool pdu_is_open(const struct xts_sock *s);               /* the end of a PDU has not come yet */
bool pdu_is_readable(const struct xts_sock *s); /* of a socket with PDUs: a receive call would return something */
uint32_t pdu_credits(const struct xts_sock *s); /* taken in addition to the bytes */
void pdu_drop(struct xts_sock *s);
void pdu_consume(struct xts_sock *s, uint32_t bytes);     /* bytes of the first one, or the rest of it */
uint32_t pdu_take(struct xts_sock *s, uint32_t bytes);    /* the same, but its credits are still taken: returns them */
void pdu_give_back(struct xts_sock *s, uint32_t credits); /* such credits are free again */
int pdu_restore(struct xts_sock *s, const struct pdu *pdu); /* appends; 0 or -ENOMEM */
/* Receives of the first one: 1, or 0: nothing now, or -errno. *done: bytes copied. */
int pdu_recv(struct xts_sock *s, const struct iovec *iov, size_t bytes, size_t *done, int flags, struct about *about);

/* --- pdu_offer.c: receive callbacks (core/receive_callback.h) ------------------------------------------------------- */

/* The last PDU has come whole: a callback of C decides about it. */
void pdu_offer(struct xts_sock *s);
/* A copy of the first one; NULL: no memory. */
struct offered *pdu_offered(struct xts_sock *s);
/* May a callback decide about it? Not where a part of it has been read, or it is no PDU. */
bool pdu_is_offered(const struct xts_sock *s, const struct pdu *p);
/* What recvmsg() returns with a PDU; 0 or -EIO. */
int pdu_control_put(const struct pdu *p, struct about *about);

/* A control message; false: it was cut off, or there was no room at all. */
bool about_put(struct about *about, int level, int type, const void *data, size_t bytes);

/* What a PDU is sent with in addition to its data. */
struct control {
	uint16_t type; /* enum xts_ulp_id, 0: nothing */
	uint16_t bytes;
	uint8_t data[CONTROL_BYTES];
};
int control_read(struct control *out, const struct msghdr *message); /* of sendmsg(); 0 or -EINVAL */
/* Of a message socket, or with control data. */
ssize_t pdu_send(struct xts_sock *s, struct source *src, int flags, const struct control *control);

#endif
