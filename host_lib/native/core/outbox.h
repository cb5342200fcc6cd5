/* What could not leave at once: outbox.c. */
#ifndef XTS_OUTBOX_H
#define XTS_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

struct stack;
struct xts_sock;

enum {                    /* what still has to leave */
       TODO_ACCEPTED = 1, /* NEWCONN_ACK */
       TODO_DATA = 2,     /* the pending buffer */
       TODO_ADVERT = 4,
       TODO_FIN = 8,
       TODO_CLOSE = 16,
       TODO_SHARE = 32,     /* the key of a listener or a connection, and how long it shall be kept */
       TODO_PARK = 128,     /* PARK, and then what is unread: give_up.c */
       TODO_GIVE_BACK = 64, /* received bytes, for a protocol that has been pushed; datagrams, for others to read */
};

#define PENDING_SMALL 4096u            /* data worth gathering; more waits for the link */
#define PENDING_MAX 16384u             /* bytes gathered per socket */
#define PENDING_CHANNEL_MAX (4u << 20) /* of all sockets of a channel */

void outbox_add(struct xts_sock *s, uint8_t todo);
void outbox_remove(struct xts_sock *s);
void outbox_flush(struct stack *st);
bool outbox_flush_socket(struct xts_sock *s); /* true: nothing of it is left to send */

#endif
