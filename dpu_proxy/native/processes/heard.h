/*
 * What a host has sent, where nobody says so: its process of the proxy has died, or left the queue, and the host
 * sleeps, or has ended before it could claim what it had.
 *
 * Theory of operation. RESUME says how many bytes a host has sent. The same can be known without the host. The line of
 * the ledger has the count up to a frame (ledger_took()). The frames that are received again (turns/replay.h) are
 * numbered, those behind it are counted on. So when all frames have come, it is known what is missing to TCP, as long
 * as no frame is missing between two of them. Two things are done with that:
 *
 *   - when all has been received that waited for the dead process, it goes to TCP (heard_deliver()). A program that
 *     sleeps outside the library says RESUME with its next call, perhaps in an hour. With protocols it waits for that;
 *   - when the host has ended, its connections are claimed for it, and end as those of any process (heard_end_one()).
 *     The kernel delivers what a process had sent, too.
 *
 * After an upgrade nothing has to be counted: the process before had received all.
 */
#ifndef XTS_HEARD_H
#define XTS_HEARD_H

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct connection;
struct parked;
struct xts_head;
struct xts_tenant;

/* Numbers of frames that are received again, of one host. */
struct heard_frames {
	uint32_t number; /* of the last one that had come, and then of the last one that came again */
	bool any;        /* one has come again */
	bool over;       /* all that waited has come */
	bool mute;       /* their host has ended, and has not said HELLO */
};

/* A frame has come again; `follows`: it is the one behind the one before. False: one is missing. */
bool heard_frame(struct heard_frames *h, const struct xts_head *head, bool follows);

/* A connection was recovered, and this is what its line says of what was taken. kept: its protocols have taken all of
 * that, and nothing behind it (pushed/pushed_kept.h). Takes the lock. */
void heard_begins(const struct xts_tenant *t, uint64_t key, uint64_t taken, bool kept);
/* With the lock held: so much has come for it, in the last frame. False: it was counted. */
bool heard_more(struct parked *p, const struct heard_frames *h, uint32_t bytes, uint8_t flags);

/* With the lock held: there is more to deliver of one that is settled. */
void heard_again(struct parked *p);

/* With the lock held: its host has ended, or does not claim it, and other processes may have it. All that this host has
 * sent waits for TCP from then on, and the counts are as if its process of the proxy lived: with what waits, and
 * without what was read for the host and not sent to it. Of one with protocols, or of which frames are missing, nobody
 * knows that: the counts are TCP's. False: bytes were found, and they are not all that is missing. */
bool heard_completes(struct parked *p);

/* All that waited for the dead process has been received. Takes the lock. */
void heard_deliver(struct channel *ch);

/* The channel is ending: of the sockets that its host has not claimed, or not returned all of, one ends. *c: it is a
 * connection of this channel now, and has to end as others do; `reset`: its host has said so. False: there is none.
 * Takes the lock. */
bool heard_end_one(struct channel *ch, struct connection **c, bool *reset);

#endif
