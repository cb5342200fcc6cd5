/*
 * The parts of arq.c: what was sent (arq_sender.c), how much may be (arq_congestion.c), and what has come
 * (arq_receiver.c). They know neither queue nor clock: time is an argument.
 */
#ifndef XTS_ARQ_INSIDE_H
#define XTS_ARQ_INSIDE_H

#include "queues/queue.h"

/* Frames that may be sent and not known to have arrived: an acknowledgement has a bit for each but the first. */
#define ARQ_WINDOW 128u
#define ARQ_RING 256u            /* more than any queue has slots; a power of two */
#define ARQ_TRANSMISSIONS 1024u  /* whose time is remembered; a power of two */
#define ARQ_ACK_DELAY_NS 200000u /* an acknowledgement waits this long for a frame to go with */
#define ARQ_NEVER UINT64_MAX
#define ARQ_PARTS 64u /* of a frame, in which the window is counted */

/* --- how much may be sent ----------------------------------------------------------------------------------------- */

struct arq_window {
	uint32_t frames;                /* that may be on their way */
	uint32_t parts;                 /* the same in ARQ_PARTS of a frame */
	uint32_t threshold;             /* in parts: below it the window doubles in each round trip */
	uint32_t round_end;             /* number of the frame whose arrival ends the round */
	uint32_t acked, lost;           /* frames since the share of losses was last judged */
	uint64_t lossy_until_ns;        /* until then the wire counts as one that loses frames without being full */
	bool lost_now;                  /* some were lost in this round */
	bool limited;                   /* in this round it has kept a frame from being sent */
	uint64_t round_rtt_ns;          /* the shortest of this round; ARQ_NEVER: none */
	uint64_t base_ns, next_base_ns; /* the shortest of some time ago, and since then; ARQ_NEVER: none */
	uint64_t base_until_ns;         /* when the latter takes the place of the former */
};

/* What acknowledgements have told since the last time. */
struct arq_news {
	uint64_t now_ns;
	uint64_t rtt_ns;       /* 0: none was measured */
	uint32_t acked, lost;  /* frames */
	uint32_t oldest, next; /* number of the oldest frame that has not arrived, and of the next one to be sent */
};

void arq_window_begin(struct arq_window *w, uint32_t first);
void arq_window_news(struct arq_window *w, const struct arq_news *news);
/* Nothing has been heard for too long: begins again with one frame. */
void arq_window_timeout(struct arq_window *w);
/* Has the wire room for frames that are sent twice, and do losses make them worth it? */
static inline bool arq_window_spares(const struct arq_window *w, uint64_t rtt_ns, uint64_t now_ns)
{
	return now_ns < w->lossy_until_ns && rtt_ns < w->base_ns + w->base_ns / 2;
}

/* --- what was sent ------------------------------------------------------------------------------------------------ */

struct arq_frame {
	struct xts_tx_slot slot; /* retained */
	uint32_t bytes;          /* with the head */
	uint32_t transmission;   /* number of the last one */
	uint64_t sent_ns;
	bool arrived;
	bool lost; /* it seems to be: to be sent again */
};

struct arq_sender {
	/* Numbers of frames, modulo 2^32: the oldest that has not arrived, the next one to be sent for the first time,
	 * the next one to be given a number; and the oldest whose slot has not been released. */
	uint32_t first, oldest, next, end, released;
	uint32_t on_their_way; /* frames sent that have neither arrived nor are lost */
	uint32_t lost;
	uint32_t copied;       /* the next one of which a copy may be sent */
	uint32_t copies;       /* sent, and not come twice as far as is known */
	uint32_t transmission; /* number of the next one */
	uint32_t heard;        /* the newest that has arrived at the peer */
	bool heard_any, heard_new;
	bool progress; /* frames have arrived since the last tick */
	uint16_t held_us, duplicates;
	uint32_t patience; /* how much later than expected a frame may come, in parts of the round trip */
	uint32_t calm;     /* frames that have arrived since patience last changed */
	uint64_t srtt_ns, rttvar_ns, rtt_ns, min_rtt_ns; /* 0: not known */
	uint64_t quiet_ns;                               /* since when nothing was sent or has arrived */
	uint64_t reorder_ns; /* when the next frame is lost, if it has not arrived by then */
	uint64_t again_ns;   /* when to try again to send, after the queue had no room */
	uint32_t backoff;
	bool probed, probe; /* a probe was sent, is to be sent */
	uint32_t acked;     /* frames that have arrived since the last tick */
	uint64_t repeated;  /* transmissions that were not the first of their frame */
	uint64_t copy_ns;   /* when the next copy may be sent; ARQ_NEVER: none */
	struct arq_window window;
	uint64_t sent_ns[ARQ_TRANSMISSIONS];
	struct arq_frame frame[ARQ_RING];
};

