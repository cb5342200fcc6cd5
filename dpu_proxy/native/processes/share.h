/*
 * Sockets that outlive a process or go to another one (PROTOCOL.md): listeners that several channels accept from, and
 * connections parked under a key.
 *
 * Theory of operation
 *
 * Workers share nothing on the data path, and between two messages a worker takes no mutex that all workers share
 * (common_lock.h). The registry, one per process under one mutex, is off that path. The mutex is taken when a socket is
 * shared, joined or left, when a connection or datagrams are given back, when a connection is asked for, parked or
 * claimed, and while a parked one drains. Whether there is anything to do is checked without the mutex: a shared socket
 * has flags for what waits in it (any_waiting, returned.any) and for its end, and a worker has one for everything that
 * other workers leave for it (worker->left, set by worker_poke()). A flag is written under the mutex, and then the
 * worker is poked, so a worker that has read an old value looks again.
 *
 * A shared listener (struct shared) is one TCP socket. Each *member* is a connection of state LISTENER on some channel,
 * with a descriptor of its own for that socket (dup) in its worker's epoll, so that closing, options and events work as
 * for any listener. A socket that is bound and does not listen yet is shared in the same way: its members are IDLE,
 * each becomes a LISTENER by its own LISTEN, and from the first LISTEN on those that join are LISTENERs. A new
 * connection wakes the workers of all members, not only one (EPOLLEXCLUSIVE), because the members of that one might
 * have no credits. A worker that accepts a connection offers it to its own members. Members and their counts are
 * touched only by their own worker; the list of all members is under the mutex. In addition, the members on one worker
 * form a ring (member.here), which belongs to that worker: with it the worker chooses, without the mutex,
 * which member is next. A connection that is given back waits in the shared listener for a worker whose members have
 * credits; the workers are poked.
 *
 * Whether a shared socket listens is one thing for all members, as in the kernel (share_listening.c): a member shuts it
 * down, or has it listen, and the others follow, each on its own worker, and are told.
 *
 * A datagram socket is shared in the same way, at any time after it was opened. Its members are in the state DATAGRAM.
 * Datagrams that have arrived are in the kernel's queue until a member takes them, so nothing is offered. Datagrams
 * that a member's host has not read may come back; they wait in struct shared, and are delivered first
 * (returned_datagrams.c).
 *
 * A socket that no process holds (a listener without members, a parked connection) has a *keeper*: the worker of the
 * last holder, which ends the socket when its time is over, or when the worker stops. The number of connections that
 * belong to no channel, and the bytes waiting in them, are limited for each tenant. A key is valid only for the tenant
 * that made it.
 *
 * The keeper goes on draining the spill buffer of a parked connection. A worker that claims the connection takes
 * descriptor and buffer under the mutex and leaves a stale entry, because the keeper may have fetched an epoll event
 * that points to it. The keeper frees stale entries at the end of a round.
 *
 * A connection that several processes have is *held* by one channel, where it has a key (struct held, held.c). When a
 * process of another channel asks for it (TAKE), the registry notes the purpose, and the holder's worker sends YIELD.
 * The holder parks the connection under its key, and gives back the bytes that it had received and its application had
 * not read (RETURN, returned_bytes.c). Until the last of these has come, no process can take the connection; if the
 * holder's channel ends before that, the connection is reset. If the channel of a holder ends without parking the
 * connection, the proxy parks it itself, and the process that takes it is told how many bytes had gone each way. So a
 * process that is killed does not take other processes' connections with it, unless bytes are missing. If several
 * processes ask for a connection, the one that needs it most gets it, unless another has been passed over
 * (take_queue.c).
 */
#ifndef XTS_SHARE_H
#define XTS_SHARE_H

#include "channel/channel.h"
#include "datagrams/filter_use.h"
#include "datagrams/multicast.h"

struct move_note;
struct parked;

/* ARRIVED: a connection that has come from another process of the proxy, and whose host has not claimed it */
enum keyed_kind { KEYED_LISTENER, KEYED_PARKED, KEYED_HELD, KEYED_ARRIVED };

#define KEEP_MS_MAX 60000u /* of PARK and SHARE */

