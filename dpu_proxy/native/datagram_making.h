/* Messages of datagrams for a host while they are made: for the files that make them (datagram_socket.h). */
#ifndef XTS_DATAGRAM_MAKING_H
#define XTS_DATAGRAM_MAKING_H

#include "datagram_socket.h"

/* The message that is being made. */
struct making {
	struct connection *c;
	struct xts_tx_slot *slot;
	uint32_t at, end; /* in the slot */
	uint32_t datagrams;
	bool more; /* the last goes on in the next message */
	bool over; /* the turn */
};

/* --- datagram_unsent.c: what was taken from the kernel and is not sent yet ---------------------------------------- */

/* Takes the credits for a record, as its header goes into a message. False: there are too few. */
bool datagram_pay(struct connection *c, const struct xts_datagram *d);
/* Keeps a datagram, behind those that are kept. False: there is no memory. */
bool datagram_keep(struct connection *c, struct xts_datagram *d, const uint8_t *data);
/* Keeps the rest of a datagram whose beginning is in a message; nothing else is kept. */
bool datagram_keep_rest(struct connection *c, const uint8_t *data, uint32_t bytes);
/* What fits of it goes into the message. True: all of it. */
bool datagram_make_of_unsent(struct making *m);

/* --- datagram_receive.c ------------------------------------------------------------------------------------------- */

/* How many may be taken, if they are not larger than expected. */
uint32_t datagram_may_take(const struct making *m);
/* Takes at most so many from the kernel: how many have come. Errors become the socket's. */
uint32_t datagram_fetch(struct connection *c, struct datagram_scratch *s, struct mmsghdr *messages, uint32_t most);
/* The first one stays in the kernel. False: there is none. */
bool datagram_peek(struct connection *c, struct datagram_scratch *s, struct mmsghdr *message);
/* One of those, with its control data. False: it is not for this socket. *direct: it was sent to this socket alone, as
 * far as that can be known; *dropped: SO_RXQ_OVFL. */
bool datagram_describe(struct connection *c, struct mmsghdr *message, struct xts_datagram *d, bool *direct,
		       uint32_t *dropped);
/* The same of one that was taken: it is counted. */
bool datagram_take(struct connection *c, struct mmsghdr *message, struct xts_datagram *d, bool *direct);
/* Writes a datagram behind what the message has; what does not fit, or has no credits, is kept. False: there is no
 * memory for that, and the datagram is lost. */
bool datagram_put(struct making *m, struct xts_datagram *d, const uint8_t *data);
/* Counts one that was lost so. */
void datagram_lost(struct connection *c);

/* --- datagram_copies.c: what several sockets of a channel have received crosses once ------------------------------- */

/* The worker has datagram sockets. False: there is no memory. */
bool copies_begin(struct worker_state *w);
/* The socket is bound to a port. */
void copies_enter(struct connection *c);
void copies_leave(struct connection *c);
/* May others have received the same? */
bool copies_are_possible(const struct connection *c);
/* Takes a batch of the kernel's. True: it was sent, in a message for several sockets; else it is in the message. */
bool copies_make(struct making *m);

#endif
