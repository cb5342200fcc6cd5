/* Building messages of datagrams for a host: what datagram_receive.c, datagram_unsent.c and datagram_copies.c share.
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

/* --- datagram_receive.c ------------------------------------------------------------------------------------------- */

/* How many datagrams may be taken, if they are not larger than expected. */
uint32_t datagram_may_take(const struct making *m);
/* Takes at most `most` datagrams from the kernel; returns how many have come. An error becomes the socket's pending
 * error. */
uint32_t datagram_fetch(struct connection *c, struct datagram_scratch *s, struct mmsghdr *messages, uint32_t most);
/* Reads the first datagram but leaves it in the kernel. False: there is none. */
bool datagram_peek(struct connection *c, struct datagram_scratch *s, struct mmsghdr *message);
/* Describes one of these datagrams, with its control data. False: it is not for this socket. *direct: as far as can be
 * known, it was sent to this socket only; *dropped: SO_RXQ_OVFL. */
bool datagram_describe(struct connection *c, struct mmsghdr *message, struct xts_datagram *d, bool *direct,
		       uint32_t *dropped);
/* The same for one that was taken, which it counts. */
bool datagram_take(struct connection *c, struct mmsghdr *message, struct xts_datagram *d, bool *direct);
/* Writes a datagram behind what the message has; what does not fit, or has no credits, is kept. False: there is no
 * memory for that, and the datagram is lost. */
bool datagram_put(struct making *m, struct xts_datagram *d, const uint8_t *data);
/* Counts a datagram lost in this way. */
void datagram_lost(struct connection *c);

/* --- datagram_copies.c: a datagram that several sockets of a channel have received crosses once ------------------- */

/* The worker gets its first datagram socket. False: there is no memory. */
bool copies_begin(struct worker_state *w);
/* The socket is bound to a port. */
void copies_enter(struct connection *c);
void copies_leave(struct connection *c);
/* May other sockets have received the same datagrams? */
bool copies_are_possible(const struct connection *c);
/* Takes a batch from the kernel. True: it was sent, in a message for several sockets; else it is in the message being
 * built. */
bool copies_make(struct making *m);

#endif
