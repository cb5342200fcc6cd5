/* Messages that could not leave at once: outbox.c. */
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
bool outbox_flush_socket(struct xts_sock *s); /* true: it has nothing left to send */
int outbox_send_accepted(struct xts_sock *s); /* these two are steps */
int outbox_send_todo(struct xts_sock *s);

#endif
