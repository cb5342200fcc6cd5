/*
 * Sockets that several processes have: shared listeners (shared_listener.c), fork (inherit.c in the child, children.c
 * in the parent), exec (socket_record.c).
 *
 * Theory of operation
 *
 * A *listener* has a key with the proxy, and every process that has the key may join it (SHARE). So has a socket that
 * is bound and does not listen yet, from the first fork or exec on. A listener's connections are offered to one process
 * at a time, and are its own only when its application accepts. A process that neither waits nor accepts gives its
 * offers back after GIVE_BACK_NS; the progress thread does it if the application is busy.
 *
 * A *connection* is of one process at a time. After fork() it stays the parent's; the child's copy, under the same
 * number, is INHERITED_ASK: a name. The first use in the child (table_use) asks the parent over the *link*, a socket
 * pair made before the fork. The parent parks the connection under a key and answers with a memfd: the state (struct
 * socket_record), and what it had received and not read. The child's copy is INHERITED_KEYED then, and claims it on the
 * child's own channel, attached for the purpose. The parent's is MOVED. While a child may come to ask
 * (children_may_want), the parent's close() only keeps the connection aside; a child that has gone, or closes its copy,
 * lets it be closed. A parent that exits parks what living children may want and leaves the answers in their links.
 *
 * Over exec() the same records go through one memfd. What is still the parent's stays so: the new program has the link.
 */
#ifndef XTS_INHERIT_H
#define XTS_INHERIT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"

struct epoll_ctx;
struct child;
struct stack;
struct xts_sock;

/* The link to the parent, of a stack of a forked child: inherit.c. */
struct parent_link {
	int fd;           /* -1: none */
	unsigned links;   /* that there have been since the fork */
	bool reading;     /* a thread reads it, for all */
	uint16_t waiters; /* the others */
};

/* Children that may want connections of a stack: children.c. */
struct children {
	struct child *first;  /* newest first */
	struct child *coming; /* of the fork that is under way */
	int child_end;        /* of its link, or -1 */
	int set;              /* epoll set of the links, while the thread serves; or -1 */
	unsigned answering;   /* answers that threads are at */
	bool leaving;         /* another thread hands everything over */
};

#define GIVE_BACK_NS (2 * NS_PER_MS)
#define OFFERS_AT_ONCE 4u         /* connections offered to a process that shares the listener with others */
#define LISTENER_KEEP_MS 5000u    /* a listener whose last member has exited, for children that have not joined yet */
#define CONNECTION_KEEP_MS 60000u /* a parked connection: the longest the protocol has */

uint64_t key_make(void); /* random, not 0 */

/* --- shared_listener.c -------------------------------------------------------------------------------------------- */

bool sharing_possible(struct stack *st);       /* the proxy can */
bool sharing_bound_possible(struct stack *st); /* also sockets that are bound and do not listen yet */
/* other processes have it by joining: it listens, or is bound and has its key */
bool share_by_key(const struct xts_sock *s);
void share_bound_sockets(struct stack *st); /* before a fork: those that are bound get their keys; does not wait */
int share_name(struct xts_sock *listener);  /* tells the proxy its key; waits; 0 or -errno */
int share_join(struct xts_sock *listener);  /* another process's, by its key; waits; 0 or -errno */
/* Somebody waits for a connection of this listener, or accepts: to a shared one they may come. */
void listener_interest(struct xts_sock *s);
void share_forget(struct xts_sock *listener); /* is not a shared listener of this process any more */
void share_wait_begins(struct stack *st);     /* the same for every listener a thread waits for now */
void share_wait_ends(struct stack *st);
bool share_offered(struct xts_sock *listener);     /* takes a credit for an offer; false: there was none */
void share_drop_offers(struct xts_sock *listener); /* they go back with the listener or the channel */
void share_tick(struct stack *st, uint64_t now);   /* gives back what nobody accepts */
/* Somebody has to take this process's offers, for it is away. *deadline_ns: when to look again (FOREVER: no need). */
bool share_is_away(struct stack *st, uint64_t now, uint64_t *deadline_ns);

/* --- sharing_processes.c ------------------------------------------------------------------------------------------ */

void sharers_before_fork(struct stack *st);
void sharers_leave(struct xts_sock *listener); /* this process has it no more */
void sharers_at_exit(struct stack *st);

/* --- inherit.c: in the child -------------------------------------------------------------------------------------- */

bool inherit_possible(const struct xts_sock *s); /* could a child have it? */
void inherit_after_fork(struct xts_sock *s);     /* in the child, of each socket: what it is now */
/* makes it this process's own; waits. A socket that cannot be had has failed */
void inherit_take(struct xts_sock *s);
void inherit_take_back(struct xts_sock *s);             /* a connection this process has parked, and nobody has taken */
int inherit_obtain(struct xts_sock *s);                 /* its key and state; waits; 0 or -errno */
void inherit_release(struct xts_sock *s);               /* this process does not want it */
void inherit_take_watched(const struct epoll_ctx *ctx); /* listeners that a program waits for in a context */
void inherit_uplink(struct stack *st, int fd);          /* the link to the parent, in a new child; -1: none */
void inherit_adopt_uplink(struct stack *st, int fd);    /* in a new program */
int inherit_pass_uplink(struct stack *st, bool pass);   /* over exec, or not after all: the descriptor, or -1 */
void inherit_adopt(struct xts_sock *s, uint8_t how);    /* in a new program */
/* it is not this process's: told when the application uses it */
void socket_not_here(struct xts_sock *s, uint8_t reason);
void socket_report_gone(struct xts_sock *s);
void inherit_read(struct stack *st); /* files what the parent has said, if anything */
void inherit_at_exit(struct stack *st);

/* --- children.c: in the parent ------------------------------------------------------------------------------------ */

void children_before_fork(struct stack *st);
void children_after_fork_parent(struct stack *st);
int children_after_fork_child(struct stack *st); /* the child's end of the link, or -1 */
void children_at_exit(struct stack *st, bool pass_uplink);
bool children_keep(struct xts_sock *s); /* at close: it has to wait for a child that may want it */
/* gives it up under a new s->own.key; waits; 0 or -errno */
int connection_park(struct xts_sock *s, uint64_t deadline_ns);

/* What passes over a link. An answer of number 0 comes last, from a parent that exits: with its own link to its
 * parent. */
struct link_message {
	uint32_t number;
	int32_t error;      /* of an answer: why there is no memfd with it; of a question: 0 take, 1 release */
	uint32_t elsewhere; /* of an answer: it is the grandparent's, who is to be asked under this number */
};

/* --- socket_record.c: state that passes between processes --------------------------------------------------------- */

int record_make(const char *name, unsigned flags);               /* an empty memfd or -errno */
int record_write(int memfd, struct xts_sock *s, int descriptor); /* appends it, with unread data; 0 or -errno */
/* Reads the next one into *s, or a new socket where that is NULL: 1, 0 at the end, -errno; RECORD_AGAIN: one that was
 * read before, with another descriptor. is_child: into a copy that the fork made, whose own options stay. */
#define RECORD_AGAIN 2
int record_read(struct stack *st, int memfd, struct xts_sock **s, bool is_child, int *descriptor);

#endif