void arq_sender_begin(struct arq_sender *s, uint32_t first, uint64_t now_ns);
static inline struct arq_frame *arq_sender_frame(struct arq_sender *s, uint32_t number)
{
	return &s->frame[number % ARQ_RING];
}
/* As it was in another process, with no frames so far: the numbers of the first frame ever, of the oldest that has not
 * arrived, and of the next transmission. */
void arq_sender_resume(struct arq_sender *s, uint32_t first, uint32_t oldest, uint32_t transmission);
/* All that were added have been sent, and are to be sent again. */
void arq_sender_lose_all(struct arq_sender *s);
/* Gives a frame its number. There is room for as many as the queue has slots. */
void arq_sender_add(struct arq_sender *s, const struct xts_tx_slot *slot, uint32_t bytes);
/* Takes an acknowledgement. -EPROTO: of what was never sent. Slots up to `oldest` are to be released. */
int arq_sender_acknowledged(struct arq_sender *s, const struct xts_arq *head);
/* Time has passed: measures, finds lost frames, and what else is due. */
void arq_sender_tick(struct arq_sender *s, uint64_t now_ns);
/* The frame that is to be sent now; false: none, or not yet. And: it was. */
bool arq_sender_due(struct arq_sender *s, uint64_t now_ns, uint32_t *number);
void arq_sender_sent(struct arq_sender *s, uint32_t number, uint64_t now_ns);
/* An acknowledgement by itself is sent: the number of its transmission. */
uint32_t arq_sender_transmission(struct arq_sender *s, uint64_t now_ns);
uint64_t arq_sender_deadline_ns(const struct arq_sender *s);

/* --- what has come ------------------------------------------------------------------------------------------------ */

struct arq_receiver {
	bool known; /* the peer's first number */
	uint32_t expected, heard;
	bool heard_any, heard_new;
	uint64_t heard_ns;
	uint16_t duplicates;
	uint32_t unacked; /* frames since the last acknowledgement */
	bool due;         /* an acknowledgement is to be sent with the next kick */
	uint64_t ack_ns;  /* when one is due at the latest; ARQ_NEVER: none; 0: it counts from the next tick */
	uint32_t held_count;
	struct xts_rx_frame held[ARQ_WINDOW]; /* came too early; by number; no segments: none */
};

enum arq_arrival { ARQ_IN_ORDER, ARQ_EARLY, ARQ_DUPLICATE, ARQ_BEYOND };

void arq_receiver_begin(struct arq_receiver *r);
/* Any frame of the peer tells its first number. */
void arq_receiver_first(struct arq_receiver *r, uint32_t first);
/* Any frame has come: the number of its transmission. */
void arq_receiver_heard(struct arq_receiver *r, uint32_t transmission);
/* A numbered frame has come. ARQ_EARLY: it is held; else it is the caller's. */
enum arq_arrival arq_receiver_take(struct arq_receiver *r, const struct xts_arq *head, const struct xts_rx_frame *frame);
/* Takes a held frame whose turn it is. */
bool arq_receiver_next(struct arq_receiver *r, struct xts_rx_frame *frame);
static inline bool arq_receiver_ready(const struct arq_receiver *r)
{
	return r->held_count && r->held[r->expected % ARQ_WINDOW].segments;
}
void arq_receiver_tick(struct arq_receiver *r, uint64_t now_ns);
/* Fills in what acknowledges; it is about to be sent. */
void arq_receiver_acknowledge(struct arq_receiver *r, struct xts_arq *head, uint64_t now_ns);
static inline uint64_t arq_receiver_deadline_ns(const struct arq_receiver *r)
{
	return r->due ? 0 : r->ack_ns;
}

#endif
