/*
 * Frames that are longer than a packet of the wire (PROTOCOL.md, "Parts"): a decorator that sends such a frame in
 * several packets, and puts it together again at the other end. So an MTU of 1,500, which interfaces and switches have
 * unless somebody has raised it, carries everything that a larger one does.
 */
#ifndef XTS_PARTS_H
#define XTS_PARTS_H

#include "queues/queue.h"

#define XTS_PARTS_MAX 8u
#define XTS_PARTS_PACKET_MIN 1024u /* no wire has shorter packets: the agent asks for an MTU of 1,280 */
/* By how much a part is longer than what it carries; the Ethernet header is in both. */
#define XTS_PART_ADDS (XTS_PART_BYTES - XTS_ETH_BYTES)
/* Packets that may be on their way or unread: fewer than veth's ring holds (256), with the control frames. */
#define XTS_PARTS_PACKETS_MAX 192u

/* Do frames come in parts, where both ends can and a packet holds so many bytes? */
static inline bool xts_parts_needed(uint32_t packet_bytes)
{
	return packet_bytes < XTS_FRAME_BYTES_SINGLE;
}

/* The largest frame where a packet holds so many bytes of one, Ethernet header included. */
static inline uint32_t xts_parts_frame_bytes(uint32_t packet_bytes)
{
	return XTS_ETH_BYTES + XTS_PARTS_MAX * (packet_bytes - XTS_PART_BYTES);
}

/* The largest frame window where frames come in parts. */
static inline uint16_t xts_parts_window(uint32_t frame_window)
{
	uint32_t most = XTS_PARTS_PACKETS_MAX / XTS_PARTS_MAX;

	return (uint16_t)(frame_window < most ? frame_window : most);
}

/* Takes over inner. 0 or -ENOMEM. Off at first. */
int xts_parts_wrap(struct xts_queue **out, struct xts_queue *inner);

/* Takes the decorator off again, before it was used; inner is the caller's. NULL does nothing. */
void xts_parts_unwrap(struct xts_queue *parts);

/* parts: the result of xts_parts_wrap(). From now on a packet carries up to packet_bytes of a frame, Ethernet header
 * included, and longer frames leave in parts; 0: none do, and none is accepted. In a packet of the other end there may
 * be up to peer_bytes: its frames need not have the heads that this end leaves room for. What had come in part is
 * dropped. */
void xts_parts_use(struct xts_queue *parts, uint32_t packet_bytes, uint32_t peer_bytes);

#endif
