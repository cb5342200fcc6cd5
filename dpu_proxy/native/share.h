/*
 * Sockets that outlive a process or change hands (PROTOCOL.md): listeners that several channels accept from, and
 * connections parked under a key.
 *
 * Theory of operation
 *
 * Workers share nothing on the data path, and between two messages none takes a mutex that is everybody's
 * (common_lock.h). The registry, one per process under one mutex, is off that path: the mutex is taken when a socket is
 * shared, joined or left, when a connection or datagrams are given back, when a connection is asked for, parked or
 * claimed, and while a parked one drains. Whether there is any such thing to do is looked at without it: a shared
 * socket has a flag for what waits in it (any_waiting, returned.any) and one for its end, a worker has one for all that
 * other workers leave for it (worker->left, set by worker_poke()). A flag is written under the mutex and then the
 * worker is poked, so who sees an old value looks again.
 *
 * A shared listener (struct shared) is one TCP socket. Each *member* is a connection of state LISTENER on some channel,
 * with a descriptor of its own for that socket (dup) in its worker's epoll, so that closing, options and events work as
 * for any listener. A socket that is bound and does not listen yet is shared in the same way: its members are IDLE,
 * each becomes a LISTENER by its own LISTEN, and from the first LISTEN on those that join are LISTENERs. All members'
 * workers are told of a newcomer, not one of them (EPOLLEXCLUSIVE): the one woken might hold no credits. Who accepts
 * offers it to its own worker's members; members and their counts are touched by their own worker only, the list of
 * them under the mutex. In addition, the members on one worker are a ring (connection.share_here), which is that
 * worker's own: it chooses whose turn it is without the mutex. A connection that is given back waits in the shared
 * listener for a worker whose members have credits; they are poked.
 *
 * A datagram socket is shared in the same way, at any time after it was opened. Its members are in the state DATAGRAM.
 * What has come to it is in the kernel's queue until a member takes it, so nothing is offered. What a member's host has
 * not read may come back; it waits in struct shared, and goes first (datagram_returned.c).
 *
 * What nobody holds (a listener without members, a parked connection) has a *keeper*: the worker of the last that held
 * it, which ends it when its time is over, or when the worker stops. The number of connections that belong to no
 * channel and the bytes waiting in them are limited for each tenant, and a key means nothing to another tenant than the
 * one that made it.
 *
 * A parked connection's spill buffer goes on draining in its keeper. Who claims it, in whatever thread, takes
 * descriptor and buffer under the mutex and leaves a stale entry, for the keeper may hold an epoll event that points at
 * it; the keeper frees stale entries at the end of a round.
 *
 * A connection that several processes have is *held* by one channel and has a key there (struct held, held.c). A
 * process of another channel asks for it (TAKE): the registry notes for what, and the holder's worker sends YIELD. The
 * holder parks it under its key, and what it had received and its application had not read comes back to the parked
 * connection (RETURN, returned.c). Until the last of that has come, nobody can take it; if the holder's channel ends
 * before, it is reset. If the channel of a holder ends that has not parked it, the proxy parks it by itself, and who
 * takes it is told how much had gone each way. So a process that is killed takes nothing of others with it, unless
 * something is missing. Of several who ask for a connection the one that needs it most, and then the first, gets it
 * (take_queue.c).
 */
#ifndef XTS_SHARE_H
#define XTS_SHARE_H

#include "channel.h"
#include "filter_use.h"
#include "multicast.h"

enum keyed_kind { KEYED_LISTENER, KEYED_PARKED, KEYED_HELD };

/* What a key stands for. */
struct keyed {
	struct list by_key; /* in the registry; on no list: its key is nobody's any more */
	struct list kept;   /* on keeper->kept, while nobody holds it, or its tenant's unowned->expired there */
	struct worker_state *keeper;
	struct xts_tenant *tenant; /* a reference, while it is in the registry */
	struct timer expiry;       /* on keeper->kept_timers, while it is on keeper->kept */
	uint64_t key;
	enum keyed_kind kind;
	struct take_queue *queue; /* of those who ask for the connection; NULL: nobody has, lately */
};

/* Datagrams that members have given back (datagram_returned.c). */
struct returned_datagrams {
	struct returned_block *first, *last;
	uint32_t blocks;
	_Atomic bool any; /* to be looked at without the lock */
};

