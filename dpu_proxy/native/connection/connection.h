/*
 * A connection: a TCP or UDP socket of the device that a host has, from connect, accept or open to close. A listener is
 * one, too. Its states and flags are in connection_states.h. channel.h has the theory of operation.
 */
#ifndef XTS_CONNECTION_H
#define XTS_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "connection/connection_states.h"
#include "connection/outgoing.h"
#include "connection/tcp_side.h"
#include "connection/wait_reasons.h"
#include "link/credit.h"
#include "link/link.h"
#include "queues/queue.h"
#include "tenants/tenant.h"
#include "worker/list.h"
#include "worker/worker_state.h"

struct batch_entry;
struct channel;
struct closed;
struct datagrams;
struct held;
struct look;
struct member;
struct bound_address;
struct orphan;
struct paced;
struct pushed;
struct shared;
struct unowned;

/* A connection has a side towards TCP, which can go to another owner, and all the rest, which belongs to the channel and
 * ends with it. A host may have as many as its tenant's limit, so the size counts: at its end is a bound for it. What few
 * connections need, or none for long, is in memory of its own while it is needed. What each message needs comes first. */
struct connection {
	struct watch watch; /* first: epoll's pointer */
	struct tcp_side tcp;
	struct channel *channel; /* NULL for an orphan */
	struct worker_state *worker;
	struct xts_tenant *tenant; /* the tenant charged for it; a reference */
	/* 0: none (an orphan has neither; no xts_socket before the host has acknowledged) */
	uint32_t proxy_id, xts_socket;
	uint8_t state; /* enum connection_state; changed only by connection_enter() (connection_states.h) */
#define FLAG_FIELD(name, bit, meaning) bool name : 1;
	CONNECTION_FLAGS(FLAG_FIELD)
#undef FLAG_FIELD
	bool dirty : 1;      /* in channel->dirty: has gathered frames to write */
	bool is_unnamed : 1; /* the host may not know its identifier yet */
	bool buffers_untouched
		: 1; /* no size of its kernel buffers was set, or inherited from a listener (socket_buffers.c) */
#ifdef XTS_DEBUG
	uint8_t ticket; /* the request that will be answered from its state (channel/tickets.h) */
#endif
	bool fin_of_another : 1;               /* the host that had it before has sent FIN */
	bool waits_for_turn : 1;               /* something was noted and waits for its turn (wait_reasons.h) */
	uint8_t waits_for[2];                  /* enum xts_wait, by direction (wait_reasons.h) */
	uint8_t gathered_first, gathered_last; /* chain through channel->batch, BATCH_NONE for none */
	uint32_t noted_events;                 /* events of epoll that wait for its turn */
	uint32_t window;               /* granted to the host, counted in channel->window_bytes and for the tenant */
	uint32_t held;                 /* post credits: bytes (listener: connections) we may send to the host */
	struct xts_credit_grant grant; /* what we have granted the host */
	uint32_t consumed;             /* bytes written since the window last grew */
	uint32_t read_bytes;           /* bytes that the application has read; counted until receive_tuned */
	struct list ready;             /* on channel->ready: has something to send */
	struct list noted; /* on channel->noted, or unowned->noted: has noted events, or a timer has expired */
	/* when its connect began, or it was accepted and its host has not answered; later, when its host last sent; 0:
	 * neither */
	uint64_t since_ns;
	struct datagrams *datagrams;     /* for a datagram socket (datagram_socket.h); NULL for TCP */
	struct connection_waits waiting; /* how long it has waited, and for what */

	/* on channel->connections, or for an orphan on unowned->orphans, the oldest first; when freed, on worker->dead */
	struct list member;
	struct connection *unnamed_next; /* in channel->unnamed, if it is there (channel/unnamed.h) */
	struct bound_address *bound_to;  /* what its socket is bound to; NULL: not bound */
	/* An offer is a connection that has been announced; each listener has a list of its own. */
	/* of a listener: its unanswered offers; of an announced connection: the node on that list */
	struct list offers;
	struct connection *listener; /* the listener that announced it; NULL when that is gone */
	struct shared *shared;       /* of a listener: set when other channels accept from it too (share.h) */
	struct member *shares;       /* while shared is set: its part in that */
	struct closed *closed;       /* its record for the connection log (closed_records.h); NULL for most */
	struct held *key_held;       /* its key, by which other processes may ask for it (share.h); NULL: none */
	struct orphan *as_orphan;    /* of an orphan; NULL: it has never been one */
	struct look *look;           /* NULL: connection_look_later() was never called */
	struct paced *paced;         /* its permit to send (paced.h); NULL: it never had to ask for one */
};

/* Those who make it larger have to say why (tests/system/sockets/test_memory_of_connections.py); malloc gives it 416. */
#ifndef XTS_DEBUG
_Static_assert(sizeof(struct connection) <= 408, "memory of a connection");
#endif

