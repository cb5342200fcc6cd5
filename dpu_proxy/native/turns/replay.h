/*
 * What a host had sent to a process that has died, and that process had not given to TCP (PROTOCOL.md, "Crash").
 *
 * Theory of operation. The queue's memory has the frames that had come and were not given back, and all behind them:
 * the next process receives them again (resume_dead of queue_kinds.h), before the host says HELLO. The link says
 * whether one follows the other (xts_link_receive()). The bytes of each connection are kept, in their order, where such
 * bytes wait that TCP does not take: nobody gives them to TCP before the host claims the connection. Then it says how
 * many bytes it has sent, and the kernel says how many of them TCP has. The last ones of those that were kept are the
 * ones between, if no frame is missing among them: so when one is, all that was kept before is dropped.
 *
 * Of the other messages SHARE is carried out: who has ended since does not say again that nobody else has a connection.
 *
 * Frames that were given back are not there. What TCP had not taken of them was in the spill buffer, which the ledger
 * tells of (processes/parked_spilled.c).
 *
 * A trunk's frames carry those of the channels behind a relay. These exist when the relay has said HELLO; until then
 * what is theirs is in the list of channels that are expected (processes/move_relayed.c). What comes after that is
 * received by their own links. Each channel gives its frames back in its own time, so between frames of a trunk others
 * are missing, which says nothing. Within a channel frames are given back in their order; what its own numbers say
 * counts. A frame that was lost on the way is seen there, too: bytes are missing at the end then.
 */
#ifndef XTS_REPLAY_H
#define XTS_REPLAY_H

#include <stdbool.h>

#include "queues/queue.h"
#include "wire/wire.h"

struct channel;

/* A frame of the epoch before. follows: it is the one behind the last. */
void replay_take(struct channel *ch, const struct xts_head *head, const struct xts_rx_frame *frame, bool follows);

/* All that waited has been received. */
void replay_ends(struct channel *ch);

#endif
