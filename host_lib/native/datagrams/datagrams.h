/*
 * Datagram sockets: the state of a SOCK_DGRAM socket in addition to struct xts_sock.
 *
 * Theory of operation
 *
 * The proxy has a UDP socket for each. The first request that needs it makes it: OPEN_DATAGRAM, with everything that is
 * known by then (datagram_connect.c). state and phase always stay those of an unconnected socket: `connected`
 * says whether it has a peer. A call on a datagram socket waits for one round trip at most, unless it waits for
 * datagrams or for room.
 *
 * Received datagrams (datagram_queue.c) are a list. Their bytes, each datagram's control items before its data, are in
 * the pieces of received_data.c, in order. Only the last datagram may still be incomplete. The account of post credits
 * bounds them: from its header on until it has been read, a datagram takes credits for its data, its control items and
 * XTS_DATAGRAM_CREDITS. The same is true of entries of the error queue (IP_RECVERR), which are in a list of their own.
 *
 * A datagram is sent (datagram_send.c) when there are credits for all of it and a frame for its beginning. The
 * messages with its rest follow at once. Data for which there is no frame is kept in s->pending, and leaves before
 * anything else of the socket (datagram_flush()).
 *
 * Several small datagrams share a message, if that delays none of them (datagram_outbox.c). The message is kept open
 * until the call ends, so the datagrams of one sendmmsg(2) share it. If the thread has promised to come back
 * (XTS_EPOLL_BATCH), the message is kept open until then. When the link is out of frame credits, small datagrams are
 * gathered in s->pending, as a byte stream's data is. So the faster the program sends, the more of them share a
 * message.
 */
#ifndef XTS_HOST_DATAGRAM_H
#define XTS_HOST_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/stamping.h"
#include "wire/datagram.h"
#include "wire/wire.h"
#include "xts.h"

struct channel;
struct stack;
struct xts_sock;
struct xts_tx_slot;

/* A datagram in the receive queue; its control items and its data are in the socket's pieces. */
struct received_datagram {
	struct received_datagram *next;
	struct xts_endpoint from;
	uint32_t dropped; /* datagrams that the device's socket had dropped before this one (SO_RXQ_OVFL) */
	uint16_t data_bytes, segment_bytes;
	uint16_t control_bytes;   /* bytes in the pieces: only items that this version knows */
	uint16_t control_credits; /* credits taken for control items */
};
/* Includes the overhead of malloc(): a waiting datagram must not cost more memory than the credits it has taken. */
_Static_assert(sizeof(struct received_datagram) + 16 <= XTS_DATAGRAM_CREDITS, "struct received_datagram");

/* An entry of the error queue, which the program reads with MSG_ERRQUEUE. */
struct queued_error {
	struct queued_error *next;
	struct xts_datagram about; /* its endpoint is the datagram's destination */
	uint32_t credits;          /* credits that the entry has taken */
	uint8_t data[];            /* the quoted part of the datagram that was sent */
};

/* A datagram that MSG_MORE and UDP_CORK gather: address and control data are those of the first call. */
struct cork {
	bool on;       /* UDP_CORK */
	uint8_t *data; /* buffer of CORK_BYTES; NULL: nothing is pending */
	struct xts_datagram about;
	uint32_t bytes;
};
#define CORK_BYTES 65536u

/* A filter of the device's socket, kept for SO_GET_FILTER. */
struct filter {
	uint32_t bytes;
	bool named; /* SO_XTS_FILTER: this is the name of a program of the operator's */
	uint8_t program[];
};

/* A datagram that a callback in C will decide about (datagram_offer.c). */
struct offer {
	struct offered *offered;   /* where it is assembled; NULL: the program has kept the last one */
	struct xts_datagram about; /* header of the datagram that is being assembled */
	uint32_t missing;          /* bytes of its data that have not come yet */
};

