/*
 * Kinds of sockets: what a stream, a listener and a datagram socket do differently, as a table of functions each.
 *
 * The core (channel/, connection/, worker/, processes/, addresses/) hands identifiers, turns, events, credits and
 * closes to a connection, and calls its kind for the rest. It never asks which kind that is. The kind follows from the
 * state, so it takes no memory and cannot disagree with it: a connection is a stream until LISTEN or OPEN_DATAGRAM
 * makes it something else (connection_states.c). A new kind is a state, a file with a table, and a line in loop/worker.c.
 *
 * Each entry has a caller and each table fills in each entry, with a function that does nothing where a kind has
 * nothing to do: no caller tests for NULL.
 */
#ifndef XTS_SOCKET_KIND_H
#define XTS_SOCKET_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "addresses/bound_addresses.h"
#include "connection/connection.h"
#include "connection/handed.h"
#include "worker/worker.h"

struct shared;

/* A socket option that a host sets, or reads: value and bytes are the private copy. */
struct option_call {
	int level, option;
	uint8_t *value;
	uint32_t bytes;
	/* What came with the call, where the host may still change it, and how much of that is in one piece. */
	const void *payload;
	uint32_t payload_bytes, payload_room;
};

struct socket_kind {
	enum bound_protocol protocol; /* whose ports it is bound to */
	enum xts_resource use;        /* what its tenant is charged for */
	bool streams;                 /* CONNECT, LISTEN, byte streams and pushed protocols are for it */
	bool window_follows_buffers;  /* its window grows and shrinks with the kernel's send buffer */
	bool shares_frames;           /* its messages to the host may share a frame with those of others (gather.c) */
	bool asks_again;              /* when its turn ends and it has more, it goes on in the same round */
	bool members_receive;         /* of a shared one: what comes is offered to the members */
	bool members_accept;          /* of a shared one: LISTEN has been called */
	bool waits_shared; /* one that has come may have a key by which others join before its host claims it */
	uint32_t messages_a_turn;
	uint32_t look_ms_most; /* the longest interval of connection_look_later() */

	/* Events of epoll; it has a socket. */
	void (*event)(struct connection *c, uint32_t events);
	/* The timer of connection_look_later() has expired. */
	void (*look)(struct connection *c);
	/* Sends messages to the host, at most budget; true when it has more. Not called when CLOSED is due. */
	bool (*send)(struct connection *c, uint32_t budget);
	/* The host has posted credits, which c->held has already. */
	void (*credits_came)(struct connection *c, uint32_t post_credits);
	/* The host closes it: flags of CLOSE; unread: the host has not read all that it was sent. */
	void (*close)(struct connection *c, uint8_t flags, bool unread);
	/* Will a CLOSE that was received still be answered? For builds that check answers (tickets.h). */
	bool (*close_goes_on)(const struct connection *c);
	/* Drops what waits to be sent, and frees its credits. */
	void (*drop_outgoing)(struct connection *c);
	/* BIND: 0, an errno, or LOCAL_PORTS_LATER. */
	int (*bind)(struct connection *c, const struct xts_endpoint *local);
	/* 0 or an errno. */
	int (*option_set)(struct connection *c, struct option_call *o);
	int (*option_get)(struct connection *c, struct option_call *o);
	/* What only this kind can tell of itself, for status. It has a socket. */
	void (*describe)(const struct connection *c, struct xts_connection_stats *out);
	/* What has to end before it: another connection, or c. */
	struct connection *(*first_to_end)(struct connection *c);
	/* Resets what nobody has accepted, until the turn is over. True: nothing is left, so closing the socket is quick. */
	bool (*refuse_some)(struct connection *c);
	/* The proxy stops: no new connections from now on. */
	void (*drain)(struct connection *c);
	/* It is counted, or no longer counted, in the worker's gauges. */
	void (*count)(struct connection *c, int by);
	/* Frees what only this kind has. */
	void (*free)(struct connection *c);

	/* Its TCP side goes to another owner (PARK, or back to a shared listener), and c has none. `to` NULL: could it
	 * be parked now? 0 or an errno. */
	int (*save)(struct connection *c, struct tcp_side *to);
	/* As save, for another process of the proxy (processes/move.h). `to` NULL: 0: it can be; EBUSY: not, and it
	 * would be lost with this process; EAGAIN: as soon as its handshake is done; another errno: it need not be. */
	int (*hand_over)(struct connection *c, struct handed *to);
	bool in_ledger; /* a line of the ledger says all of it that another process has to know (channel/ledger.h) */
	uint8_t arrives_as; /* enum connection_state: of what comes so; CONNECTION_STATES: nothing does */
	/* Its record has come, with this descriptor. Protocols: their record comes next. 0, or -errno and nothing is left. */
	int (*arrive)(struct handed *to, const uint8_t *record, uint32_t bytes, int fd, bool protocols);
	/* c is new and gets a TCP side (CLAIM, TAKE), and with it the kind's own record, if it has one. 0, or an errno,
	 * and then `from` has it still. */
	int (*load)(struct connection *c, struct tcp_side *from, const struct kind_record *own);

