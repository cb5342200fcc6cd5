/* Datagrams of a host that the kernel had no room for, in the socket's spill buffer: datagram_send.c, datagram_move.c. */
#ifndef XTS_DATAGRAM_WAITING_H
#define XTS_DATAGRAM_WAITING_H

#include <stdbool.h>
#include <stdint.h>

/* In front of a record in the spill buffer. */
struct waiting {
	uint32_t credits; /* the credits that the host has paid for it */
	uint32_t refused; /* an errno: it will not be sent; 0: it may be sent */
};

struct connection;

/* Nothing waits any more: its credits are free. */
void datagram_forget_waiting(struct connection *c);
/* Puts a record behind what waits, or the beginning of one. False: no memory. */
bool datagram_wait_again(struct connection *c, const struct waiting *w, const uint8_t *record, uint32_t bytes);

#endif
