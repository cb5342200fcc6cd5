/* Building messages of datagrams for a host: what datagram_receive.c and datagram_unsent.c share.
 * datagram_socket.h has the theory of operation. */
#ifndef XTS_DATAGRAM_MAKING_H
#define XTS_DATAGRAM_MAKING_H

#include "datagrams/datagram_socket.h"

/* The message that is being built. */
struct making {
	struct connection *c;
	struct xts_tx_slot *slot;
	uint32_t at, end; /* offsets in the slot */
	uint32_t datagrams;
	bool more; /* the last datagram goes on in the next message */
	bool over; /* the turn is over */
};

/* --- datagram_unsent.c: datagrams taken from the kernel and not sent yet ---------------------------------------- */

/* Takes the credits for a record, when its header is written into a message. False: there are too few. */
bool datagram_pay(struct connection *c, const struct xts_datagram *d);
/* Keeps a datagram, behind those that are kept already. False: there is no memory. */
bool datagram_keep(struct connection *c, struct xts_datagram *d, const uint8_t *data);
/* Keeps the rest of a datagram whose beginning is in a message; nothing else may be kept. */
bool datagram_keep_rest(struct connection *c, const uint8_t *data, uint32_t bytes);
/* Moves as much of what is kept as fits into the message. True: all of it fitted. */
bool datagram_make_of_unsent(struct making *m);

#endif
