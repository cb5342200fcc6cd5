/*
 * Sockets that several processes have: shared listeners (shared_listener.c, listener_offers.c), fork (common_copies.c,
 * take_turns.c, inherit.c), exec (exec.c), other programs (pass.c).
 *
 * Theory of operation
 *
 * A *listener* has a key with the proxy, and every process that has the key may join it (SHARE). So has a socket that
 * is bound and does not listen yet, from the first fork or exec on. A listener's connections are offered to one process
 * at a time, and are its own only when its application accepts. A process that neither waits nor accepts gives its
 * offers back after GIVE_BACK_NS; the progress thread does it if the application is busy.
 *
 * A *datagram socket* has a key in the same way, from the first fork or exec on, and every process that has the key
 * joins it when it uses it first. Who reads first gets what has come (shared_datagram.c). What a process was sent and
 * does not read goes back to the proxy (return_datagrams.c).
 *
 * A *connection* that several processes have is used by one at a time, its *holder*; the others have its key, which the
 * parent made at the fork and told the proxy (SHARE). A call on it in another process takes it (take_turns.c): TAKE
 * makes the proxy ask the holder (YIELD), which parks it when none of its calls needs it, and returns what it had
 * received and not read; then the connection goes, with these bytes first, to the process that needs it most, and among
 * equals to the one that asked first (take_queue.c of the proxy). Each process takes it on its own channel, attached
 * for the purpose. So parent, children and their children may alternate; each change costs some round trips. Who only
 * waits for events gets it from a holder that has not used it for 20 ms. A holder that does not answer in 2 s is
 * stopped: the call fails with ETIMEDOUT.
 *
 * Who has a copy stands in a file that these processes have in common (relatives.h). When the holder closes or exits,
 * and others have copies, it parks the connection; the last copy closes it. When a holder is killed, the proxy keeps
 * the connection for CONNECTION_KEEP_MS, and tells who takes it how many bytes went each way. If the holder had not
 * read all it was sent, or the proxy has not got all it had sent, the connection is lost (ECONNRESET), else it goes on.
 *
 * Over exec() keys go through a memfd, with the number of the relatives' file. A connection that nobody else has is
 * parked under a key, and what is unread of it is in that memfd too.
 *
 * To another program a socket passes as a descriptor of a socket of the kernel, on which its key and state are written
 * (pass.c, label.h). The receiver joins a listener, and takes a connection when it uses it. Programs that are no
 * relatives have no file in common. Who has a connection stands in a name in the abstract name space of Unix sockets
 * (passed_names.h).
 */
#ifndef XTS_INHERIT_H
#define XTS_INHERIT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"

struct epoll_ctx;
struct stack;
struct xts_sock;

#define GIVE_BACK_NS (2 * NS_PER_MS)
#define OFFERS_AT_ONCE 4u      /* connections offered to a process that shares the listener with others */
#define LISTENER_KEEP_MS 5000u /* a listener whose last member has exited, for children that have not joined yet */

uint64_t key_make(void); /* random, not 0 */

/* --- shared_listener.c -------------------------------------------------------------------------------------------- */

bool sharing_possible(struct stack *st);       /* the proxy can */
bool sharing_bound_possible(struct stack *st); /* also sockets that are bound and do not listen yet */
/* other processes have it by joining: it listens, or is bound, or a datagram socket, and has its key */
bool share_by_key(const struct xts_sock *s);
bool share_is_awaited(const struct xts_sock *s);      /* a thread waits for what comes to it */
bool share_waits_elsewhere(const struct xts_sock *s); /* the program may sleep on a descriptor that stands for it */
int share_name(struct xts_sock *listener);            /* tells the proxy its key; waits; 0 or -errno */
int share_join(struct xts_sock *listener);            /* another process's, by its key; waits; 0 or -errno */
/* Somebody waits for a connection of this listener, or accepts: to a shared one they may come. */
void listener_interest(struct xts_sock *s, bool accepts);
void share_add(struct xts_sock *s);           /* its key is with the proxy */
void share_forget(struct xts_sock *listener); /* is not a shared listener of this process any more */
void share_wait_begins(struct stack *st);     /* the same for every listener a thread waits for now */
void share_wait_ends(struct stack *st);
uint32_t share_promised(const struct xts_sock *s); /* credits that the proxy has, or is about to get */
/* Credits were posted for a call that does not wait; the proxy has them after this. Waits; 0 or -EBADF. */
int share_ask(struct xts_sock *listener);