/* What a key stands for. */
struct keyed {
	struct list by_key; /* in the registry; not on a list: its key is not in use any more */
	/* while no process holds it: on keeper->kept, or on the unowned->expired of its tenant there */
	struct list kept;
	struct worker_state *keeper;
	struct xts_tenant *tenant; /* a reference, while it is in the registry */
	struct timer expiry;       /* on keeper->kept_timers, while it is on keeper->kept */
	uint64_t key;
	enum keyed_kind kind;
	struct take_queue *queue; /* the processes that ask for the connection; NULL: none has lately */
};

/* Datagrams that members have given back (returned_datagrams.c). */
struct returned_datagrams {
	struct returned_block *first, *last;
	uint32_t blocks;
	_Atomic bool any;       /* may be read without the lock */
	_Atomic uint16_t error; /* a pending error that has come back too; 0: none. Needs no lock */
};

struct shared {
	struct keyed keyed;
	struct list all;         /* on the list of all */
	int fd;                  /* outlives the members' descriptors */
	atomic_bool any_waiting; /* first_waiting; may be read without the lock. Here, where it takes no room */
	bool bound;              /* a datagram socket: a host has bound it */
	uint16_t changes;        /* how often it has begun, or ceased, to listen, modulo 65536 (share_listening.c) */
	struct bound_address *bound_to; /* outlives the members' references */
	uint8_t ip_version;
	/* of the member that named it, which tells its kind (shared_kind()): a pointer to that would be more memory */
	uint8_t state;
	bool closing : 1;    /* nobody can join it any more; connections that wait for it are being reset */
	bool abandoned : 1;  /* no process is left that might still join it: never kept */
	bool listens : 1;    /* a member has called LISTEN */
	bool elsewhere : 1;  /* another process of the proxy has the TCP socket, too (move.h) */
	atomic_bool ended;   /* drained: members remain until their hosts close them */
	atomic_bool shut;    /* a member has shut it down since it listened: nothing is accepted, or given back */
	uint16_t backlog;    /* of the last LISTEN */
	struct list members; /* member.all */
	struct waiting *first_waiting, *last_waiting; /* connections that were given back */
	struct pushed *pushed; /* protocols for accepted connections, copied for members that join */
	/* The rest is for a datagram socket. */
	struct multicast *multicast; /* a reference; NULL: not a datagram socket */
	struct filter_use filter;
	_Atomic uint32_t dropped; /* the last value of SO_RXQ_OVFL that any member has seen */
	uint32_t renewals;        /* how often it has got another key. Here, where it takes no room */
	struct returned_datagrams returned;
};

/* A member's part in a shared socket (connection.shares). */
struct member {
	struct connection *connection;
	struct list all; /* on shared->members; under the registry's lock */
	/* The members on this worker, in a ring without a head. No other worker touches it. */
	struct list here;
	uint32_t turn;             /* value of worker->share_turns when this member had its last turn */
	uint32_t answered_ms;      /* when it last answered an offer, or was sent one and had none open; it wraps */
	uint32_t offer_count : 29; /* its unanswered offers */
	uint32_t stuck : 1;        /* it does not answer, and is offered nothing until it does (unanswered_offers.c) */
	uint32_t follows : 1;      /* its host speaks LISTENING: what another member changes is for it, too */
	uint32_t tell : 1;         /* LISTENING is to be sent */
	uint16_t keep_ms;          /* how long the shared listener outlives this member, if it was the last */
	uint16_t changes_seen;     /* value of shared->changes that it has followed */
};

/* A connection that has a key and is held by a channel. */
struct held {
	struct keyed keyed;
	struct list wanted; /* on worker->wanted: a process asks for it, and the holder's worker does not know yet */
	struct channel *channel;       /* these three do not change */
	struct connection *connection; /* used only by its worker */
	struct worker_state *worker;
	/* how long the connection outlives this process, if that dies; 0: nobody else has it */
	_Atomic uint32_t keep_ms;
	uint8_t purpose;   /* what it is wanted for, which the worker does not know yet */
	uint8_t asked;     /* the greatest purpose that the holder has been asked for and has not answered */
	uint8_t yield_due; /* used only by the worker: the purpose for the next YIELD; 0: none is due */
	bool answered;     /* the holder has answered since it was last asked */
};