struct shared {
	struct keyed keyed;
	struct list all;   /* on the list of all */
	int fd;            /* outlives the members' */
	struct name *name; /* likewise */
	uint8_t ip_version;
	bool closing;                                 /* nobody joins it any more; what waits for it is being reset */
	atomic_bool ended;                            /* drained: members remain until their hosts close them */
	bool abandoned;                               /* no process is left that might still join it: never kept */
	bool listens;                                 /* a member has called LISTEN */
	struct list members;                          /* connection.share */
	struct waiting *first_waiting, *last_waiting; /* given back */
	atomic_bool any_waiting;                      /* to be looked at without the lock */
	struct pushed *pushed;                        /* protocols for what is accepted; for members that join */
	/* of a datagram socket */
	struct multicast *multicast; /* a reference; NULL: it is none */
	bool bound;                  /* by a host */
	struct filter_use filter;
	_Atomic uint32_t dropped; /* as SO_RXQ_OVFL has said last, to any member */
	struct returned_datagrams returned;
};

/* A connection with a key that a channel holds. */
struct held {
	struct keyed keyed;
	struct list wanted;            /* on worker->wanted: somebody asks for it, and the worker does not know yet */
	struct channel *channel;       /* these three do not change */
	struct connection *connection; /* its worker's alone */
	struct worker_state *worker;
	uint32_t keep_ms;  /* how long the connection outlives this process, if that dies; 0: nobody else has it */
	uint8_t purpose;   /* what it is wanted for; the worker does not know yet */
	uint8_t asked;     /* the greatest purpose its holder has been asked for and has not answered */
	uint8_t yield_due; /* the worker's: the purpose that YIELD is to tell, 0 for none */
	bool answered;     /* by the holder, since it was asked last */
};

/* What the process that takes a connection over is told of the last one. */
struct taken_over {
	bool died;
	uint64_t delivered_bytes, accepted_bytes;
	uint32_t keep_ms;
	struct take_queue *queue; /* not for the process: the others who ask for it */
};

/* --- registry.c --------------------------------------------------------------------------------------------------- */

/* All below need the lock, unless they say that they take it. */
void registry_lock(void);
void registry_unlock(void);
/* Of this tenant: a key is nobody else's name. */
struct keyed *registry_find(const struct xts_tenant *t, uint64_t key, enum keyed_kind kind);
/* 0, EEXIST, EINVAL for key 0, ENOBUFS when the tenant may name no more listeners. */
int registry_add(struct keyed *k, struct xts_tenant *t, uint64_t key, enum keyed_kind kind);
void registry_remove(struct keyed *k);
/* Its key is nobody's any more; what it is charged for stays until registry_remove(). */
void registry_forget(struct keyed *k);
/* Nobody holds it now: the calling worker keeps it for a while. */
void registry_keep(struct keyed *k, struct worker_state *w, uint32_t keep_ms);
void registry_unkeep(struct keyed *k);
/* A connection without a channel begins, which keeps so many bytes (spilled, or in its protocols). False: over a limit of its tenant. */
bool registry_take_unowned(struct xts_tenant *t, uint64_t bytes);
/* It ends, and what it kept last. */
void registry_give_unowned(struct xts_tenant *t, uint64_t bytes);
/* What has been kept long enough is to be ended, in turns of its tenant. Takes the lock. */
void registry_expire(struct worker_state *w);
/* Ends some of it, for the rest of the turn, one piece at least. Takes the lock. */
void registry_end_some(struct unowned *u, struct worker_state *w);
/* Ends all that the worker keeps, at once. Takes the lock. */
void registry_end_all(struct worker_state *w);
/* The worker's gauges. Without the lock. */
void registry_stats(struct worker_state *w, struct xts_worker_stats *out);

/* --- share.c ------------------------------------------------------------------------------------------------------ */

/* Errors are positive. All take the lock, except shared_end(). */
int share_start(struct connection *l, uint64_t key, uint32_t keep_ms);
/* LISTEN of a member: who joins from now on listens too. */
void share_listens(struct connection *l);
/* A member is about to connect: it leaves with the TCP socket to itself. EOPNOTSUPP: others have it too. */
int share_part(struct connection *c);
struct connection *share_join(struct channel *ch, uint64_t key, int *error);
/* The member leaves, its open offers go back. closed: by its host, else its channel has ended. */
void share_leave(struct connection *l, bool closed);
/* A member is about to leave. If its socket is to be closed then, nobody joins any more, and what waits for it is
 * reset, until the turn is over. True: it can leave. */
bool share_end_some(struct connection *l, bool closed);
/* Is there anything to offer? */
bool share_has_news(const struct connection *l);
/* The member of l's listener, on l's worker, whose turn it is; NULL while none has post credits. */
struct connection *share_turn(struct connection *l);
/* It has been given a connection, or could not be told of one: the others go first. */
void share_turn_ends(struct connection *l);
/* A connection that was given back, and the protocols on it, or -1. */
int share_take_waiting(struct connection *l, struct pushed **pushed);
/* Nothing is left to accept: no member on this worker need try. */
void share_accepted_all(struct connection *l);
/* The host gives back a connection it was offered: c is freed. */
void share_give_back(struct connection *c);
/* Another worker has left something for this one's members. */
void share_poked(struct worker_state *w);
/* No newcomers from now on: the listening socket is shut for all members. */
void share_drain(struct connection *l);
/* Closes the listeners that this worker only keeps, until the turn is over. True: none is left. */
bool share_drain_kept(struct worker_state *w);
/* Likewise those, whoever keeps them, on an address that somebody of the same tenant binds: of UDP, or of TCP. */
bool share_gives_way(struct worker_state *w, const struct xts_tenant *t, bool datagrams,
		     const struct xts_endpoint *local);
