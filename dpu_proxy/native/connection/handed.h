/*
 * A socket that goes to another process of the proxy, or has come from one (processes/move.h). What each kind of socket
 * makes of itself: socket_kind.h.
 */
#ifndef XTS_HANDED_H
#define XTS_HANDED_H

#include "connection/tcp_side.h"

/* A kind's own record of a socket, as bytes. What is in it was checked when it came. */
struct kind_record {
	uint32_t bytes;
	uint8_t data[];
};

struct handed {
	struct tcp_side side;
	/* of a kind that has a record of its own: all there is of it but the descriptor, which is in `side`, and what
	 * kernel buffers are charged. NULL: `side` is all. */
	struct kind_record *own;
};

#define HANDED_NONE ((struct handed){ .side = TCP_SIDE_NONE })

/* `to` gets the whole, and `from` is as of no socket. */
void handed_move(struct handed *to, struct handed *from);
/* Frees what it has. The descriptor stays open. */
void handed_drop(struct handed *h);

#endif
