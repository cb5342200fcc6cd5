/* Handing a channel over, as its own files see it: move_requests.c, and move_trunk.c for a relay's queue. */
#ifndef XTS_MOVE_INSIDE_H
#define XTS_MOVE_INSIDE_H

#include "channel/channel.h"
#include "worker/worker.h"

/* --- move_requests.c ---------------------------------------------------------------------------------------------- */

/* Can its host go on with another process? */
bool move_is_possible(const struct channel *ch);
/* Has it sockets that cannot be handed over, and may end by themselves? */
bool move_waits_for_sockets(const struct channel *ch);
/* The same, for the operator. */
void move_tell_waiting(const struct channel *ch, struct xts_move_waits *waits);
bool move_waits_for_handshakes(struct channel *ch);
/* It is to leave. 0 or -ENOMEM. */
int move_begin(struct channel *ch, uint32_t within_ms);
/* MOVE leaves, and so it begins, if it has not. 0; -EAGAIN: there is no room; -ENOMEM. */
int move_ask_host(struct channel *ch, uint32_t within_ms);
/* Sockets, as many as there is room for, and their tenant. */
void move_take_sockets(struct channel *ch, struct xts_moved *out);

/* --- move_trunk.c ------------------------------------------------------------------------------------------------- */

/* As xts_worker_move_ask(), for the channel of a relay. */
int move_trunk_ask(struct channel *trunk, uint32_t within_ms, enum xts_move_urgency urgency,
		   struct xts_move_waits *waits);
/* Has the channels behind it and then itself left, as far as that is possible now. */
void move_trunk_turn(struct channel *trunk);
/* Sockets of one of them. */
void move_trunk_take(struct channel *trunk, struct xts_moved *out);
/* All have given their sockets: lists them, and frees them. 0 or -ENOMEM. */
int move_trunk_list(struct channel *trunk, struct xts_moved *out);

#endif
