/* What a host is sent when it asks for what waits behind frame credits (CATCH_UP): turns/gather.c. */
#ifndef XTS_GATHER_H
#define XTS_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "queues/queue.h"
#include "worker/list.h"

struct channel;

struct gather {
	struct list asked;       /* connections that had something when the host asked, and have not had their turn */
	uint32_t share;          /* the most bytes of a message */
	bool on;                 /* channel_slot() gives parts of the frame */
	bool open;               /* there is a frame: */
	struct xts_tx_slot slot; /* its slot */
	uint32_t bytes;          /* how far it is filled */
};

#define XTS_GATHERED_LENGTH_BYTES 2u /* before each message */

/* --- turns/gather.c ----------------------------------------------------------------------------------------------- */

/* Goes on with the host's request, if there is one. True: something was sent. */
bool gather_turn(struct channel *ch);

/* --- gathered_frame.c --------------------------------------------------------------------------------------------- */

/* Is there room for a message of the whole share? Takes another frame if the present one is too full. */
bool gather_has_room(struct channel *ch);
/* Sends the frame, if it has anything. */
void gather_submit(struct channel *ch);
/* While gather.on, for channel_slot() and channel_submit(): room for a message in the frame, or false; and the message,
 * whose bytes are in that room. */
bool gather_room(struct channel *ch, struct xts_tx_slot *slot);
void gather_add(struct channel *ch, uint32_t bytes);

#endif