#define BATCH_NONE UINT8_MAX

/* --- connection.c ------------------------------------------------------------------------------------------------- */

/* A new connection with an identifier. fd >= 0: its socket, which it takes over; else it makes one. NULL with *error
 * (positive). */
struct connection *connection_new(struct channel *ch, int fd, uint8_t ip_version, int *error);
/* The same for one that another process of the proxy has had: it exists, so the limits do not refuse it. */
struct connection *connection_new_moved(struct channel *ch, int fd, uint8_t ip_version, int *error);
/* The channel's part of it ends, and what the channel and its tenant count for that. The TCP side stays. */
void connection_leave_channel(struct connection *c);
/* Frees the connection and closes its socket, by reset if asked. */
void connection_free(struct connection *c, bool reset);
/* The connection has something to send: puts it onto the ready list. */
void connection_wake(struct connection *c);
int connection_watch(struct connection *c);

/* --- connection_event.c ------------------------------------------------------------------------------------------- */

/* CONNECT is answered: it is established, or has failed. */
void connection_connected(struct connection *c);
void connection_connect_failed(struct connection *c, int error);
/* Notes events of epoll, or 0 for a timer. They are handled in the turn of its channel. */
void connection_note(struct connection *c, uint32_t epoll_events);
/* Handles what was noted. May free the connection. */
void connection_turn(struct connection *c);
/* Something went wrong on TCP. */
void connection_fail(struct connection *c, int error);
/* Makes a connection that has failed, which its host knows, an unconnected socket again; false: it has not failed, or
 * this is not possible. */
bool connection_renew(struct connection *c);
/* Sets a timer, with a growing interval, for things that happen without an event: the end of lingering, or room for
 * what a listener could not accept. */
void connection_look_later(struct connection *c);
/* Sets the timer to this time, unless it is set already. */
void connection_look_in(struct connection *c, uint32_t ms);
/* The interval is the shortest again. */
void connection_look_sooner(struct connection *c);
/* Stops the timer. */
void connection_look_no_more(struct connection *c);

/* --- connection_close.c ------------------------------------------------------------------------------------------- */

/* Carries out a close of the host; read_bytes as in PROTOCOL.md. */
void connection_close(struct connection *c, uint8_t flags, uint32_t read_bytes);
/* Called when nothing waits to be sent: half-closes, or finishes a close. */
void connection_drained(struct connection *c);

/* --- listener.c --------------------------------------------------------------------------------------------------- */

/* Announces c to the host of l (NEWCONN). */
void listener_announce(struct connection *l, struct connection *c, const struct xts_endpoint *peer,
		       const struct xts_tx_slot *slot);
/* Accepts and announces connections while credits last, at most budget; true when it may have more. */
bool listener_send(struct connection *l, uint32_t budget);
/* May its tenant have one more connection? */
bool listener_has_room(const struct connection *l);
/* Resets one connection of a backlog. False: there is none. */
bool backlog_refuse_one(int listener_fd);
/* The host has answered the announcement of c, or will never do so. */
void listener_offer_ends(struct connection *c);

/* --- listener_kind.c ---------------------------------------------------------------------------------------------- */

/* Makes the connection a listener. The caller has charged XTS_USE_LISTENERS. */
void listener_become(struct connection *c);
/* Resets connections in the kernel's backlog, until the turn is over. True: none is left. (With 4,000 of them, close()
 * took 33 to 69 ms.) */
bool listener_refuse_some(struct connection *l);
/* Closes the listener's descriptor; other processes may have the same socket open. */
void listener_close(struct connection *l);

/* --- from_host.c -------------------------------------------------------------------------------------------------- */

/* Takes post credits of the host. False: a violation of the protocol. */
bool connection_take_credits(struct connection *c, uint32_t post_credits);

/* --- to_tcp.c ----------------------------------------------------------------------------------------------------- */

/* Writes what waits, and then the gathered frames. What TCP does not take of these waits, too. May free an orphan. */
void connection_flush(struct connection *c);
/* Drops what waits and frees its credits. */
void connection_drop_outgoing(struct connection *c);
/* The payload of a batch entry as pieces. */
int batch_pieces(const struct batch_entry *e, struct iovec *iov, int max);

/* --- to_host.c ---------------------------------------------------------------------------------------------------- */

/* Sends the messages of the connection, at most budget; true when it has more. */
bool connection_send(struct connection *c, uint32_t budget);

/* --- window.c --------------------------------------------------------------------------------------------------- */

/* Gives a new connection its window, as far as the tenant's limit allows. Returns the post credits to advertise; 0:
 * none. */
uint32_t connection_grant_window(struct connection *c);
/* The same for a datagram socket, which has had such a window (0: none), of which so much is used. False: it is a new
 * one, and there is no room for a window. */
