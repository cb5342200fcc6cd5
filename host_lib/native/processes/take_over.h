/* Connections that several processes have and use in turn: take_over.c (taking), give_up.c, common_copies.c (fork,
 * close, exit). */
#ifndef XTS_TAKE_OVER_H
#define XTS_TAKE_OVER_H

#include <stdbool.h>
#include <stdint.h>

/* how long a connection that no process holds is kept: the longest time that the protocol allows */
#define CONNECTION_KEEP_MS 60000u

struct channel;
struct living;
struct stack;
struct xts_sock;

enum { PURPOSE_NOBODY, PURPOSE_POLL, PURPOSE_RECEIVE, PURPOSE_USE }; /* purposes in TAKE and YIELD */

/* --- take_over.c ------------------------------------------------------------------------------------------------- */

#define AT_ONCE UINT64_C(0) /* for a call that must not wait */

/* Takes over a connection that another process holds. May wait until until_ns. Returns 0; -EAGAIN: it has not got it by
 * then; -ETIMEDOUT: its holder does not answer for longer than any call waits; -ERESTART: a signal; -EBADF: closed
 * meanwhile; or the errno with which the connection has failed. */
int turn_take(struct xts_sock *s, uint32_t purpose, uint64_t until_ns);
/* The same, waiting as long as its holder answers, for one that the program has closed and nobody else has. */
int turn_take_to_close(struct xts_sock *s);
/* The progress thread asks for it: for a poll, or since its holder has closed it. Does not wait for the holder. */
void turn_seek(struct xts_sock *s);
int turn_take_kept(struct xts_sock *s);
/* turn_begin(): a call begins that does not wait for data or room; takes the connection over, unless purpose is
 * PURPOSE_NOBODY. turn_use(), later in the call: takes it over if another process holds it, with the results of
 * turn_take(); does not wait for a holder that has already left this call without an answer. */
void turn_begin(struct xts_sock *s, uint32_t purpose);
int turn_use(struct xts_sock *s);
/* The proxy has given the connection to this process: what the last holder wrote in the entry is valid now. */
void turn_is_taken(struct xts_sock *s, bool died);

/* --- give_up.c ---------------------------------------------------------------------------------------------------- */

/* turn_is_asked_for(): another process asks for it, and it is needed here for now: answers YIELD. turn_yield_some():
 * gives up the connections that others have asked for, as far as that is possible. */
void turn_is_asked_for(struct xts_sock *s);
void turn_yield_some(struct stack *st);
/* A thread is about to wait on this counter. If it waits for data of a connection that others want to use, the
 * connection is given up: the thread need not hold it. */
void turn_yield_read(struct stack *st, const uint16_t *subject);
/* Begins to give it up. False: not possible now. */
bool turn_give_up(struct xts_sock *s);
int turn_send_park(struct xts_sock *s); /* called by the outbox: 0, or -errno of channel_slot() */
int turn_send_returns(struct xts_sock *s);
void turn_parked(struct xts_sock *s, int error); /* PARK has been answered */
void turn_channel_died(struct xts_sock *s);

/* --- common_copies.c ---------------------------------------------------------------------------------------------- */

void common_before_fork(struct stack *st);
void common_after_fork_parent(struct stack *st);
bool common_inherited(struct xts_sock *s); /* in the child: it has a copy */
/* The others can see how much this process, which holds it, has read and sent. */
void common_tell_counts(struct xts_sock *s);
/* Who has the other end of the attachment sees in the files when no process has a connection any more. */
void common_tell_server(struct channel *c);
void common_tell_shutdown(struct xts_sock *s); /* ... and which directions its program has shut down */
/* The program shuts a connection down that another process has now and does not give up at once. False: not possible. */
bool common_shuts_later(struct xts_sock *s, uint8_t bits);
int common_make(struct xts_sock *s); /* other processes will have it: 0; -EOPNOTSUPP, -ENOMEM: not possible */
/* As the relatives_*() functions of these names, for relatives and for programs that the connection was passed to. */
bool common_others_have(struct xts_sock *s, struct living *living);
bool common_leave(struct xts_sock *s);
bool common_kept(struct xts_sock *s);
/* At close. True: nothing is left to do for the caller, as the rest happens later. */
bool common_closes(struct xts_sock *s);
void common_at_exit(struct stack *st);
/* Looks after connections that polls wait for, and those that the application has closed. *deadline_ns: when to do so
 * again. */
void common_tick(struct stack *st, uint64_t *deadline_ns);
void common_look_soon(struct stack *st); /* makes the progress thread look soon */
void common_forget(struct xts_sock *s);  /* this process alone has it */
void common_count(struct xts_sock *s);   /* it has an entry, and is looked after from now on */
void common_drop(struct xts_sock *s);    /* it is no longer looked after */
void common_detach(struct xts_sock *s);  /* it has no entry any more */

#endif
