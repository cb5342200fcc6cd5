/*
 * Who attaches processes says which connections no process has any more (OVER): the agent of a host, of processes that
 * may have ended.
 *
 * The keys count only within one tenant: that of the process which has told the agent of them, named by its epoch. It
 * has the epoch on this queue, or behind the relay that has it, or had it there until a short time ago. So each queue
 * remembers the last epochs that have ended on it, and their tenants, also in the ledger, for the process that goes on
 * when this one has died. An epoch is a random number that only the agent,
 * the process and the proxy know. A host that says OVER itself ends what it may end anyway, since it has to know the
 * keys, as for TAKE.
 */
#ifndef XTS_ENDED_EPOCHS_H
#define XTS_ENDED_EPOCHS_H

#include "channel/channel.h"

/* With the feature OVER in force, an epoch has begun on the channel; and: it has ended. */
void epochs_begins(struct channel *ch);
void epochs_ends(struct channel *ch);
/* An epoch has ended that another process of the proxy had, whose host has not said HELLO to this one. May be called
 * again. */
void epochs_moved_ends(struct channel *ch);
/* What this tenant had in a process that has died goes on here: epochs of it that ended there are known, too. */
void epochs_recovered(struct xts_tenant *t, uint64_t now_ns);
/* The channel is freed. */
void epochs_free(struct channel *ch);

/* OVER has come. */
void over_said(struct channel *ch, const struct xts_rx_frame *frame);

#endif