struct datagrams {
	bool connected;         /* s->peer is set */
	bool opens;             /* a thread waits for OPEN_DATAGRAM */
	bool broadcast;         /* SO_BROADCAST */
	bool tells_drops;       /* SO_RXQ_OVFL */
	bool queues_errors;     /* IP_RECVERR, IPV6_RECVERR */
	bool errors_are_urgent; /* SO_SELECT_ERR_QUEUE */
	/* Why the device could not send a datagram of a socket without a peer, for the next call that sends; 0: nothing.
	 * On the kernel the call that sent it fails itself, so this is not readiness, and no error of the socket. */
	int send_error;
	/* for a socket that other processes may have too (shared_datagram.c) */
	bool withheld; /* no receive credits are posted */
	bool sought;   /* credits were wanted while a SHARE was unanswered */
	/* it is about to be closed, or to pass to the next program: no more credits are posted */
	bool leaves;
	uint16_t naming;        /* unanswered SHAREs: each voids the credits that the proxy holds */
	uint32_t returned;      /* bytes of the first datagram that have been returned; its rest follows */
	uint16_t segment_bytes; /* UDP_SEGMENT; 0: none */
	uint32_t receive_bytes; /* SO_RCVBUF, if it was set before the proxy had a socket; 0: none */
	uint32_t window;        /* window of receive credits */
	uint32_t wanted;        /* credits for lack of which a sender was refused; 0: none */
	uint32_t missing;       /* bytes of the last datagram that have not come yet */
	uint32_t dropped;       /* the count that the proxy reported last */
	uint32_t flushed;       /* bytes of s->pending that have been sent */
	bool rest;              /* s->pending is the rest of a datagram whose beginning has been sent */
	struct received_datagram *first, *last;
	struct stamping stamping;
	struct filter *filter; /* SO_ATTACH_FILTER; NULL: none */
	struct cork cork;
	struct offer offer;
	struct queued_error *first_error, *last_error;
	struct queued_error *coming; /* the last entry, if it is incomplete: `missing` counts its data */
};

/* The most post credits that a datagram can take. */
#define DATAGRAM_CREDITS_MAX (UINT16_MAX + XTS_DATAGRAM_CONTROL_BYTES_MAX + XTS_DATAGRAM_CREDITS)

uint32_t datagram_advertise(struct xts_sock *s); /* credits to put into a message that is about to be sent */
struct xts_credit_grant;
void datagram_limit(struct xts_credit_grant *g); /* ensures that the largest datagram can always come */
void datagram_forget(struct xts_sock *s);        /* in a forked child: keeps only what the program has set */

int datagram_make(struct xts_sock *s); /* makes s a socket of type SOCK_DGRAM; 0 or -ENOMEM */
void datagram_free(struct xts_sock *s);
void datagram_drop(struct xts_sock *s);  /* drops all received datagrams; buffer_drop() drops the pieces */
void datagram_lose(struct xts_sock *s);  /* the socket's channel has died */
void datagram_grant(struct xts_sock *s); /* begins its account, with the whole window */
void datagram_set_window(struct xts_sock *s, uint32_t bytes);

struct xts_rx_frame;
bool datagram_told(struct xts_sock *s, const struct xts_head *head, const struct xts_recv *m,
		   struct xts_rx_frame *frame); /* as message_recv() */
uint32_t datagram_events(struct xts_sock *s);   /* readiness, as datagram_poll() in the kernel: datagram_readiness.c */
/* The first complete datagram, or NULL. */
const struct received_datagram *datagram_first(const struct xts_sock *s);
void datagram_read_controls(struct xts_sock *s, struct xts_datagram *out); /* control items of the first datagram */
/* removes the first datagram, which has been read */
void datagram_consume(struct xts_sock *s);
uint32_t datagram_take(struct xts_sock *s); /* the same, but keeps its credits taken and returns their number */

/* removes the first datagram, which does not belong to this process any more */
void datagram_remove(struct xts_sock *s);

void datagram_give_back(struct xts_sock *s, uint32_t credits); /* frees credits of datagrams that have been read */

/* Puts a datagram, without its data, into the queue. False: the channel has ended. */
bool datagram_enqueue(struct xts_sock *s, struct xts_datagram *d, uint32_t control_credits);

/* A message has brought these events, and this many post credits. */
void datagram_changed(struct xts_sock *s, uint32_t events, uint32_t post_credits);

/* --- datagram_offer.c: a callback decides about each datagram before it is queued --------------------------------- */

/* Begins with a header, whose credits are taken, and the data that is here. False: the channel has ended. */
bool datagram_offer(struct xts_sock *s, const struct xts_datagram *d, struct xts_datagram_cursor *cursor);
/* Adds the rest of the data, or more of it. */
bool datagram_offer_rest(struct xts_sock *s, struct xts_datagram_cursor *cursor);
void datagram_offer_end(struct xts_sock *s);          /* the socket is freed */
struct offered *datagram_offered(struct xts_sock *s); /* a copy of the first one in the queue; NULL: no memory */

