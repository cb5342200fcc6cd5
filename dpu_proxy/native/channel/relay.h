/*
 * Channels behind a relay of the host's agent (PROTOCOL.md, "Relays"; mux.h).
 *
 * The relay's queue has a channel like any other, the trunk. When its link has opened with the feature RELAY, each
 * CARRIED message that begins a link (TOKEN or HELLO) with a number not seen before makes a channel of its own: with
 * its own epoch, token, tenant, identifiers and limits, exactly as if it had a queue. It is freed when its link goes
 * down, or when the epoch of the trunk ends.
 */
#ifndef XTS_WORKER_RELAY_H
#define XTS_WORKER_RELAY_H

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct ledger_page;
struct xts_mux;
struct xts_head;
struct xts_rx_frame;
struct move_expected;
struct xts_tenant;

/* Part of a channel. */
struct relayed {
	struct xts_mux *mux; /* of a trunk, while its link is up */
	uint32_t count;      /* of a trunk: how many channels are behind it, including those that are ending */
	bool full_told;
	struct move_expected *expected; /* of a trunk that has come from another process: channels that come with it */
	uint32_t expected_count;
	struct channel *trunk;    /* of a channel behind a relay: its trunk */
	uint32_t number;          /* its number behind the relay; 0: it has a queue of its own */
	struct ledger_page *page; /* of a channel behind a relay; NULL: nothing of it is written down */
};

/* The link has opened with the feature RELAY. 0 or -errno: it cannot be a trunk. */
int relay_open(struct channel *trunk);
/* The epoch of the trunk is over, and so are those of all channels behind it, which end in the next rounds. Does
 * nothing for a channel that is not a trunk. */
void relay_close(struct channel *trunk);
/* Handles a CARRIED message. False: the channel is not a trunk, so the message is a violation. */
bool relay_take(struct channel *trunk, const struct xts_head *head, const struct xts_rx_frame *frame);
/* By which a message of the host is judged. A relay that moves has one feature for that, which older proxies do not
 * know: with MOVE they would take its queue, and not the channels behind it. */
uint64_t relay_features(const struct channel *ch);
/* Has a channel behind a relay ended, with nothing left to send? */
bool relay_has_ended(const struct channel *ch);
/* The next channel behind the trunk; NULL: there is none. `after`: NULL: the first. */
struct channel *relay_next(const struct channel *trunk, const struct channel *after);
/* Makes a channel behind the trunk. 0 or -errno. */
int relay_add(struct channel **out, struct channel *trunk, uint32_t number, struct xts_tenant *tenant);
/* Called when a channel is freed. */
void relay_forget(struct channel *ch);

#endif
