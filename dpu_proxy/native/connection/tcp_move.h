/*
 * A TCP side (tcp_side.h) goes from one owner to the next: from a connection to a parked one, to a shared listener that
 * has been given it back, and to a connection again. It goes as a whole, by this function alone: no field is copied by
 * itself. What the owners are charged for, and epoll, is their own business.
 */
#ifndef XTS_TCP_MOVE_H
#define XTS_TCP_MOVE_H

#include "connection/tcp_side.h"

struct xts_tenant;

/* `to` gets the whole, and `from` is as of no connection. Builds with XTS_DEBUG make a record of it on the way, read
 * that into memory full of rubbish, and compare. */
void tcp_side_move(struct tcp_side *to, struct tcp_side *from);
/* Nobody will take it: frees what it has, ends the charges for that, and resets the connection. */
void tcp_side_end(struct tcp_side *s, struct xts_tenant *t);
/* Closes a connection's socket by reset. */
void reset_and_close(int fd);
/* Ends the charge for kernel buffers whose size a program has set. */
void tcp_side_uncharge_buffers(struct tcp_side *s, struct xts_tenant *t);

#endif