	/* A socket that several processes have (share.h). May it be shared now? */
	bool (*can_be_shared)(const struct connection *c);
	/* It has a key, or has it again. withdraws: its process does not want to be offered anything. */
	void (*named)(struct connection *c, bool withdraws);
	/* With the lock held: s begins with this member; c is the last member, and leaves with the socket; s ends. */
	void (*share_begins)(struct shared *s, struct connection *c);
	/* With the lock held: c is of the same socket as s, and both have come from another process of the proxy. */
	void (*share_joined)(struct shared *s, struct connection *c);
	void (*share_parts)(struct shared *s, struct connection *c);
	void (*share_ends)(struct shared *s);
	/* With the lock held: drops a piece of what members have given back, and others could have. False: there is none. */
	bool (*share_drops_some)(struct shared *s);
	/* With the lock held: may this channel have a member of s? 0 or an errno. */
	int (*may_join)(struct channel *ch, const struct shared *s);
	/* With the lock held: a stream in state IDLE, with a descriptor of s, becomes a member of it. 0 or an errno. */
	int (*join)(struct connection *c, struct shared *s);
	/* The same for the first member of one that has come from another process, which begins s with what is in the
	 * record: that loses what is for all members. NULL: of kinds without a record of their own. */
	int (*join_first)(struct connection *c, struct shared *s, struct kind_record **own);
	/* It is counted, or no longer counted, as a member. */
	void (*count_member)(struct connection *c, int by);
};

extern const struct socket_kind *socket_kinds[CONNECTION_STATES];

/* In this state it is of this kind. */
void socket_kind_add(const struct socket_kind *kind, enum connection_state state);
/* Each kind adds itself. Called once, before the first worker (loop/worker.c). */
void stream_kind_add(void);
void listener_kind_add(void);
void datagram_kind_add(void);

static inline const struct socket_kind *kind_of(const struct connection *c)
{
	return socket_kinds[c->state];
}

/* For kinds that have nothing to do in an entry (socket_kinds.c). */
void kind_does_nothing(struct connection *c);
bool kind_has_nothing(struct connection *c);
struct connection *kind_ends_itself(struct connection *c);
void kind_tells_nothing(const struct connection *c, struct xts_connection_stats *out);
void kind_shares_nothing(struct shared *s, struct connection *c);
void kind_share_ends(struct shared *s);
bool kind_share_has_nothing(struct shared *s);
/* For kinds that no process can take over from another by a record. */
int kind_cannot_be_saved(struct connection *c, struct tcp_side *side);
/* For kinds that are handed over as a TCP side. */
int kind_arrives_as_tcp_side(struct handed *to, const uint8_t *record, uint32_t bytes, int fd, bool protocols);

/* A stream's entries, in the files that have the rest of the matter. Other kinds use some of them. */
bool stream_send(struct connection *c, uint32_t budget);                 /* to_host.c */
void stream_event(struct connection *c, uint32_t events);                /* connection_event.c */
void stream_look(struct connection *c);                                  /* connection_event.c */
void stream_close(struct connection *c, uint8_t flags, bool unread);     /* connection_close.c */
void stream_drop_outgoing(struct connection *c);                         /* to_tcp.c */
int stream_bind(struct connection *c, const struct xts_endpoint *local); /* bind.c */
int stream_save(struct connection *c, struct tcp_side *to);              /* stream_save.c */
int stream_hand_over(struct connection *c, struct handed *to);           /* stream_save.c */
/* Why it is not handed over, as text for the operator, if it is established. NULL: nothing is in the way. */
const char *stream_stays(const struct connection *c);
/* Does its key keep it in this process? Its host does not claim such a connection from another one. */
bool stream_stays_for_key(const struct connection *c);
int stream_load(struct connection *c, struct tcp_side *from, const struct kind_record *own); /* stream_save.c */
int stream_option_set(struct connection *c, struct option_call *o);                          /* stream_kind.c */
int stream_option_get(struct connection *c, struct option_call *o);                          /* stream_kind.c */
int stream_may_join(struct channel *ch, const struct shared *s);                             /* processes/share.c */
int stream_join(struct connection *c, struct shared *s);                                     /* processes/share.c */
void stream_count_member(struct connection *c, int by);                                      /* stream_kind.c */

#endif
