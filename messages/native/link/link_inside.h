/*
 * What the files of the link have in common: link.c (frames of an open link), link_epoch.c (how an epoch begins and
 * ends), link_asks.c (clock, catch-up), link_control.c (what the link itself sends), link_time.c (pings, deadlines).
 * link.h has the theory of operation. Nobody else includes this.
 */
#ifndef XTS_LINK_INSIDE_H
#define XTS_LINK_INSIDE_H

#include "link/link.h"

#define HELLO_REPEAT_NS (50ull * 1000 * 1000)

/* Control frames that are to be sent (xts_link.due). */
enum link_due {
	DUE_HELLO = 1,
	DUE_HELLO_ACK = 2,
	DUE_PING = 4,
	DUE_PONG = 8,
	DUE_GOODBYE = 16,
	DUE_TOKEN = 32,
	DUE_CLOCK = 64,
	DUE_CLOCK_ACK = 128,
	DUE_CATCH_UP = 256,
	DUE_CAUGHT_UP = 512,
	DUE_REPLACED = 1024,
};

static inline uint64_t link_ms_to_ns(uint32_t ms)
{
	return (uint64_t)ms * 1000 * 1000;
}

/* Frames sent and not acknowledged; frames delivered and not recycled. Their types make them modulo 256. */
static inline uint8_t link_in_flight(const struct xts_link *link)
{
	return (uint8_t)(link->sent - link->acked);
}

static inline uint8_t link_unrecycled(const struct xts_link *link)
{
	return (uint8_t)(link->received - link->recycled);
}

static inline bool link_ack_due(const struct xts_link *link)
{
	return link->state == XTS_LINK_UP && (uint8_t)(link->recycled - link->acked_to_peer) >= link->frame_window / 4;
}

/* A HELLO is due, and the token before it. */
static inline uint16_t link_hello_due(const struct xts_link *link)
{
	return link->config.token_bytes ? DUE_TOKEN | DUE_HELLO : DUE_HELLO;
}

/* Processes the acknowledgement that every frame carries; false: it is for frames that were never sent. */
static inline bool link_take_ack(struct xts_link *link, uint8_t frame_ack)
{
	if ((uint8_t)(frame_ack - link->acked) > link_in_flight(link))
		return false;
	link->acked = frame_ack;
	return true;
}

/* The link goes down; any other frame that was due is dropped. */
void link_go_down(struct xts_link *link, int error, bool tell_peer);
/* A rule of PROTOCOL.md was broken: counts it, and ends the link with EPROTO. */
enum xts_link_verdict link_violation(struct xts_link *link, uint64_t *counter, const char *what);
void link_fill_ethernet(const struct xts_link *link, uint8_t *frame);

/* Frames, by their kind. */
enum xts_link_verdict link_receive_epoch(struct xts_link *link, const struct xts_head *head, const void *frame,
					 size_t bytes);
enum xts_link_verdict link_receive_clock(struct xts_link *link, const void *frame, size_t bytes);
enum xts_link_verdict link_receive_clock_ack(struct xts_link *link, const void *frame, size_t bytes);
enum xts_link_verdict link_receive_catch_up(struct xts_link *link, const void *frame, size_t bytes);
enum xts_link_verdict link_receive_caught_up(struct xts_link *link, const void *frame, size_t bytes);

#endif
