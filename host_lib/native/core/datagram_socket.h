/*
 * Datagram sockets: what a socket of type SOCK_DGRAM has in addition to struct xts_sock.
 *
 * Theory of operation
 *
 * The proxy has a UDP socket for each, made by the first request that needs one: OPEN_DATAGRAM, with what is known by
 * then (calls/datagram_connect.c). state and phase stay those of an unconnected socket for good: `connected` says
 * whether it has a peer. All calls of a datagram socket but those that wait for datagrams, or for room, wait for one
 * round trip at most.
 *
 * Received datagrams (datagram_queue.c) are a list. The bytes of all of them, each one's control items before its data,
 * are in the pieces of buffer.c, in order. Only the last may still be incomplete. The account of post credits bounds
 * them: a datagram takes its data, its control items and XTS_DATAGRAM_CREDITS from its header on until it has been read.
 * So do entries of the error queue (IP_RECVERR), which are a list of their own.
 *
 * A datagram is sent (calls/datagram_send.c) when there are credits for all of it and a frame for its beginning. What
 * the first message does not hold follows at once, and what finds no frame then is kept in s->pending, and leaves
 * before anything else of the socket (datagram_flush()).
 *
 * Small datagrams go several in one message where that delays none of them (datagram_outbox.c). The message is kept open
 * until the call ends, so the datagrams of one sendmmsg(2) share it. A caller that has promised to come back
 * (XTS_EPOLL_BATCH) keeps it open until it does. When the link is out of frame credits small datagrams are gathered in
 * s->pending, as a byte stream's data is. So the faster the program sends, the more of them share a message.
 */
#ifndef XTS_HOST_DATAGRAM_H
#define XTS_HOST_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "datagram.h"
#include "wire.h"
#include "xts.h"

struct channel;
struct stack;
struct xts_sock;
struct xts_tx_slot;

/* A datagram in the receive queue; its control items and its data are in the socket's pieces. */
struct received_datagram {
	struct received_datagram *next;
	struct xts_endpoint from;
	uint32_t dropped; /* datagrams that the socket had lost before it (SO_RXQ_OVFL) */
	uint16_t data_bytes, segment_bytes;
	uint16_t control_bytes;   /* in the pieces: of items that this version knows */
	uint16_t control_credits; /* that it has taken for control items */
};
/* With what malloc() takes for itself: what waits must not cost more than the credits it has taken. */
_Static_assert(sizeof(struct received_datagram) + 16 <= XTS_DATAGRAM_CREDITS, "struct received_datagram");

/* An entry of the error queue, which the program takes with MSG_ERRQUEUE. */
struct queued_error {
	struct queued_error *next;
	struct xts_datagram about; /* its endpoint is where the datagram went */
	uint32_t credits;          /* that it has taken */
	uint8_t data[];            /* of what was sent, as far as it is quoted */
};

/* What MSG_MORE and UDP_CORK gather into one datagram: address and control data are the first call's. */
struct cork {
	bool on;       /* UDP_CORK */
	uint8_t *data; /* CORK_BYTES of it; NULL: nothing is pending */
	struct xts_datagram about;
	uint32_t bytes;
};
#define CORK_BYTES 65536u

/* Time stamps that the device's socket has been asked for: flags of struct sock in the kernel. */
struct stamping {
	bool receives, in_ns; /* SOCK_RCVTSTAMP, SOCK_RCVTSTAMPNS */
	bool is_new;          /* SOCK_TSTAMP_NEW: the option was one of the _NEW ones */
	uint32_t flags;       /* SO_TIMESTAMPING */
	bool by_host;         /* SO_XTS_CLOCK: converted to this host's clock */
};

/* A filter of the device's socket, kept for SO_GET_FILTER. */
struct filter {
	uint32_t bytes;
	bool named; /* SO_XTS_FILTER: what is here is the name of the operator's program */
	uint8_t program[];
};

/* A datagram that a callback of C is asked about (datagram_offer.c). */
struct offer {
	struct offered *offered;   /* where it is put together; NULL: the program holds the last one */
	struct xts_datagram about; /* of the one that is being put together */
	uint32_t missing;          /* of its data */
};

struct datagrams {
	bool connected;   /* s->peer is set */
	bool opens;       /* a thread is at OPEN_DATAGRAM */
	bool broadcast;   /* SO_BROADCAST */
	bool tells_drops; /* SO_RXQ_OVFL */
	/* of one that other processes may have, too (processes/shared_datagram.c) */
	bool withheld;          /* no receive credits are posted */
	bool sought;            /* they were wanted while a SHARE was unanswered */
	bool leaves;            /* it is about to be closed, or the next program's: none are posted any more */
	uint16_t naming;        /* SHAREs without an answer: each voids the credits that the proxy holds */
	uint32_t returned;      /* bytes of the first one that have gone back already, and the rest is about to */
	uint16_t segment_bytes; /* UDP_SEGMENT; 0: none */
	uint32_t receive_bytes; /* SO_RCVBUF that was set before the proxy had a socket; 0: none */
	uint32_t window;        /* of receive credits */
	uint32_t wanted;        /* credits that a sender was refused for; 0: none */
	uint32_t missing;       /* bytes of the last datagram that have not come yet */
	uint32_t dropped;       /* as the proxy has told last */
	uint32_t flushed;       /* bytes of s->pending that have been sent */
	struct received_datagram *first, *last;
	struct stamping stamping;
	struct filter *filter; /* SO_ATTACH_FILTER; NULL: none */
	struct cork cork;
	struct offer offer;
	struct queued_error *first_error, *last_error;
	struct queued_error *coming; /* of these: `missing` is of its data */
};