/* --- datagram_errors.c ---------------------------------------------------------------------------------------------- */

bool datagram_begin_error(struct xts_sock *s, const struct xts_datagram *d); /* false: the channel has ended */
void datagram_append_to_error(struct datagrams *q, struct xts_datagram_cursor *cursor, uint32_t bytes);
struct queued_error *datagram_first_error(const struct xts_sock *s); /* the first complete one, or NULL */
void datagram_drop_error(struct xts_sock *s);                        /* removes the first one, which has been read */
void datagram_drop_errors(struct xts_sock *s);                       /* removes all */

/*
 * datagram_opening.c: makes the proxy's socket, bound and connected if addresses are given. Waits. 0, -errno, or
 * DATAGRAM_IS_OPEN: the socket existed, and nothing was done.
 */
#define DATAGRAM_IS_OPEN 1
int datagram_open(struct xts_sock *s, const struct xts_endpoint *local, const struct xts_endpoint *peer);
int datagram_need_proxy(struct xts_sock *s); /* the same without addresses; 0 or -errno */

/* --- datagram_outbox.c -------------------------------------------------------------------------------------------- */

/* Room for a record of this many bytes in the message that is being built for this socket, or NULL. */
uint8_t *datagram_message_join(struct xts_sock *s, uint32_t bytes);
/* The same in a new message, in this slot. No message is being built, and the record fits. */
uint8_t *datagram_message_begin(struct xts_sock *s, const struct xts_tx_slot *slot, uint32_t bytes);
bool datagram_message_is_full(const struct channel *c); /* too full to keep it open for more */
void datagram_message_submit(struct channel *c);
/* When no frame can leave: room for a small record in s->pending, or NULL. */
uint8_t *datagram_gather(struct xts_sock *s, uint32_t bytes);
bool datagram_flush(struct xts_sock *s); /* sends pending data; false: some of it is left */

/* --- claim_datagram.c: entries of struct socket_kind --------------------------------------------------------------- */

bool datagram_moves(const struct xts_sock *s);
void datagram_leaves(struct xts_sock *s);
uint32_t datagram_promises(struct xts_sock *s);
bool datagram_takes_pending(struct xts_sock *s);
/* Of the message that is being built: it cannot be submitted. False: no memory. */
bool datagram_message_keep(struct channel *c);

/* --- shared_datagram.c -------------------------------------------------------------------------------------------- */

bool sharing_datagrams_possible(struct stack *st);
void datagram_share_before_fork(struct xts_sock *s);      /* gives it a key; does not wait */
void datagram_naming(struct xts_sock *s);                 /* SHARE has been sent, or is about to be */
void datagram_is_named(struct xts_sock *s, bool refused); /* SHARE has been answered */
void datagram_interest(struct xts_sock *s, bool accepts); /* a thread reads from it, or waits for it */
void datagram_share_tick(struct xts_sock *s, uint64_t now);
bool datagram_is_away(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns);
void datagram_withhold(struct xts_sock *s); /* voids the credits that the proxy has; SHARE leaves soon */
int datagram_join(struct xts_sock *s);      /* joins another process's socket by its key; waits; 0 or -errno */

/* --- return_datagrams.c ------------------------------------------------------------------------------------------- */

/* Its unread datagrams leave through the outbox, for the process that reads next. */
void datagram_return_unread(struct xts_sock *s);
/* Is a SHARE unanswered, or are there datagrams to return, so that a thread has to see to it? */
bool datagram_is_returning(const struct xts_sock *s);
int datagram_send_returns(struct xts_sock *s); /* called by the outbox: 0, or -errno of channel_slot() */
/* This process leaves the socket to others, if there are any, with all datagrams that it was sent. Waits. */
void datagram_leave(struct xts_sock *s);
void datagrams_leave(struct stack *st); /* leaves all of them, when the process ends */
/* returns unread datagrams, which the child may be meant to read; waits */
void datagrams_before_fork(struct stack *st);
/* A call that does not wait has posted credits. After this, datagrams that the proxy had before it are here. Waits; 0
 * or -EBADF. */
int datagram_ask(struct xts_sock *s);
int datagram_seek_error(struct xts_sock *s); /* another process may have left it; waits; 0 or -errno */

#endif
