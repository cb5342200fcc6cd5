/* Connections that several processes have and use by turns: take_turns.c (taking), give_up.c, common_copies.c (fork, close, exit). */
#ifndef XTS_TAKE_TURNS_H
#define XTS_TAKE_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define CONNECTION_KEEP_MS 60000u /* a connection that nobody holds: the longest the protocol has */

struct living;
struct stack;
struct xts_sock;

enum { PURPOSE_NOBODY, PURPOSE_POLL, PURPOSE_RECEIVE, PURPOSE_USE }; /* of TAKE and YIELD */

/* --- take_turns.c ------------------------------------------------------------------------------------------------- */

/* Makes a connection this process's if it is not. May wait: 0; -EAGAIN, its holder still receives at needed_until_ns
 * (or, with PURPOSE_POLL, uses it); -ETIMEDOUT, its holder does not answer; -ERESTART, a signal; -EBADF, closed
 * meanwhile; or it has failed, with its errno. */
int turn_take(struct xts_sock *s, uint32_t purpose, uint64_t needed_until_ns);
/* A call on it begins: it is taken, unless for PURPOSE_NOBODY. turn_use(), later in the call, takes it where it is
 * elsewhere, and does not wait for a holder that has not answered this call before: as turn_take(). */
void turn_begin(struct xts_sock *s, uint32_t purpose);
int turn_use(struct xts_sock *s);
/* the proxy says so: what the last process said of it holds from here on */
void turn_is_taken(struct xts_sock *s, bool died);
/* Is it being given up, or another process's? Then the calls that use it have to take it first. */
bool turn_is_elsewhere(const struct xts_sock *s);

/* --- give_up.c ---------------------------------------------------------------------------------------------------- */

/* Gives up the connections that others have asked for, as far as they can be. */
void turn_is_asked_for(struct xts_sock *s); /* and is needed here for now: the answer to YIELD */
void turn_yield_some(struct stack *st);
/* A thread is about to wait for what this counts: data, for which it need not have the connection if others use it. */
void turn_yield_read(struct stack *st, const uint16_t *subject);
/* Begins to give it up. False: it cannot be now. */
bool turn_give_up(struct xts_sock *s);
int turn_send_park(struct xts_sock *s); /* by the outbox: 0, or -errno of channel_slot() */
int turn_send_returns(struct xts_sock *s);
void turn_parked(struct xts_sock *s, int error); /* PARK has been answered */
void turn_channel_died(struct xts_sock *s);

/* --- common_copies.c
 * ----------------------------------------------------------------------------------------------------------- */

void common_before_fork(struct stack *st);
void common_after_fork_parent(struct stack *st);
bool common_inherited(struct xts_sock *s); /* in the child: it has a copy */
int common_make(struct xts_sock *s);       /* others will have it: 0; -EOPNOTSUPP, -ENOMEM: they cannot */
/* As relatives_others_have() and its like, of relatives and of programs that it was passed to. */
bool common_others_have(struct xts_sock *s, struct living *living);
bool common_leave(struct xts_sock *s);
bool common_kept(struct xts_sock *s);
/* At close: true when the rest happens later, or nothing is to be done. */
bool common_closes(struct xts_sock *s);
void common_at_exit(struct stack *st);
/* Looks after those that polls wait for, and those that the application has closed. *deadline_ns: when to do so again. */
void common_tick(struct stack *st, uint64_t *deadline_ns);
void common_look_soon(struct stack *st); /* there is something to be looked after, and the progress thread does it */
void common_forget(struct xts_sock *s);  /* this process alone has it */
void common_count(struct xts_sock *s);   /* it has an entry, and is looked after */
void common_drop(struct xts_sock *s);    /* not any more */

#endif
