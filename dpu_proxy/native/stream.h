/* What the data paths of connections with and without pushed protocols have in common (stream.c). */
#ifndef XTS_STREAM_H
#define XTS_STREAM_H

#include "channel.h"

#define GATHER_PIECES 512 /* below IOV_MAX; a batch of 32 frames of 16 pieces */
#define SPILL_PIECES 32   /* at least 17: a message lies in blocks of 4 KiB or more */

/* The payload of a batch entry as pieces. */
int stream_pieces(const struct batch_entry *e, struct iovec *iov, int max);
/* One attempt to write; bytes written, 0 when TCP is full, -errno when the connection has failed. */
ssize_t stream_write(struct connection *c, struct iovec *iov, int pieces);
/* Bytes have left for TCP, and so many credits are free. */
void stream_account_sent(struct connection *c, uint32_t bytes, uint32_t credits);
/* Sends a RECV whose payload of length bytes lies in the slot already, with whatever credits are unadvertised. */
void stream_send_recv(struct connection *c, const struct xts_tx_slot *slot, uint8_t flags, int error, uint32_t length);
/* The credits to advertise with a message. */
uint32_t stream_advertise(struct connection *c);
/* Tells the end of the stream: EOS, or RESET when the connection has failed. */
void stream_send_end(struct connection *c, const struct xts_tx_slot *slot, int error);

#endif