/* The most post credits that a datagram takes. */
#define DATAGRAM_CREDITS_MAX (UINT16_MAX + XTS_DATAGRAM_CONTROL_BYTES_MAX + XTS_DATAGRAM_CREDITS)

uint32_t datagram_advertise(struct xts_sock *s); /* credits for a message that is about to be sent */
struct xts_credit_grant;
void datagram_limit(struct xts_credit_grant *g); /* so that the largest datagram can always come */
void datagram_forget(struct xts_sock *s); /* in a forked child: nothing of it is here but what the program has set */

int datagram_make(struct xts_sock *s); /* s is of type SOCK_DGRAM from now on; 0 or -ENOMEM */
void datagram_free(struct xts_sock *s);
void datagram_drop(struct xts_sock *s);  /* all that has been received; the pieces are buffer_drop()'s */
void datagram_lose(struct xts_sock *s);  /* its channel has died */
void datagram_grant(struct xts_sock *s); /* its account begins, with the whole window */
void datagram_set_window(struct xts_sock *s, uint32_t bytes);

bool datagram_told(struct xts_sock *s, const struct xts_head *head, const struct xts_recv *m); /* as message_recv() */
uint32_t datagram_events(struct xts_sock *s); /* readiness, as datagram_poll() in the kernel: datagram_readiness.c */
/* The first one that has come whole, or NULL. */
const struct received_datagram *datagram_first(const struct xts_sock *s);
void datagram_read_controls(struct xts_sock *s, struct xts_datagram *out); /* of the first one */
void datagram_consume(struct xts_sock *s);                                 /* the first one has been read */
uint32_t datagram_take(struct xts_sock *s); /* the same, but its credits are still taken: returns them */

void datagram_remove(struct xts_sock *s); /* the first one is not this process's any more */

void datagram_give_back(struct xts_sock *s, uint32_t credits); /* which what has been read had taken */

/* A datagram, its data aside, is in the queue from now on. False: the channel has ended. */
bool datagram_enqueue(struct xts_sock *s, struct xts_datagram *d, uint32_t control_credits);

/* The next record: to the program's callback, or into the list; its data, as far as the payload has it, which ends at
 * `end` of the frame. 1: the frame has been taken over, 0: not, and never without a frame; -1: the channel has ended. */
struct xts_rx_frame;
int datagram_take_record(struct xts_sock *s, struct xts_datagram *d, struct xts_datagram_cursor *cursor,
			 struct xts_rx_frame *frame, uint32_t end);
/* A message has brought these events, and so many post credits. */
void datagram_changed(struct xts_sock *s, uint32_t events, uint32_t post_credits);

/* --- datagram_offer.c: the program is asked about each datagram before it is queued --------------------------------- */

/* A header, which has taken its credits, and what of its data is here. False: the channel has ended. */
bool datagram_offer(struct xts_sock *s, const struct xts_datagram *d, struct xts_datagram_cursor *cursor);
/* The rest of the data, or more of it. */
bool datagram_offer_rest(struct xts_sock *s, struct xts_datagram_cursor *cursor);
void datagram_offer_end(struct xts_sock *s);          /* the socket is freed */
struct offered *datagram_offered(struct xts_sock *s); /* a copy of the first one in the queue; NULL: no memory */

/* --- datagram_errors.c ---------------------------------------------------------------------------------------------- */

bool datagram_begin_error(struct xts_sock *s, const struct xts_datagram *d); /* false: the channel has ended */
void datagram_append_to_error(struct datagrams *q, struct xts_datagram_cursor *cursor, uint32_t bytes);
struct queued_error *datagram_first_error(const struct xts_sock *s); /* that has come whole, or NULL */
void datagram_drop_error(struct xts_sock *s);                        /* the first one has been read */
void datagram_drop_errors(struct xts_sock *s);                       /* all of them */

/*
 * datagram_opening.c: the proxy makes its socket, bound and connected where addresses are given. Waits. 0, -errno, or
 * DATAGRAM_IS_OPEN: there was one, and nothing has been done.
 */
#define DATAGRAM_IS_OPEN 1
int datagram_open(struct xts_sock *s, const struct xts_endpoint *local, const struct xts_endpoint *peer);
int datagram_need_proxy(struct xts_sock *s); /* the same without addresses; 0 or -errno */

/* --- datagram_outbox.c -------------------------------------------------------------------------------------------- */

/* Room for a record of so many bytes in the message that is being made of this socket's datagrams, or NULL. */
uint8_t *datagram_message_join(struct xts_sock *s, uint32_t bytes);
/* The same in a new message, in this slot. There is none being made, and the record fits. */
uint8_t *datagram_message_begin(struct xts_sock *s, const struct xts_tx_slot *slot, uint32_t bytes);
bool datagram_message_is_full(const struct channel *c); /* not worth keeping for more */
void datagram_message_submit(struct channel *c);
/* No frame can leave: room for a small record in s->pending, or NULL. */
uint8_t *datagram_gather(struct xts_sock *s, uint32_t bytes);
bool datagram_flush(struct xts_sock *s); /* sends what is pending; false: some of it is left */

#endif