/* With the lock held: closes the socket and resets what waits; frees it when it has no members. */
void shared_end(struct shared *s);
/* With the lock held: a piece of that, of a listener without members. True: it was the last. */
bool shared_end_piece(struct shared *s);
/* A member, of a datagram socket, has been bound. */
void share_is_bound(struct connection *c);
/* The kernel says that so many datagrams have been dropped: how many of them no member has been told of. Without the lock. */
uint32_t share_new_drops(struct shared *s, uint32_t dropped);
/* Datagrams that c's host has given back are the shared socket's from now on, and its members are told. False: it has
 * ended, or has too many. */
bool share_returned(struct connection *c, struct returned_block *b);
/* Is there one of those? Without the lock. */
bool share_has_returned(const struct connection *c);
/* Closes a connection's socket by reset. */
void reset_and_close(int fd);

/* --- park.c, claim.c, park_returns.c ------------------------------------------------------------------------------ */

/* The connection leaves its channel: c is freed, unless there is a (positive) error. Takes the lock. */
int park_start(struct connection *c, uint64_t key, uint32_t keep_ms);
/* A connection of this channel that was parked; NULL with *error. Takes the lock. */
struct connection *park_claim(struct channel *ch, uint64_t key, int *error);
/* An event of WATCH_PARKED: TCP takes more of what is spilled. It is delivered in turns (unowned_drain_some()). */
void park_event(struct watch *watch);
/* The same of a connection whose host has died, and that others have too. False: it cannot be kept. Takes the lock. */
bool park_of_the_dead(struct connection *c);
/* With the lock: the parked connection is ch's; NULL with *error (EBUSY: its last process still returns what it had not
 * read, or another one goes first). */
struct connection *parked_take(struct channel *ch, struct keyed *k, uint32_t purpose, struct taken_over *out, int *error);
/* Without the lock, after it: events come. */
void parked_taken(struct connection *c);
/* A message RETURN of the host that has parked it. False: there is no such connection, or it may not return that. Takes the lock. */
bool parked_return(struct channel *ch, const struct xts_return *m, bool more, const struct batch_entry *e);
/* The channel is ending: what it has parked and not returned all of is incomplete, and one of these is reset. False:
 * there is none. Takes the lock. */
bool parked_end_one_of(struct channel *ch);
/* Delivers some of what is on unowned->drains; true: TCP takes more. Takes the lock. */
bool park_drain(struct list *noted, struct worker_state *w);
/* Frees stale entries; no event that was fetched before is still to come. Takes the lock. */
void park_reap(struct worker_state *w);
/* With the lock held: resets the connection. */
void parked_end(struct keyed *k);

/* --- held.c ------------------------------------------------------------------------------------------------------- */

/* Gives a connection its key, or changes keep_ms (0: it has none any more). Positive errno. */
int held_name(struct connection *c, uint64_t key, uint32_t keep_ms);
void held_forget(struct connection *c);
/* The same with the lock; it has a key. */
void held_remove(struct connection *c);
/* The connection of a key, if it is parked. Else NULL with *error: EBUSY, its holder has been asked for it; EAGAIN, and
 * that has answered that it needs it; EISCONN, it is ch's; ENOENT. */
struct connection *held_take(struct channel *ch, uint64_t key, uint32_t purpose, struct taken_over *out, int *error);
/* Another worker has asked for connections of this one. */
void held_poked(struct worker_state *w);
/* Is there a YIELD to send? */
bool held_has_news(const struct connection *c);
void held_send_yield(struct connection *c, const struct xts_tx_slot *slot);

/* --- take_queue.c ------------------------------------------------------------------------------------------------- */

/* All need the lock. ch asks for a connection that it cannot have now. */
void take_queue_wait(struct keyed *k, const struct channel *ch, uint32_t purpose);
/* Nobody who waits for it goes before ch? */
bool take_queue_is_first(struct keyed *k, const struct channel *ch, uint32_t purpose);
/* ch has it now */
void take_queue_served(struct keyed *k, const struct channel *ch);
void take_queue_free(struct take_queue *q, struct xts_tenant *t); /* NULL: nothing */

#endif
