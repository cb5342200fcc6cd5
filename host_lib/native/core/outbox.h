/*
 * Messages that could not leave at once: outbox.c.
 *
 * Pending data has its post credits: send() has taken them. But they are void with the epoch, and the next process of a
 * proxy may grant fewer than are pending, since it keeps what TCP has not taken and what it was sent. Then the socket
 * has a *deficit*: its data, and what follows it, waits for the credits that come, which are for it first.
 */
#ifndef XTS_OUTBOX_H
#define XTS_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

struct stack;
struct xts_sock;

enum {                    /* what a socket still has to send */
       TODO_ACCEPTED = 1, /* NEWCONN_ACK */
       TODO_DATA = 2,     /* the pending buffer */
       TODO_ADVERT = 4,
       TODO_FIN = 8,
       TODO_CLOSE = 16,
       TODO_SHARE = 32, /* the key of a listener or a connection, and how long the proxy shall keep it */
       TODO_PARK = 128, /* PARK, and after that the unread bytes: give_up.c */
       /* received bytes for a protocol that has been pushed; datagrams that other processes may read */
       TODO_GIVE_BACK = 64,
};

#define TODO_BEHIND_DATA (TODO_DATA | TODO_FIN | TODO_CLOSE | TODO_PARK)

#define PENDING_SMALL 4096u            /* data up to this size is gathered; more waits for the link */
#define PENDING_MAX 16384u             /* bytes gathered for each socket */
#define PENDING_CHANNEL_MAX (4u << 20) /* bytes gathered for all sockets of a channel */

/* What sends it: 0; -errno: not now, and it is tried again. */
struct outbox_step {
	uint8_t todo; /* any of these */
	int (*send)(struct xts_sock *s);
};
#define OUTBOX_STEPS 6
extern const struct outbox_step outbox_steps[OUTBOX_STEPS]; /* in the order in which they are sent */

void outbox_add(struct xts_sock *s, uint8_t todo);
void outbox_remove(struct xts_sock *s);
void outbox_flush(struct stack *st);
bool outbox_flush_socket(struct xts_sock *s); /* true: it has nothing left that may be sent */
/* So many of the pending bytes have no credits; 0: all of them have. */
void outbox_set_deficit(struct xts_sock *s, uint32_t bytes);
uint32_t outbox_pay_deficit(struct xts_sock *s, uint32_t credits); /* what is left of them */
/* Frees what is pending. The channel's count of it is the caller's. */
void outbox_drop_pending(struct xts_sock *s);
int outbox_send_accepted(struct xts_sock *s); /* these two are steps */
int outbox_send_todo(struct xts_sock *s);

#endif