bool connection_grant_datagrams(struct connection *c, uint32_t before, uint32_t waiting);
/* The same for a connection that comes from another owner, with `spilled` bytes in its spill buffer; at least `least`,
 * whatever the limit leaves. */
void connection_grant_claimed(struct connection *c, uint32_t spilled, uint32_t least);
/* Doubles the window, at most to buffers_window_max(), while half of the tenant's limit is free. */
void connection_grow_window(struct connection *c);
/* Sets the size of the window, as far as the tenant's limit allows. It shrinks by keeping credits that are freed. */
void connection_set_window(struct connection *c, uint32_t bytes);
/* Bytes of the window have left or were dropped: frees their credits. */
void connection_free_credits(struct connection *c, uint32_t credits);
/* Gives the window up and ends the charge for it. */
void connection_return_window(struct connection *c);
bool channel_window_left(const struct channel *ch);
/* Counts memory of pushed protocols (negative: freed again). False: the tenant's limit is reached. */
bool connection_count_memory(struct connection *c, int64_t bytes);

/* --- socket_buffers.c ---------------------------------------------------------------------------------------------------- */

/* A connection begins. Returns the window that it should have. */
uint32_t buffers_begin(struct connection *c);
/* The largest window that fits the present size of TCP's send buffer. */
uint32_t buffers_window_max(const struct connection *c);
/* The host's application has read this many bytes that came from TCP. Called only until c->receive_tuned. */
void buffers_read(struct connection *c, uint32_t bytes);
/* From now on the kernel tunes TCP's receive buffer as usual. Called, for instance, before the socket goes to another
 * connection. */
void buffers_tune(struct connection *c);
/* The socket now belongs to another connection, which has claimed it. */
void buffers_claimed(struct connection *c);
/* An option has been set. */
void buffers_option_set(struct connection *c, int level, int name);

/* --- returned_bytes.c --------------------------------------------------------------------------------------------------- */

/* Appends the bytes of the pieces, which the tenant is charged for as kept. 0 or ENOBUFS. */
int returned_add(struct returned *r, struct xts_tenant *t, const struct ulp_mark *mark, const struct iovec *iov,
		 int pieces, uint32_t bytes);
/* t NULL: it was not charged to anybody (tcp_record.c). */
void returned_free(struct returned *r, struct xts_tenant *t);
/* What its tenant is charged for it. */
uint64_t returned_charge(const struct returned *r);
/* How many bytes are left of them. */
uint64_t returned_bytes(const struct returned *r);
/* For records (tcp_record.c): the piece after this one, or the first after NULL; what it is; and one more, which nobody
 * is charged for: 0 or -ENOMEM. */
const struct returned_piece *returned_piece_after(const struct returned *r, const struct returned_piece *piece);
void returned_describe(const struct returned_piece *piece, struct returned_part *out);
int returned_add_part(struct returned *r, const struct returned_part *part);
/* Drops bytes that nobody will read. As there may be millions of pieces, they are freed in turns of their tenant, which
 * is charged until then. */
void returned_drop(struct returned *r, struct worker_state *w, struct xts_tenant *t);
/* Frees some of what was dropped, for the rest of the turn, at least some. */
void returned_drop_some(struct unowned *u, struct worker_state *w);
/* Moves everything in behind to the end of r. */
void returned_join(struct returned *r, struct returned *behind);
/* Takes at most room bytes; returns how many. */
ssize_t returned_read(struct returned *r, struct xts_tenant *t, void *out, uint32_t room, struct ulp_mark *mark);

/* --- orphan.c ----------------------------------------------------------------------------------------------------- */

/* Makes c an orphan: it gives up its identifier and leaves its channel. Bytes that were accepted are still delivered;
 * then it frees itself. */
void connection_orphan(struct connection *c);
/* The host is gone without closing the connection: does it have unread data? Then it is
 * reset, as the kernel would do. */
bool orphan_would_reset(struct connection *c);
/* Evicts the tenant's oldest orphan on any worker. The charge for it ends, and it is reset at once, or by its own
 * worker in that worker's next round. False: the tenant has no orphan. */
bool orphan_gives_way(struct worker_state *w, struct xts_tenant *t);
/* Notes the orphans of this worker that have been evicted. */
void orphans_poked(struct worker_state *w);
/* For connection_free(). */
void orphan_uncount(struct connection *c);
/* Charges bytes for an orphan; false: its tenant's limit. */
bool orphan_take_bytes(struct connection *c, uint64_t bytes);
/* Ends the charge for this many bytes. */
void orphan_give_bytes(struct connection *c, uint64_t bytes);
/* Bytes have left the spill buffer. */
void connection_spill_gone(struct connection *c, uint64_t bytes);

#endif
