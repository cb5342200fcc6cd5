/*
 * The link: what makes a pair of queues lossless and checked. Sans-I/O: frames in, frames out, time as an argument.
 *
 * Theory of operation
 *
 * HELLO opens a link (host) and HELLO_ACK confirms it (proxy) with the version, features, largest message and frame
 * window in force; until then everything else is dropped and counted. From then on every *sequenced* message (all but
 * XTS_LINK_*) carries the next 8-bit sequence number and takes one frame credit. The receiver gives the credit back
 * when it has recycled the frame's buffers, or has others in their place (xts_queue_keep()): frame_ack is a running
 * count of such frames, modulo 256, so the order does not matter. With at most 128 frames out, a count of 8 bits is
 * never ambiguous and no run of losses looks like none. XTS_LINK_* frames take no credit; their number is bounded (an
 * acknowledgement per quarter window, PINGS_MAX pings unanswered), and receivers keep XTS_CONTROL_RESERVE buffers for
 * them. They carry the sequence number the next sequenced message will have, so that a loss shows early.
 *
 * Any violation ends the link, never the process: state XTS_LINK_DOWN, link->error says why, and the caller ends the
 * sockets of this channel.
 *
 * Not thread-safe; the owner of the channel serialises. No allocation, no system call.
 */
#ifndef XTS_LINK_H
#define XTS_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

/* Size of the longest control frame, which is TOKEN. */
#define XTS_LINK_CONTROL_BYTES_MAX (XTS_TOKEN_BYTES + XTS_TOKEN_PAYLOAD_BYTES_MAX)

enum xts_link_role { XTS_LINK_HOST, XTS_LINK_PROXY };

enum xts_link_state {
	XTS_LINK_OPENING, /* host: HELLO sent, no answer yet; proxy: waiting for a HELLO */
	XTS_LINK_UP,
	XTS_LINK_DOWN, /* ended; link->error says why. The proxy's link opens again with the next HELLO. */
};

/* How xts_link_receive() has treated a frame. */
enum xts_link_verdict {
	/* a sequenced message for the caller, who must call xts_link_recycled() for it exactly once */
	XTS_LINK_DELIVER,
	XTS_LINK_CONSUMED, /* a frame for the link itself */
	XTS_LINK_OPENED,   /* the link is up. At the proxy: a new epoch; everything of the old one is void */
	XTS_LINK_CLOSED,   /* the link has just gone down: end the sockets with link->error */
	XTS_LINK_DROPPED,  /* counted and ignored */
	XTS_LINK_SAID,     /* at the proxy: OVER, for the caller. It belongs to no epoch, and may come at any time */
	XTS_LINK_REPLAYED, /* as DROPPED, of an epoch whose process has died (xts_link_replace()) */
};

struct xts_link_config {
	enum xts_link_role role;
	uint8_t local_mac[6];
	uint8_t peer_mac[6];
	uint16_t ethertype;    /* host order; 0: XTS_ETHERTYPE */
	uint16_t frame_window; /* frames, XTS_FRAME_WINDOW_MIN to _MAX */
	/* size in bytes of the largest frame that we can receive in a packet, XTS_FRAME_BYTES_SINGLE to _MAX; with the
	 * feature PARTS from XTS_FRAME_BYTES_LEAST on */
	uint32_t largest_message;
	uint32_t head_bytes;  /* of which the head of each frame takes this much (queue.h) */
	uint64_t features;    /* bits offered (host) or supported (proxy) */
	uint64_t required;    /* host: bits that it needs */
	uint64_t epoch;       /* host: from the attach reply; proxy: ignored */
	uint32_t pid;         /* host */
	uint32_t sockets_max; /* proxy: announced in HELLO_ACK */
	uint32_t ping_ms;     /* after this much silence, while watching (xts_link_watch), send a ping; 0: never */
	/* silence after an unanswered ping that ends the link; also the limit for the answer to HELLO */
	uint32_t dead_ms;
	/* host: the payload of TOKEN, which is sent before each HELLO; must outlive the link */
	const uint8_t *token;
	uint32_t token_bytes; /* 0: none */
	/* Proxy: may this HELLO open a new epoch? token is the TOKEN that came before it, with its payload, or NULL.
	 * Returns 0, or the positive errno with which it is refused. A NULL pointer: every host may, and tokens are not
	 * looked at. */
	int (*admit)(void *context, const struct xts_hello *hello, const struct xts_token *token, const uint8_t *payload);
	void *admit_context;
	/* Proxy: writes the device's clock into an answer that is about to leave. Host: the answer has come; its token
	 * is the now_ns of the request. A NULL pointer: clocks are not compared. */
	void (*clock)(void *context, struct xts_clock_ack *ack);
	void *clock_context;
};