/* What the process that takes a connection over is told about its last holder. */
struct taken_over {
	bool died;
	uint64_t delivered_bytes, accepted_bytes;
	uint32_t keep_ms;
	struct take_queue *queue; /* not told to the process: the other processes that ask for it */
};

/* --- registry.c --------------------------------------------------------------------------------------------------- */

/* All functions below need the lock, unless they say that they take it. */
void registry_lock(void);
void registry_unlock(void);
/* Finds a key of this tenant: keys are valid only within a tenant. */
struct keyed *registry_find(const struct xts_tenant *t, uint64_t key, enum keyed_kind kind);
/* 0, EEXIST, EINVAL for key 0, or ENOBUFS when the tenant may have no more listeners with a key. */
int registry_add(struct keyed *k, struct xts_tenant *t, uint64_t key, enum keyed_kind kind);
/* Gives it another key: nobody finds it by the one before. 0, EEXIST, EINVAL for
 * key 0, ENOENT if nobody finds it any more. */
int registry_rename(struct keyed *k, uint64_t key);
void registry_remove(struct keyed *k);
/* Removes the key; its charges stay until registry_remove(). */
void registry_forget(struct keyed *k);
/* No process holds the object now: the calling worker keeps it for a while. */
void registry_keep(struct keyed *k, struct worker_state *w, uint32_t keep_ms);
/* It is kept for so long from now on. Called in the keeper's thread. */
void registry_keep_for(struct keyed *k, uint32_t keep_ms);
void registry_unkeep(struct keyed *k);
/* Charges for a connection without a channel, which keeps this many bytes (spilled, or in its protocols). False: over a
 * limit of its tenant. */
bool registry_take_unowned(struct xts_tenant *t, uint64_t bytes);
/* The same for one that cannot be refused. */
void registry_take_unowned_anyway(struct xts_tenant *t, uint64_t bytes);
/* Ends the charge for it and the bytes that it kept last. */
void registry_give_unowned(struct xts_tenant *t, uint64_t bytes);
/* Hands over objects whose time is over, to be ended in turns of their tenant. Takes the lock. */
void registry_expire(struct worker_state *w);
/* Ends some of these, for the rest of the turn, at least one piece. Takes the lock. */
void registry_end_some(struct unowned *u, struct worker_state *w);
/* Ends everything that the worker keeps, at once. Takes the lock. */
void registry_end_all(struct worker_state *w);
/* A channel of this tenant goes to another process of the proxy, or comes from one. For a while, a key that nobody has
 * here may be known there. Takes the lock. */
void registry_moves(struct xts_tenant *t, uint64_t now_ns, bool died);
/* Nobody has the key here: ENOENT, or EBUSY while that may change. */
int registry_unknown(const struct xts_tenant *t, uint64_t now_ns);
/* A parked connection of this tenant of which that is true; NULL: there is none. */
struct parked *registry_any_parked(const struct xts_tenant *t, bool (*is_wanted)(const struct parked *p));
/* Reads the worker's gauges. Called without the lock. */
void registry_stats(struct worker_state *w, struct xts_worker_stats *out);

/* --- share.c ------------------------------------------------------------------------------------------------------ */

/* Errors are positive. All below take the lock, except what says otherwise. */
int share_start(struct connection *l, uint64_t key, uint32_t keep_ms);
struct connection *share_join(struct channel *ch, uint64_t key, int *error);
/* A member of a datagram socket has been bound. */
void share_is_bound(struct connection *c);
/* The member leaves, and its unanswered offers go to others. closed: its host has closed it; else its channel has
 * ended. */
void share_leave(struct connection *l, bool closed);
/* Another process of the proxy gets the socket: what waits in its backlog is not this one's to refuse any more. */
void share_is_elsewhere(struct connection *l);
/* The key of a shared socket; 0: it is not shared. */
uint64_t share_key(const struct connection *l);
/* A member will connect: it leaves, and has the TCP socket alone. EOPNOTSUPP: others have the socket, too. */
int share_part(struct connection *c);
/* The kernel reports a total of dropped datagrams: returns how many of them no member has been told of. Called without
 * the lock. */
uint32_t share_new_drops(struct shared *s, uint32_t dropped);

/* --- share_listening.c -------------------------------------------------------------------------------------------- */

