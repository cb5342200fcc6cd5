/* Kernel descriptors that have the same readiness as a socket: mirror.c. */
#ifndef XTS_MIRROR_H
#define XTS_MIRROR_H

struct stack;
struct xts_sock;

void mirror_dirty(struct xts_sock *s);
void mirror_arrived(struct xts_sock *s); /* the same, and something has come: an edge */
void mirrors_update(struct stack *st);
void mirror_connects(struct xts_sock *s); /* an attempt to connect begins */
void mirror_close(struct xts_sock *s);
/* In a forked child: the parent's goes on. */
void mirror_forget(struct xts_sock *s);

#endif