struct xts_link_stats {
	uint64_t sent_frames, received_frames; /* sequenced messages */
	uint64_t sent_acks, received_acks;     /* pure FRAME_ACKs */
	uint64_t dropped_early;                /* before the link was up */
	uint64_t dropped_foreign;              /* wrong EtherType or source address, or for a group */
	uint64_t dropped_stale; /* GOODBYE or HELLO_ACK of another epoch; OVER of one that is not known */
	uint64_t malformed;     /* too short, unknown type, wrong direction */
	uint64_t sequence_errors;
	uint64_t credit_errors; /* frame_ack for frames never sent, or more frames than the window */
	uint64_t hellos;
};

/* Frames of an epoch whose process has died. */
struct xts_link_replay {
	bool any;     /* there has been one */
	uint8_t next; /* the number that the next one has */
};

struct xts_link {
	struct xts_link_config config;
	enum xts_link_state state;
	int error; /* positive errno: why the link is down */
	/* which rule the peer has broken, where this side has found it (EPROTO); else NULL */
	const char *violation;
	uint8_t refusal; /* host: the number (XTS_REFUSED_*) that the proxy has sent with a refusal, or 0 */
	/* In force while up. */
	uint16_t frame_window;
	uint32_t largest_message; /* without heads; it may come in parts */
	uint32_t packet_bytes;    /* of a packet, heads included */
	uint64_t features;
	uint64_t epoch;
	uint32_t sockets_max;
	/* Counters modulo 256, compared by difference. */
	uint8_t sent;          /* sequence number of the next sequenced message */
	uint8_t acked;         /* frames the peer has recycled */
	uint8_t received;      /* sequence number expected next */
	uint8_t recycled;      /* frames we have recycled */
	uint8_t acked_to_peer; /* value of recycled that was last sent to the peer */
	/* Control frames due, and time. */
	uint16_t due; /* bits, private to link.c */
	bool watching;
	uint64_t watched_ns; /* up to when silence counts */
	bool traffic;        /* a sequenced message has arrived in this epoch */
	bool token_here;     /* a TOKEN has arrived after the last HELLO */
	struct xts_token token;
	uint8_t token_payload[XTS_TOKEN_PAYLOAD_BYTES_MAX];
	uint64_t ping_token, pong_token;
	uint64_t clock_token; /* host: token of the unanswered request, or 0; proxy: of the one to answer */
	/* host: token of the unanswered CATCH_UP, or 0; proxy: of the one to answer */
	uint64_t catch_up_token;
	uint64_t catch_ups; /* host: how many were sent */
	bool catch_up_new;  /* proxy: it has come since the last xts_link_catch_up_begins() */
	uint64_t heard_ns;  /* time of the last frame received */
	uint64_t pinged_ns; /* time of the first unanswered ping; 0: none */
	unsigned pings;     /* how many are unanswered */
	uint64_t hello_ns;  /* time of the last HELLO sent */
	uint64_t opened_ns; /* time when opening began */
	/* proxy: of the epoch that another process has served, which has died; 0: none. Host: of the REPLACED that has
	 * ended the link, or has come while it opens; 0: none. */
	uint64_t replaced_ticket;
	bool replaced_said; /* proxy: REPLACED has been written. A HELLO of that epoch before it is for the dead process */
	struct xts_link_replay replay; /* of the frames of that epoch */
	bool replay_follows;           /* is the last one, of XTS_LINK_REPLAYED, the one behind the one before? */
	uint64_t goodbye_epoch;
	uint16_t goodbye_error;
	bool lost_early; /* a message on which its sender counts was dropped before the link was up */
	struct xts_link_stats stats;
};

/* Starts a link. A host has its HELLO due at once. Returns 0 or -EINVAL (window, size, role or token out of range). */
int xts_link_init(struct xts_link *link, const struct xts_link_config *config, uint64_t now_ns);

/*
 * Processes a frame. head points at its first head_bytes bytes (at least min(frame_bytes, 128), for a TOKEN all, from
 * the Ethernet header on); frame_bytes is the length of the whole frame. On XTS_LINK_DELIVER, *out is the decoded head;
 * the caller still has to decode and check the message's own fields.
 */
enum xts_link_verdict xts_link_receive(struct xts_link *link, const void *head, size_t head_bytes, size_t frame_bytes,
				       uint64_t now_ns, struct xts_head *out);

/* Host: requests the device's clock with the next control frames, if the proxy supports it. Each ping does so, too. */
void xts_link_ask_clock(struct xts_link *link);

