/* Sockets that are made again when their channel has ended: again.c. */
#ifndef XTS_AGAIN_H
#define XTS_AGAIN_H

#include <stdbool.h>
#include <stdint.h>

struct stack;
struct xts_sock;

/* Of a stack. */
struct again {
	unsigned away;        /* its sockets that are to be made again */
	uint64_t next_ns;     /* when to try */
	uint64_t pause_ns;    /* after the next attempt */
	uint64_t attached_ns; /* when the channel came that is there now, or was there last */
	bool leaving;         /* the program gives up all sockets */
	bool failed;          /* nothing could be attached to since the channel has ended */
};

/* Its channel has ended. True: it is made again, and nothing of it is lost. */
bool again_keeps(struct xts_sock *s);
/* It could not be taken from the process that it was inherited from, since no proxy can be reached: as above. */
bool again_keeps_inherited(struct xts_sock *s);
void again_over(struct xts_sock *s);   /* it is here again, or freed */
void again_start(struct stack *st);    /* a channel has ended: makes the progress thread try */
void again_attached(struct stack *st); /* there is a channel: likewise, at once */
/* Tries if it is time; called by the progress thread. *deadline_ns: when to do so again. Waits, and attaches. */
void again_tick(struct stack *st, uint64_t *deadline_ns);
/* A call of the program needs the proxy: makes the socket again, if it is away. Waits. 0; -ENETDOWN: not possible now;
 * -EBADF: the program has closed it meanwhile; -ENOBUFS. */
int again_now(struct xts_sock *s);
/* Is it to try before this time? */
bool again_is_due(const struct stack *st, uint64_t before_ns);
/* In a fork. The parent's sockets that are away get keys, so that the child has them, too. */
void again_before_fork(struct stack *st);
void again_after_fork_parent(struct stack *st);
void again_after_fork_child(struct stack *st);

/* Closes what an attempt has left at the proxy. Waits. 0, -EBADF: the program has closed it meanwhile; -ENETDOWN. */
int again_undo(struct xts_sock *s);

#endif