/* --- listener_offers.c -------------------------------------------------------------------------------------------- */

bool share_offered(struct xts_sock *listener);     /* takes a credit for an offer; false: there was none */
void share_drop_offers(struct xts_sock *listener); /* they go back with the listener or the channel */
void share_tick(struct stack *st, uint64_t now);   /* gives back what nobody accepts */
/* What this process waited for and has never accepted goes back at once: another one is about to look for it. */
void share_give_back_unaccepted(struct stack *st);
/* Somebody has to take this process's offers, for it is away. *deadline_ns: when to look again (FOREVER: no need). */
bool share_is_away(struct stack *st, uint64_t now, uint64_t *deadline_ns);

/* --- shared_datagram.c -------------------------------------------------------------------------------------------- */

bool sharing_datagrams_possible(struct stack *st);
void share_datagram_sockets(struct stack *st);            /* before a fork: they get their keys; does not wait */
void datagram_naming(struct xts_sock *s);                 /* SHARE has been sent, or is about to be */
void datagram_is_named(struct xts_sock *s, bool refused); /* and is answered */
void datagram_interest(struct xts_sock *s);               /* somebody reads it, or waits for it */
void datagram_share_tick(struct xts_sock *s, uint64_t now);
uint64_t datagram_idle_at(const struct xts_sock *s); /* when to look again; FOREVER: no need */
void datagram_withhold(struct xts_sock *s);          /* the credits that the proxy has are void; SHARE leaves soon */
int datagram_join(struct xts_sock *s);               /* another process's, by its key; waits; 0 or -errno */

/* --- return_datagrams.c ------------------------------------------------------------------------------------------- */

/* What is unread of it leaves by the outbox, for whoever reads next. */
void datagram_return_unread(struct xts_sock *s);
/* SHARE is to be answered, or something to go back: somebody has to see to it. */
bool datagram_is_returning(const struct xts_sock *s);
int datagram_send_returns(struct xts_sock *s); /* by the outbox: 0, or -errno of channel_slot() */
/* This process leaves it to others, if there are any, with all that it has been sent. Waits. */
void datagram_leave(struct xts_sock *s);
void datagrams_leave(struct stack *st);       /* all, at the process's end */
void datagrams_before_fork(struct stack *st); /* what is unread may be for the child: waits */
/* A call that does not wait has posted credits: what was there before it is here after this. Waits; 0 or -EBADF. */
int datagram_ask(struct xts_sock *s);

/* --- sharing_processes.c ------------------------------------------------------------------------------------------ */

/* A listener, or a bound socket, has its key with the proxy, for a program that is no relative; waits; 0 or -errno. */
int share_by_key_with_others(struct xts_sock *s);
/* It was passed to another program, which may not have joined it yet. */
bool share_is_on_its_way(const struct xts_sock *s);
void share_before_fork(struct stack *st); /* those that are bound get their keys; does not wait */
void sharers_before_fork(struct stack *st);
void sharers_leave(struct xts_sock *listener); /* this process has it no more */
void sharers_at_exit(struct stack *st);

/* --- inherit.c ---------------------------------------------------------------------------------------------------- */

void inherit_after_fork(struct xts_sock *s); /* in the child, of each socket: what it is now */
void inherit_after_fork_parent(struct stack *st);
void inherit_adopt(struct xts_sock *s); /* in a new program */
/* Makes it this process's own; waits. A socket that cannot be had has failed. Connections with copies: turn_take(). */
void inherit_take(struct xts_sock *s);
void inherit_take_watched(const struct epoll_ctx *ctx); /* listeners that a program waits for in a context */
void inherit_is_here(struct xts_sock *s);               /* it is this process's from now on, or nobody's */
void inherit_is_elsewhere(struct xts_sock *s);
/* Before exec, a connection that no other process has: under a new key. Waits; 0 or -errno. */
int connection_park(struct xts_sock *s, uint64_t deadline_ns);
void connection_take_back(struct xts_sock *s); /* and after an exec that failed */
/* it is not this process's: told when the application uses it */
void socket_not_here(struct xts_sock *s, uint8_t reason);
void socket_report_gone(struct xts_sock *s);

#endif