/*
 * Catching up. Host: requests, with the next control frames, something of each socket that has something for it; false:
 * not on this link, or the last request is not answered yet. Proxy: the caller serves all sockets that have something
 * when xts_link_catch_up_begins() says that a request has come, then calls xts_link_caught_up(), and the answer is due.
 * Both: is there a request that is not answered? At the host, no longer when the answer has come.
 */
bool xts_link_catch_up(struct xts_link *link);
bool xts_link_catch_up_begins(struct xts_link *link);
void xts_link_caught_up(struct xts_link *link);
bool xts_link_catching_up(const struct xts_link *link);

/* Proxy: before any HELLO. The host has this epoch from another process of the proxy, and says HELLO with it again. Its
 * GOODBYE counts, and it is not told of a restart. */
void xts_link_expect(struct xts_link *link, uint64_t epoch);

/* The same when that process has died. Its host is told by REPLACED when xts_link_replay_ends() is called, which is
 * when all has been received that waited for the dead process, and again whenever something comes that is not HELLO. */
void xts_link_replace(struct xts_link *link, uint64_t epoch, uint64_t ticket);
void xts_link_replay_ends(struct xts_link *link);
static inline bool xts_link_replays(const struct xts_link *link)
{
	return link->replaced_ticket && !link->replaced_said;
}

/* The next frame of an epoch whose process has died: is it the one behind the one before? */
static inline bool xts_link_replay_follows(struct xts_link_replay *r, const struct xts_head *head)
{
	bool follows = r->any && head->seqno == r->next;

	r->any = true;
	r->next = (uint8_t)(head->seqno + xts_type_sequenced(head->type));
	return follows;
}

/* Host: the link has gone down by GOODBYE with ERESTART, since another process of the proxy goes on. How many messages
 * has the one before not received, or not recycled? */
unsigned xts_link_unacknowledged(const struct xts_link *link);

/* How many sequenced messages the peer may still send, as far as it has been told, beyond those received so far. */
unsigned xts_link_peer_credits(const struct xts_link *link);

/* The buffers of one delivered message are free again: returns its frame credit, with the next message or, when a
 * quarter of the window has accumulated, in a FRAME_ACK. A frame of an earlier epoch must not be reported: compare
 * link->epoch with the one in force when it was delivered. */
void xts_link_recycled(struct xts_link *link);

/* How many sequenced messages may be sent now: 0 while opening, before the HELLO_ACK is written, down, or out of frame
 * credits. */
unsigned xts_link_credits(const struct xts_link *link);

/* Completes an encoded sequenced message for sending: Ethernet header, sequence number, frame_ack. Takes a frame
 * credit: the caller has checked xts_link_credits() and must now submit the frame. */
void xts_link_seal(struct xts_link *link, void *frame);

/* Writes the next control frame that is due (TOKEN, HELLO, HELLO_ACK, FRAME_ACK, PING, PONG, GOODBYE) and returns its
 * length, or 0 if none is. frame has room for 128 bytes, and for XTS_LINK_CONTROL_BYTES_MAX if there is a token. Call
 * it until it returns 0: after receiving, and at the deadline. */
size_t xts_link_control(struct xts_link *link, void *frame, uint64_t now_ns);

/* Is a control frame due, regardless of the time? A cheap test before a transmit slot is taken. */
bool xts_link_control_due(const struct xts_link *link);

/* Handles timeouts: repeats HELLO, pings a silent peer, ends a dead link. Returns XTS_LINK_CLOSED if it has just ended
 * the link, else XTS_LINK_CONSUMED. */
enum xts_link_verdict xts_link_tick(struct xts_link *link, uint64_t now_ns);

/* When to call xts_link_tick() next, in ns, or UINT64_MAX. */
uint64_t xts_link_deadline_ns(const struct xts_link *link);

/* Whether to watch by pings that the peer is alive (true while a thread waits for it). If not, an idle process is
 * silent. Silence while nobody watches does not count, except in pauses of up to half of ping_ms: a program that
 * waits for 200 ms at a time watches, too. What has come has to be received before xts_link_tick() is asked. */
void xts_link_watch(struct xts_link *link, bool watch, uint64_t now_ns);

/* Ends the link from our side with a positive errno (0: normal end); a GOODBYE is then due. */
void xts_link_goodbye(struct xts_link *link, int error);

/* Ends the link because the caller found a violation in a message's body, or cannot go on: like goodbye, with
 * link->error set. */
void xts_link_fail(struct xts_link *link, int error);
/* The same with EPROTO, and the rule that the peer has broken, for logs. */
void xts_link_violated(struct xts_link *link, const char *what);

#endif
