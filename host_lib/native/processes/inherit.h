/*
 * Sockets that several processes have: shared listeners (listeners/), fork (common_copies.c,
 * take_over.c, inherit.c), exec (exec.c), other programs (pass.c).
 *
 * Theory of operation
 *
 * A *listener* is registered at the proxy under a key, and every process that knows the key may join it (SHARE). From
 * the first fork or exec on, the same is true of a socket that is bound and does not listen yet. The proxy offers each
 * connection of a listener to one process at a time; it belongs to that process only when its application accepts it. A
 * process that neither waits nor accepts gives its offers back after GIVE_BACK_NS; the progress thread does it if the
 * application is busy.
 *
 * A *datagram socket* is registered in the same way from the first fork or exec on, and every process that knows the
 * key joins it with its first use. The process that reads first gets the datagrams that have come (shared_datagram.c).
 * Datagrams that were sent to a process which does not read them go back to the proxy (return_datagrams.c).
 *
 * A *connection* that several processes have is used by one at a time, its *holder*; the others know its key, which the
 * parent made at the fork and registered at the proxy (SHARE). A call on it in another process takes it (take_over.c):
 * TAKE makes the proxy ask the holder (YIELD). The holder parks the connection when none of its calls needs it, and
 * returns the bytes that it had received and not read. Then the connection goes, with these bytes first, to the process
 * that needs it most, and among equals to the one that asked first; but who was passed over goes first (take_queue.c of
 * the proxy). Each process takes it on its own channel, attached for the purpose. So parent, children and their
 * children may alternate; each change costs some round trips. A process that only waits for events gets it once the
 * holder has not used it for 20 ms, or has kept it from that process for 50 ms. A holder that does not answer in 2 s is
 * stopped: a call that waits fails with ETIMEDOUT. One that must not wait has failed with EAGAIN long before.
 *
 * A file that these processes have in common says which of them have a copy (relatives.h). When the holder closes or
 * exits, and others have copies, it parks the connection; the last copy to be closed closes the connection. When a
 * holder is killed, the proxy keeps the connection for CONNECTION_KEEP_MS, and tells the process that takes it how many
 * bytes went each way. If the holder had not read all that was sent to it, or the proxy did not receive all that the
 * holder had sent, the connection is lost (ECONNRESET), else it goes on.
 *
 * What a program has shut down is in that file too, from the call on, so that it is known after a death. A process that
 * does not have the connection, and is not given it at once, only notes it: whoever takes the connection next, or the
 * holder with its next look, carries it out. FIN may so be sent twice, which is one FIN to the proxy.
 *
 * Over exec() the keys pass in a memfd, with the number of the relatives' file. A connection that no other process has
 * is parked under a key, and its unread bytes are in that memfd too.
 *
 * A socket passes to another program as the descriptor of a kernel socket, to which its key and state are attached
 * (pass.c, label.h). The receiver joins a listener at once, and takes a connection when it uses it. Programs that are
 * not relatives have no file in common: which of them have a connection shows in a file that travels with it, its
 * deed (passed_copies.h).
 */
#ifndef XTS_INHERIT_H
#define XTS_INHERIT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"

/* How long a process that has inherited a connection waits for a queue: agent and proxy start in less. With 3 s
 * children lost connections on a busy machine (tests/chaos). */
#define INHERITED_AWAY_NS (15 * NS_PER_S)

struct epoll_ctx;
struct stack;
struct xts_sock;

#define GIVE_BACK_NS (2 * NS_PER_MS)
#define OFFERS_AT_ONCE 4u /* connections offered to a process that shares the listener with others */
/* how long a listener stays after its last member has left it to others, for children that have not joined yet */
#define LISTENER_KEEP_MS 5000u
/* the same after its last member was killed. Most often nobody else has it then, and clients would wait in vain; a
 * child that comes later makes it again. */
#define KILLED_KEEP_MS 500u

uint64_t key_make(void); /* random, not 0 */

/* --- share.c -------------------------------------------------------------------------------------------------- */

bool sharing_possible(struct stack *st);       /* does the proxy support it? */
bool sharing_bound_possible(struct stack *st); /* also for sockets that are bound and do not listen yet? */
/* Is it a listener, bound socket or datagram socket with a key, so that other processes get it by joining? */
bool share_by_key(const struct xts_sock *s);
bool share_is_awaited(const struct xts_sock *s);      /* does a thread wait for connections or datagrams of it? */
bool share_waits_elsewhere(const struct xts_sock *s); /* may the program sleep on a descriptor that stands for it? */
uint32_t share_keep_ms(const struct xts_sock *s);     /* for which time the proxy shall keep it for others */
void share_add(struct xts_sock *s);                   /* its key is registered at the proxy */
void share_forget(struct xts_sock *s);                /* it is no longer a shared one of this process */
int share_send(struct xts_sock *s);                   /* called by the outbox: 0, or -errno of channel_slot() */
void share_wait_begins(struct stack *st);             /* shows interest in each one that a thread waits for now */
void share_wait_ends(struct stack *st);
void share_tick(struct stack *st, uint64_t now); /* gives back what nobody waits for */
/* Gives back at once the offers of listeners at which this process has waited and never accepted: another process is
 * about to look for them. */
void share_give_back_unaccepted(struct stack *st);
/* Does this process neither wait nor accept, so that its offers have to go elsewhere? *deadline_ns: when to look again
 * (FOREVER: no need). */
bool share_is_away(struct stack *st, uint64_t now, uint64_t *deadline_ns);

/* --- sharing_processes.c ------------------------------------------------------------------------------------------ */

/* Registers the key of a listener or bound socket, for a program that is not a relative; waits; 0 or -errno. */
int share_by_key_with_others(struct xts_sock *s);
/* It was passed to another program, which may not have joined it yet. */
bool share_is_on_its_way(const struct xts_sock *s);
void share_before_fork(struct stack *st); /* gives keys to bound sockets; does not wait */
void sharers_before_fork(struct stack *st);
void sharers_after_fork_parent(struct stack *st);
void sharers_leave(struct xts_sock *listener); /* this process no longer has it */
void sharers_at_exit(struct stack *st);

/* --- pass.c ------------------------------------------------------------------------------------------------------- */

/* To another program, by its key; waits; 0 or -errno. */
int pass_by_key(struct xts_sock *s);

/* --- inherit.c ---------------------------------------------------------------------------------------------------- */

void inherit_after_fork(struct xts_sock *s); /* in the child, for each socket: sets its new state */
void inherit_after_fork_parent(struct stack *st);
void inherit_adopt(struct xts_sock *s); /* in a new program, for each socket */
/* Makes it this process's own; waits. If that is not possible, the socket fails. Connections with several copies:
 * turn_take(). */
void inherit_take(struct xts_sock *s);
/* takes over the listeners that a program waits for in a context */
void inherit_take_watched(struct stack *st, const struct epoll_ctx *ctx);
void inherit_is_here(struct xts_sock *s); /* it belongs to this process from now on, or to no process */
void inherit_is_elsewhere(struct xts_sock *s);
void inherit_release(struct xts_sock *s); /* its entry of the table is for another socket from now on */
/* Before exec: parks a connection that no other process has under a new key. Waits; 0 or -errno. */
int connection_park(struct xts_sock *s, uint64_t deadline_ns);
void connection_take_back(struct xts_sock *s); /* after an exec that failed */
/* it belongs to another process; the reason is reported when the application uses it */
void socket_not_here(struct xts_sock *s, uint8_t reason);
void socket_report_gone(struct xts_sock *s);

#endif
