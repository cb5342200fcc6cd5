/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_TCP_VIEW_H
#define XTS_TCP_VIEW_H

#include <stdbool.h>
#include <stdint.h>

/* What status and the connection log show of a connection's TCP side. */
struct xts_tcp_view {
	/* of the connection, sent in RESET, CONNECT_ACK or CLOSED */
	int32_t error;
	/* charged for the kernel's send buffer, whose size its program has set (socket_buffers.c) */
	uint32_t kernel_send_bytes;
	/* the same of the receive buffer */
	uint32_t kernel_receive_bytes;
	/* number of bytes that wait, in their order */
	uint32_t spill_bytes;
	/* bytes taken by TCP or a protocol, since the beginning */
	uint64_t sent_bytes;
	/* bytes sent to the host of this channel, or the last one */
	uint64_t received_bytes;
	/* bytes accepted from the host of this channel, or the last one */
	uint64_t host_bytes;
	/* the peer has connected to us */
	bool accepted;
	/* the host sends no more: FIN follows what waits */
	bool fin_wanted;
	/* FIN has been sent, or close(2) sends it */
	bool fin_done;
};

#endif