/* LISTEN of a member: the others follow, and so do those that join from now on. */
void share_listens(struct connection *l, uint32_t backlog, bool was_idle);
/* A member shuts the listener down, in turns: its backlog, and what waits for a member, is reset. Begins; 0, or
 * EOPNOTSUPP, if some member's host could not be told. */
int share_shut_begins(struct connection *l);
/* Resets what waits for a member, until the turn is over. True: nothing is left. */
bool share_shut_some(struct connection *l);
/* The socket listens no more: the other members follow. */
void share_shut_ends(struct connection *l);
/* Members on this worker follow what others have changed. */
void share_follow(struct worker_state *w);
/* A member has joined: its host is told whether the socket listens. */
void share_tell_joined(struct connection *l);
/* Sends LISTENING, if it is due; without the lock. False: there is no slot, and the member is woken again. */
bool share_tell(struct connection *l);

/* --- share_shut.c: without the lock; also for a listener that is not shared --------------------------------------- */

/* Is SHUT_LISTENER of it being carried out? */
bool share_shut_goes_on(const struct connection *l);
/* The socket of a listener listens no more, and stays bound. */
void share_shut_socket(int fd);
/* The same of this member, or of this host alone: it becomes a bound socket, and what its host was offered is reset. */
void share_is_shut(struct connection *l);

/* --- share_turn.c: without the lock ------------------------------------------------------------------------------- */

/* Is there anything to offer? */
bool share_has_news(const struct connection *l);
/* The member of l's listener, on l's worker, that is next; NULL while none has post credits. */
struct connection *share_turn(struct connection *l);
/* The member has been given a connection, or could not be told of one: the others are next. */
void share_turn_ends(struct connection *l);
/* Nothing is left to accept: no member on this worker needs to try. */
void share_accepted_all(struct connection *l);

/* --- unanswered_offers.c: without the lock ------------------------------------------------------------------------ */

/* An offer is sent to the member; it is answered, or it is gone. */
void share_offer_begins(struct member *m);
void share_offer_ends(struct member *m);
/* In the turn of l's channel, when its timer has expired: l's offers go to others if it does not answer. */
void share_take_back_unanswered(struct connection *l);
/* The host has accepted an offer. True: it was taken back before, and c is reset. */
bool share_late_answer(struct connection *c);

/* --- share_returned.c ------------------------------------------------------------------------------------------- */

/* The host gives back a connection it was offered: c is freed. */
void share_give_back(struct connection *c);
/* Takes an offer back that the host has not answered. c stays, without a socket, until it does. False: over a limit, or
 * the listener has ended. */
bool share_take_back(struct connection *c);
/* What its host was offered ends: its TCP side is reset at once. c stays until the host answers. */
void share_reset_offer(struct connection *c);
/* Takes the connection that came first of those that were given back, and when it came. False: there is none. */
bool share_take_waiting(struct connection *l, struct tcp_side *tcp, uint64_t *came_ns);
/* Another worker has left something for this one's members. */
void share_poked(struct worker_state *w);

/* --- share_end.c -------------------------------------------------------------------------------------------------- */

/* Called before a member leaves. If its socket will be closed then, nobody can join any more, and connections that wait
 * for it are reset, until the turn is over. True: the member can leave. */
bool share_end_some(struct connection *l, bool closed);
/* From now on no new connections: shuts the listening socket down for all members. */
void share_drain(struct connection *l);
/* Closes the listeners that only this worker keeps, until the turn is over. True: none is left. */
bool share_drain_kept(struct worker_state *w);
/* The same for kept sockets, whichever worker keeps them, on an address that a socket of the same tenant binds: UDP
 * sockets, or TCP listeners. */
bool share_gives_way(struct worker_state *w, const struct xts_tenant *t, enum bound_protocol protocol,
		     const struct xts_endpoint *local);
/* With the lock held: closes the socket and resets what waits; frees it when it has no members. */
void shared_end(struct shared *s);
/* With the lock held: does a piece of that, for a listener without members. True: it was the last piece. */
bool shared_end_piece(struct shared *s);

/* --- park.c, claim.c, return_to_parked.c ------------------------------------------------------------------------------ */

