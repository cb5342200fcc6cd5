/* PDUs: received (pdu.c, pdu_recv.c) and sent (pdu_send.c). */
#ifndef XTS_HOST_PDU_H
#define XTS_HOST_PDU_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "wire/record.h"
#include "ulps/pdu_struct.h"
#include "wire/wire.h"

struct about;
struct offered;
struct sink;
struct source;
struct stack;
struct xts_head;
struct xts_rx_frame;
struct xts_sock;

/* Includes the overhead of malloc(): a waiting PDU must not cost more memory than the credits it has taken. */
_Static_assert(sizeof(struct pdu) + 16 <= XTS_PDU_CREDITS, "struct pdu");

bool pdu_stream_data(struct xts_sock *s, uint32_t bytes); /* adds stream data between PDUs; false: not allowed here */
bool pdu_is_open(const struct xts_sock *s);               /* is the last PDU incomplete? */
bool pdu_is_readable(const struct xts_sock *s); /* for a socket with PDUs: would a receive call return something? */
uint32_t pdu_credits(const struct xts_sock *s); /* the credits taken in addition to the bytes */
void pdu_drop(struct xts_sock *s);
/* bytes of the first one were read, or its rest was dropped */
void pdu_consume(struct xts_sock *s, uint32_t bytes);
/* the same, but keeps its credits taken and returns their number */
uint32_t pdu_take(struct xts_sock *s, uint32_t bytes);
void pdu_give_back(struct xts_sock *s, uint32_t credits); /* frees those credits */
/* Grows the window, as far as possible, for a first PDU that does not fit into half of it. To be called when more of it
 * has come, and when it has become the first. */
void pdu_make_room(struct xts_sock *s);
extern const struct xts_record_list pdu_list; /* of a struct pdu_chain */
/* Receives from the first one: 1; 0: nothing now; or -errno. *done: bytes copied. */
int pdu_recv(struct xts_sock *s, const struct sink *to, size_t *done, int flags, struct about *about);

/* --- pdu_offer.c: receive callbacks (core/receive_callback.h) ------------------------------------------------------- */

/* The last PDU is complete: a callback in C decides about it. */
void pdu_offer(struct xts_sock *s);
/* A copy of the first one; NULL: no memory. */
struct offered *pdu_offered(struct xts_sock *s);
/* May a callback decide about it? Not if a part of it has been read, or if it is stream data. */
bool pdu_is_offered(const struct xts_sock *s, const struct pdu *p);
/* Writes the control data that recvmsg() returns with a PDU; 0 or -EIO. */
int pdu_control_put(const struct pdu *p, struct about *about);

/* Writes a control message; false: it was truncated, or there was no room for it. */
bool about_put(struct about *about, int level, int type, const void *data, size_t bytes);

/* What is sent with a PDU in addition to its data. */
struct control {
	uint16_t type; /* enum xts_ulp_id; 0: none */
	uint16_t bytes;
	uint8_t data[CONTROL_BYTES];
};
int control_read(struct control *out, const struct msghdr *message); /* from the message of sendmsg(); 0 or -EINVAL */
/* For a message socket, or with control data. */
ssize_t pdu_send(struct xts_sock *s, struct source *src, int flags, const struct control *control);

#endif