/* Parks a connection: it leaves its channel and c is freed, unless there is a (positive) error. Takes the lock. */
int park_start(struct connection *c, uint64_t key, uint32_t keep_ms);
/* What a host knows of a connection whose process of the proxy has died. */
struct claim_counts {
	uint64_t received_bytes, sent_bytes;
	bool fin_sent;
};
/* Claims a parked connection for this channel; NULL with *error (ECONNRESET: it is not as the host has counted).
 * counts: NULL where nothing can have been lost. facts: what its kernel has said; NULL: of no interest. Takes the
 * lock. */
struct parked_facts;
struct connection *park_claim(struct channel *ch, uint64_t key, const struct claim_counts *counts,
			      struct parked_facts *facts, int *error);
/* An event of WATCH_PARKED: TCP can take more of the spilled bytes. They are delivered in
 * turns (unowned_drain_some()). */
void park_event(struct watch *watch);
/* Parks a connection whose host has died, and that other processes have, too. False: it
 * cannot be kept. Takes the lock. */
bool park_of_the_dead(struct connection *c);
/* With the lock held: gives the parked connection to ch; NULL with *error (EBUSY: its last process is still returning
 * bytes that it had not read, or another process is before this one). */
struct connection *parked_take(struct channel *ch, struct keyed *k, uint32_t purpose, struct taken_over *out, int *error);
/* Called after that, without the lock: events come from now on. */
void parked_taken(struct connection *c);
/* A message RETURN of the host that has parked the connection. False: there is no such connection, or the host may not
 * return that. Takes the lock. */
bool parked_return(struct channel *ch, const struct xts_return *m, bool more, const struct batch_entry *e);
/* Is the host still returning what it has not read of a connection? Takes the lock. */
bool parked_is_returned(struct channel *ch);
/* Delivers some bytes of the connections on unowned->drains; true: TCP takes more. Takes the lock. */
bool park_drain(struct list *noted, struct worker_state *w);
/* Frees stale entries. All events fetched before must have been handled. Takes the lock. */
void park_reap(struct worker_state *w);
/* With the lock held: resets the connection. */
void parked_end(struct keyed *k);

/* --- keys_over.c -------------------------------------------------------------------------------------------------- */

/* No process has these connections any more: they end. In w's thread. Takes the lock. */
void keys_over(struct worker_state *w, const struct xts_tenant *t, const uint64_t *keys, uint32_t count);
/* With the lock held: has that been said of a key that nobody had, a short time ago? */
bool keys_are_over(const struct xts_tenant *t, uint64_t key, uint64_t now_ns);
/* Another worker may have left some that w keeps. Takes the lock. */
void keys_over_poked(struct worker_state *w);

/* --- held.c ------------------------------------------------------------------------------------------------------- */

/* Gives a connection its key, or changes keep_ms (0: removes the key). 0 or a positive errno. */
int held_name(struct connection *c, uint64_t key, uint32_t keep_ms);
void held_forget(struct connection *c);
/* The same with the lock held, for a connection with a key. */
void held_remove(struct connection *c);
/* The connection of a key, if it is parked. Else NULL with *error: EBUSY: its holder has been asked for it; EAGAIN: the
 * holder has answered that it needs it; EISCONN: ch holds it; ENOENT. */
struct connection *held_take(struct channel *ch, uint64_t key, uint32_t purpose, struct taken_over *out, int *error);
/* For the next process of the proxy: by which key others know it. False: they do not. Takes the lock. */
bool held_tell(const struct connection *c, struct move_note *n);
/* With the lock held: c was parked, and belongs to its channel now. It has this key, as it had before. */
void held_again(struct connection *c, uint64_t key, const struct taken_over *of);
/* Another worker has asked for connections of this one. */
void held_poked(struct worker_state *w);
/* Is there a YIELD to send? */
bool held_has_news(const struct connection *c);
void held_send_yield(struct connection *c, const struct xts_tx_slot *slot);

/* --- take_queue.c ------------------------------------------------------------------------------------------------- */

/* All of these need the lock. ch asks for a connection that it cannot have now. */
void take_queue_wait(struct keyed *k, const struct channel *ch, uint32_t purpose);
/* Is no waiting process before ch? */
bool take_queue_is_first(struct keyed *k, const struct channel *ch, uint32_t purpose);
/* ch has the connection now */
void take_queue_served(struct keyed *k, const struct channel *ch);
void take_queue_free(struct take_queue *q, struct xts_tenant *t); /* NULL: does nothing */

#endif
