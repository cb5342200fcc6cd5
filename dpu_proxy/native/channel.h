/*
 * A channel: one queue to one host process, its link, and the connections that came over it.
 *
 * Theory of operation
 *
 * Each round of the worker receives a batch of frames (channel_receive), lets the connections write what was gathered
 * for them (one sendmsg per connection and batch: the largest single gain for small messages), handles events of epoll
 * and timers (connection_turn), and then sends (channel_send): waiting replies, what the connections on the ready list
 * have to send, control frames; then one kick. schedule.h says how long all this may take for one channel in a round.
 *
 * What the proxy has to send is *state of a connection* wherever it can be (a connect that has ended, bytes in the TCP
 * socket, credits unadvertised, a close to confirm), and the ready list holds the connections that have something to
 * send. So nothing accumulates while frame credits are missing. The one exception is replies to calls (bind, options
 * …): they wait in a ring of frame window entries, and the frame credit of a call is returned only with its reply. A
 * host has at most a window of frames unrecycled, so the ring cannot overflow, whatever the host does.
 *
 * A host is an adversary: messages are decoded once into private structs, identifiers are looked up in the table of the
 * channel they came on, and every resource is counted against limits.
 */
#ifndef XTS_CHANNEL_H
#define XTS_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "closed.h"
#include "command_dispatch.h"
#include "credit.h"
#include "datagram.h"
#include "link.h"
#include "list.h"
#include "bound_addresses.h"
#include "queue.h"
#include "relay.h"
#include "round_time.h"
#include "schedule.h"
#include "names.h"
#include "outgoing.h"
#include "states.h"
#include "tenant.h"
#include "token.h"
#include "timer.h"
#include "trim_heap.h"
#include "waiting.h"
#include "ulp/handshake_pool.h"
#include "ulp/ulp.h"
#include "worker.h"

#define CHANNEL_BATCH 32u /* frames taken per round */
/* of a queue, here and in the process that accepts attachments: memory, two eventfds, life, the attachment, its pidfd,
 * status */
#define CHANNEL_DESCRIPTORS 8u
#define SOCKET_CALL_BYTES_MAX 512u /* the longest value of an option or ioctl */
#define ID_INDEX_BITS 20u
#define ID_INDEX_MASK ((1u << ID_INDEX_BITS) - 1)

struct worker_state;
struct held;
struct shared;
struct pushed;
struct datagrams;
struct datagram_copies;
struct datagram_scratch;

/* What the data of an epoll event points to. */
enum watch_kind { WATCH_CONNECTION, WATCH_QUEUE, WATCH_LIFE, WATCH_COMMAND, WATCH_PARKED, WATCH_NAME };
struct watch {
	enum watch_kind kind;
};

/* Bytes that another process had received and gave back: returned.c. */
struct returned {
	struct returned_piece *first, *last;
};

struct connection {
	struct watch watch;  /* first: epoll's pointer */
	struct list ready;   /* on channel->ready: has something to send */
	struct list dirty;   /* on channel->dirty: has gathered frames to write */
	struct list member;  /* on channel->connections, or for an orphan on unowned->orphans; the oldest first */
	struct timer timer;  /* to look again at a lingering close, or at a listener that could not accept */
	struct list unnamed; /* on channel->unnamed: made by a CONNECT whose answer the host may not have seen yet */
	/* on channel->noted, or unowned->noted: has events that wait for its turn */
	struct list noted;
	uint32_t noted_events;   /* events of epoll */
	struct channel *channel; /* NULL for an orphan */
	struct unowned *unowned; /* of an orphan */
	struct list by_age;      /* for an orphan: on tenant->orphans, or on worker->cut; under the lock of orphan.c */
	atomic_bool cut;         /* another orphan has taken its place in the tenant's account: it will be reset */
	_Atomic uint64_t orphan_bytes; /* bytes charged for it as an orphan */
	struct connection *next_dead;
	struct worker_state *worker;
	struct xts_tenant *tenant; /* the tenant charged for it; a reference */
	struct name *name;         /* what its socket is bound to; NULL: not bound */
	int fd;
	/* 0: none (an orphan has neither; no xts_socket before the host has acknowledged) */
	uint32_t proxy_id, xts_socket;
	uint32_t window; /* granted to the host, counted in channel->window_bytes and for the tenant */
	uint8_t state;   /* enum connection_state; changed only by connection_enter() (states.h) */
	uint8_t ip_version;
#define FLAG_FIELD(name, bit, meaning) bool name : 1;
	CONNECTION_FLAGS(FLAG_FIELD)
#undef FLAG_FIELD
	struct pushed *pushed;         /* protocols on it, or peek mode; NULL for most (pushed.h) */
	struct datagrams *datagrams;   /* for a datagram socket (datagram_socket.h); NULL for TCP */
	uint32_t look_ms;              /* what the timer was set to last; it doubles */
	int error;                     /* of the connection, sent in RESET, CONNECT_ACK or CLOSED */
	uint32_t held;                 /* post credits: bytes (listener: connections) we may send to the host */
	struct xts_credit_grant grant; /* what we have granted the host */
	uint32_t consumed;             /* bytes written since the window last grew */
	uint32_t read_bytes;           /* bytes that the application has read; counted until receive_tuned */
	uint32_t gathered_first, gathered_last; /* chain through channel->batch, BATCH_NONE for none */
	struct outgoing out;                    /* bytes for TCP that still wait */
	uint64_t received_bytes;
	uint64_t accepted_bytes;         /* accepted from the host, over this channel */
	struct closed *closed;           /* its record for the connection log (closed.h); NULL for most */
	struct connection_waits waiting; /* what it waits for, and the time of the first of them */
	uint64_t since_ns;               /* when its connect began; later, when its host last sent; 0: neither yet */
	struct returned returned; /* bytes that another process had not read: sent to the host before what TCP has */
	struct held *name_held;   /* its key, by which other processes may ask for it (share.h); NULL: none */
	/* charged for kernel buffers whose size its program has set (buffers.c) */
	uint32_t kernel_send, kernel_receive;
	/* An offer is a connection that has been announced; each listener has a list of its own. */
	/* of a listener: its unanswered offers; of an announced connection: the node on that list */
	struct list offers;
	struct connection *listener; /* the listener that announced it; NULL when that is gone */
	uint32_t offer_count;
	struct shared *shared; /* of a listener: set when other channels accept from it too (share.h) */
	struct list share;     /* on shared->members; under the registry's lock */
	/* The members on this worker, in a ring without a head. No other worker touches it. */
	struct list share_here;
	uint64_t share_turn; /* value of worker->share_turns when this member had its last turn */
	uint32_t keep_ms;    /* how long the shared listener outlives this member, if it was the last */
};

#define BATCH_NONE UINT32_MAX

/* --- returned.c --------------------------------------------------------------------------------------------------- */

/* Appends the bytes of the pieces, which the tenant is charged for as kept. 0 or ENOBUFS. */
int returned_add(struct returned *r, struct xts_tenant *t, const struct ulp_mark *mark, const struct iovec *iov,
		 int pieces, uint32_t bytes);
void returned_free(struct returned *r, struct xts_tenant *t);
/* Drops bytes that nobody will read. As there may be millions of pieces, they are freed in turns of their tenant, which
 * is charged until then. */
void returned_drop(struct returned *r, struct worker_state *w, struct xts_tenant *t);
struct unowned;
/* Frees some of what was dropped, for the rest of the turn, at least some. */
void returned_drop_some(struct unowned *u, struct worker_state *w);
/* Moves everything in behind to the end of r. */
void returned_join(struct returned *r, struct returned *behind);
/* Takes at most room bytes; returns how many. */
ssize_t returned_read(struct returned *r, struct xts_tenant *t, void *out, uint32_t room, struct ulp_mark *mark);

struct batch_entry {
	struct xts_rx_frame frame;
	uint32_t skip, bytes; /* payload: where it begins in the frame, and how long it is */
	struct ulp_mark mark; /* only its pdu is set for a byte stream */
	uint32_t next;        /* of the same connection */
};

/* The payload of a call, in the first piece of its frame. The call's length has been checked to include it. */
static inline const void *batch_payload(const struct batch_entry *e, uint32_t fixed_bytes)
{
	return (const uint8_t *)e->frame.segment[0].iov_base + fixed_bytes;
}

/* A reply that waits for a frame credit; sending it returns the credit of the call's frame. */
struct reply {
	uint32_t bytes;
	uint8_t frame[XTS_SOCKOPT_ACK_BYTES + XTS_CONNECT_ACK_BYTES + SOCKET_CALL_BYTES_MAX];
};

#define CHANNEL_QUIET_FRAMES 16u
#define CHANNEL_QUIET_MS 5

struct id_slot {
	struct connection *connection;
	uint16_t generation;
	uint32_t next_free;
};

struct ulp_preparation;

/* A message of datagrams that a turn had no time to finish; or one with a push for which something has to be made first
 * (slow_push.c). */
struct unfinished {
	bool there;
	bool more; /* datagrams: the message's flag MORE */
	uint32_t id;
	struct xts_rx_frame frame;
	struct xts_datagram_cursor cursor; /* in the frame */
	bool again;                        /* the message is carried out from the beginning, and does not wait again */
	struct xts_head head;
	struct ulp_preparation *preparation; /* NULL: it does not wait any more */
	uint64_t since_ns;
};

struct channel {
	struct watch queue_watch, life_watch;
	struct list member; /* on worker->channels */
	struct worker_state *worker;
	struct xts_queue *queue;
	uint64_t number;          /* larger than those of the channels before it */
	struct xts_queue *bundle; /* the same queue where frames are packets (xts_bundle_wrap()), else NULL */
	struct xts_link link;
	uint32_t queue_id;
	uint32_t descriptors;      /* descriptors of its queue, charged to the tenant */
	struct relayed relayed;    /* for a relay's queue, or a process behind one (relay.h) */
	struct xts_tenant *tenant; /* the tenant charged for it; a reference */
	struct identity identity;  /* who its token names, where tokens are required */
	int life_fd;
	bool epoch_live;             /* the link is up and nothing has ended it yet */
	struct connection *refusing; /* a listener that its host has closed, whose backlog is being reset; NULL: none */
	bool refusing_unwaited;      /* nobody waits for its CLOSED */
	bool refusing_keeps;         /* the listener is kept for other processes, as if its own process had ended */
	/* a socket whose BIND waits until kept listeners on the address are closed (bind.c); NULL: none */
	struct connection *binding;
	struct xts_bind bind;         /* what its host has asked for */
	struct unfinished unfinished; /* nothing more is received until it is read */
	bool ending;                  /* the connections of an ended epoch are being closed (ending.c) */
	bool ending_reset;            /* they are reset */
	bool dying;                   /* it is freed at the end of a round in which it is not ending any more */
	uint32_t last_rounds; /* its process is gone: rounds left to receive what it had sent. 0: the process lives */
	bool cut_short;       /* the last turn ended with more to send */
	bool kick_again;
	bool slot_missing;                          /* a send found no transmit slot: do not sleep for long */
	uint32_t unkicked_bytes, unkicked_messages; /* submitted, but the host may not have been woken for them */
	uint64_t unkicked_ns;                       /* since when */
	uint32_t quiet_frames; /* submitted, but nobody waits for them: they leave with the next kick, or soon */
	uint64_t quiet_ns;     /* since when */
	uint8_t rung_ack;      /* the ACK that the host had when it was last woken */

	struct list connections;
	struct list ready, dirty;
	struct list unnamed;
	struct list noted; /* connections with noted events */
	struct frames_missing frames_missing;
	struct names names;
	/* connections that it has parked and still has to return the rest of; under the registry's lock */
	struct list returning;
	bool returning_left; /* the channel is ending, and some of these may be left */
	struct account account;
	uint64_t looked_ns; /* when its queue was last checked and had nothing from the host; 0: it had something */
	uint32_t connection_count, listener_count;
	uint64_t window_bytes; /* sum of the windows granted */
	uint64_t ulp_bytes;    /* kept by the protocols of all connections */
	uint64_t spill_bytes;  /* bytes in their spill buffers */
	struct id_slot *ids;
	uint32_t id_count, id_used, id_free; /* room, slots ever used, head of the free list (0: none) */

	uint8_t refusal;       /* enum xts_refusal: why the proxy refuses the request that is being carried out */
	struct reply *replies; /* ring of XTS_FRAME_WINDOW_MAX */
	uint32_t reply_first, reply_count;

	uint32_t batch_used;
	uint64_t batch_bytes;
	struct batch_entry batch[CHANNEL_BATCH];
};

/* --- channel.c ---------------------------------------------------------------------------------------------------- */

int channel_open(struct channel **out, struct worker_state *worker, struct xts_queue *queue, int life_fd,
		 uint32_t queue_id, struct xts_tenant *tenant);
/* Receives a batch of frames and carries them out; true when there were any. */
bool channel_receive(struct channel *ch);
/* Sends what the channel has to send; true when anything was sent. */
bool channel_send(struct channel *ch);
/* A transmit slot for one sequenced message, or false while frame credits or slots are missing. */
bool channel_slot(struct channel *ch, struct xts_tx_slot *slot);
/* Seals and submits a sequenced message. */
void channel_submit(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes);
/* The same for a message that the host need not be woken for. */
void channel_submit_quietly(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes);
/* Writes the payload gathered for connections to TCP, and recycles the frames of the batch. */
void channel_flush(struct channel *ch);
/* A HELLO has been accepted: a process begins. */
void channel_link_opened(struct channel *ch);
/* The link went down: by GOODBYE, or by a violation of either kind. */
void channel_link_closed(struct channel *ch);
/* Logs a line about the channel, unless its tenant has used up its log lines. */
__attribute__((format(printf, 2, 3))) void channel_log(const struct channel *ch, const char *format, ...);
/* The host broke the protocol: the link ends. */
void channel_violation(struct channel *ch, const char *what, uint32_t id);

/* --- ending.c ----------------------------------------------------------------------------------------------------- */

/* Begins to end all connections: they are reset, or closed as the kernel does for a process that has exited. The
 * channel is *ending* from now on. */
void channel_end_epoch(struct channel *ch, bool reset);
/* Ends some of them, for the rest of the turn, at least one. */
void channel_end_some(struct channel *ch);
/* Ends the epoch, all of it at once, and frees everything, including the queue. */
void channel_free(struct channel *ch, bool reset);

/* --- command.c: carrying out messages of the host. Its functions, one for each type, are in command_dispatch.h. --- */

/* Notes why the proxy refuses the current request, for its reply. Returns the errno, positive. */
int command_refuse(struct channel *ch, enum xts_refusal refusal);
/* Queues a reply. Returns its frame, with the head written; the caller fills in the rest. */
uint8_t *command_reply(struct channel *ch, uint8_t type, uint32_t bytes, uint32_t xts_socket, int error);
/* For the option calls and ioctl, whose acknowledgements have the same layout. */
void command_reply_value(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error, const void *value, uint32_t bytes);
/* LISTEN_ACK, BIND_ACK or SHARE_ACK about c (NULL: it is gone). */
void command_reply_local(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error);
/* The connection that a call is about; id 0 makes a new one. NULL with *error. */
struct connection *command_target(struct channel *ch, uint32_t id, uint32_t xts_socket, uint32_t domain, int *error);
/* Does policy allow it? Counts a refusal. */
bool command_allowed(struct channel *ch, enum xts_policy_action action, const struct xts_endpoint *endpoint);

/* --- datagram_send.c ---------------------------------------------------------------------------------------------- */

/* Goes on with channel->unfinished for the rest of the turn. True: the message has been read, or the link has failed.
 * */
bool datagrams_read_on(struct channel *ch);

/* --- slow_push.c -------------------------------------------------------------------------------------------------- */

/* True: the message has not been carried out, and waits in channel->unfinished. */
bool prepare_for_ioctl(struct channel *ch, const struct xts_head *head, const struct xts_ioctl *m,
		       const struct batch_entry *e);
bool prepare_for_connect(struct channel *ch, const struct xts_head *head, const struct xts_connect *m,
			 const struct batch_entry *e);
/* Called while the message waits: lets the pool's reserve thread help (handshake_pool.h). */
void prepare_help(struct channel *ch);
/* The message does not wait any more: frees what it waited for. */
void prepare_forget(struct channel *ch);

/* --- bind.c ------------------------------------------------------------------------------------------------------- */

/* Goes on with the BIND that channel->binding waits for. */
void command_bind_goes_on(struct channel *ch);
/* Takes the name of the address and port that the kernel has picked, which nobody else can have. 0 or an errno. */
int connection_name_what_is_bound(struct connection *c);

/* --- identifier.c ----------------------------------------------------------------------------------------------- */

/* A new identifier, never 0, for a connection; 0: none left. */
uint32_t identifier_take(struct channel *ch, struct connection *c);
void identifier_release(struct channel *ch, uint32_t id);
/* Forgets all identifiers at the end of an epoch. A queue that is used again begins with a small table. */
void identifiers_forget(struct channel *ch);
/* Finds a connection by the identifier in a message of the host. */
struct connection *connection_find(struct channel *ch, uint32_t proxy_id);
/* Finds a connection by the host's own number, among those whose identifier the host may not know yet: for calls that
 * follow a CONNECT. */
struct connection *connection_find_unnamed(struct channel *ch, uint32_t xts_socket);

/* --- window.c --------------------------------------------------------------------------------------------------- */

/* Gives a new connection its window, as far as the tenant's limit allows. Returns the post credits to advertise; 0:
 * none. */
uint32_t connection_grant_window(struct connection *c);
/* The same for a datagram socket. False: there is no room for a window. */
bool connection_grant_datagrams(struct connection *c);
/* The same for a connection with `spilled` bytes in its spill buffer. False: there is no room for a window. */
bool connection_grant_claimed(struct connection *c, uint32_t spilled);
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

/* --- buffers.c ---------------------------------------------------------------------------------------------------- */

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
/* The socket is closed or belongs to another connection: ends the charge for its buffers. */
void buffers_uncharge(struct connection *c);

/* --- connection.c ------------------------------------------------------------------------------------------------- */

/* A new connection with an identifier. fd >= 0: its socket, which it takes over; else it makes one. NULL with *error
 * (positive). */
struct connection *connection_new(struct channel *ch, int fd, uint8_t ip_version, int *error);
/* The connection has something to send: puts it onto the ready list. */
void connection_wake(struct connection *c);
/* Takes post credits of the host (send.c). False: a violation of the protocol. */
bool connection_take_credits(struct connection *c, uint32_t post_credits);
int connection_watch(struct connection *c);
/* CONNECT is answered: it is established, or has failed. */
void connection_connected(struct connection *c);
void connection_connect_failed(struct connection *c, int error);
/* Notes events of epoll, or 0 for a timer. They are handled in the turn of its channel. */
void connection_note(struct connection *c, uint32_t epoll_events);
/* Handles what was noted. May free the connection. */
void connection_turn(struct connection *c);
/* Something went wrong on TCP. */
void connection_fail(struct connection *c, int error);
/* Carries out a close of the host; read_bytes as in PROTOCOL.md. */
void connection_close(struct connection *c, uint8_t flags, uint32_t read_bytes);
/* A datagram socket that is being closed has sent what it had: closes it. */
void connection_close_datagram(struct connection *c);
/* Continues a close that connection_close() has begun: a listener's backlog takes several turns (channel->refusing). */
void connection_close_listener(struct connection *c);
/* Makes a connection that has failed, which its host knows, an unconnected socket again; false: it has not failed, or
 * this is not possible. */
bool connection_renew(struct connection *c);
/* Frees the connection and closes its socket, by reset if asked. */
void connection_free(struct connection *c, bool reset);
/* Sets the timer, with a growing interval, for things that happen without an event: the end of lingering, or room for
 * what a listener could not accept. */
void connection_look_later(struct connection *c);
/* Called when nothing waits to be sent: half-closes, or finishes a close. */
void connection_drained(struct connection *c);

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

/* --- orphan.c ----------------------------------------------------------------------------------------------------- */

/* Makes c an orphan: it gives up its identifier and leaves its channel. Bytes that were accepted are still delivered;
 * then it frees itself. */
void connection_orphan(struct connection *c);
/* The host is gone without closing the connection: does it have unread data? Then it is reset, as the kernel would do.
 * */
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

/* --- unowned.c ---------------------------------------------------------------------------------------------------- */

/* What a tenant has on a worker that belongs to no channel: orphans, and parked connections with bytes to deliver. It
 * gets turns like a channel, in the tenant's share of the worker. */
struct unowned {
	struct list member;        /* on worker->unowned */
	struct xts_tenant *tenant; /* a reference */
	struct account account;
	struct list orphans; /* the oldest first */
	struct list noted;   /* orphans with noted events */
	struct list drains;  /* parked connections (share.h) from which TCP can take more bytes */
	struct list expired; /* kept objects whose time is over (keyed.kept), to be ended; under the registry's lock */
	bool expiring;       /* there may be some; counts as a reference */
	struct returned dropped; /* bytes to be freed; counts as a reference if there are any */
	uint32_t references;
};

/* A reference to the struct unowned of the tenant on this worker; NULL: no memory. */
struct unowned *unowned_hold(struct worker_state *w, struct xts_tenant *t);
void unowned_release(struct unowned *u);
/* Frees those that nothing refers to. */
void unowned_reap(struct worker_state *w);
bool unowned_has_work(const struct unowned *u);
/* Writes some of the bytes of one parked connection. */
void unowned_drain_some(struct unowned *u, struct worker_state *w);

/* --- connection_walk.c -------------------------------------------------------------------------------------------- */

/* The position of a walk over several rounds. A connection that exists from the first round to the last is visited
 * once. Begins as { 0 }. */
struct walk {
	uint64_t number;   /* of the channel */
	uint32_t index;    /* connections of that channel that were visited */
	struct list *node; /* the channel, or the end of the list; valid only in this round */
};

/* Called first in each round. */
void walk_goes_on(struct walk *at, struct worker_state *w);
/* The channel, or NULL: there are no more. */
struct channel *walk_channel(struct walk *at, struct worker_state *w);
void walk_leaves_channel(struct walk *at);
/* The current connection, of any channel, or NULL: there are no more. It stays the same until at->index++. */
struct connection *walk_connection(struct walk *at, struct worker_state *w);

struct sockaddr_storage;

/* --- listener.c --------------------------------------------------------------------------------------------------- */

/* Announces c to the host of l (NEWCONN). */
void listener_announce(struct connection *l, struct connection *c, const struct xts_endpoint *peer,
		       const struct xts_tx_slot *slot);
/* Accepts and announces connections while credits last, at most budget; true when it may have more. */
bool listener_send(struct connection *l, uint32_t budget);
/* Makes the connection a listener. The caller has charged XTS_USE_LISTENERS. */
void listener_become(struct connection *c);
/* May its tenant have one more connection? */
bool listener_has_room(const struct connection *l);
/* Closes the listener's descriptor; other processes may have the same socket open. */
void listener_close(struct connection *l);
/* Resets connections in the kernel's backlog until the turn is over. True: none is left, so that closing the socket is
 * quick. (With 4,000 connections in the backlog, close() took 33 to 69 ms.) */
bool listener_refuse_some(struct connection *l);
/* Resets one connection of a backlog. False: there is none. */
bool backlog_refuse_one(int listener_fd);
/* The host has answered the announcement of c, or will never do so. */
void listener_offer_ends(struct connection *c);

/* --- address.c ---------------------------------------------------------------------------------------------------- */

/* Returns the length of the socket address, or 0 when the endpoint has no address. */
unsigned endpoint_to_sockaddr(const struct xts_endpoint *endpoint, struct sockaddr_storage *address);
/* Is it 0.0.0.0, :: or ::ffff:0.0.0.0? */
bool endpoint_is_unspecified(const struct xts_endpoint *endpoint);
bool endpoint_is_multicast(const struct xts_endpoint *endpoint);
/* An IPv4-mapped address as IPv4. */
struct xts_endpoint endpoint_plain(const struct xts_endpoint *endpoint);
/* Would sockets bound to these addresses, with the same port, conflict? */
bool endpoint_overlaps(const struct xts_endpoint *a, const struct xts_endpoint *b);
/* The socket's own address, and its peer's address. The endpoint is empty if there is none. */
void socket_local(int fd, struct xts_endpoint *endpoint);
void socket_peer(int fd, struct xts_endpoint *endpoint);

/* --- worker.c ----------------------------------------------------------------------------------------------------- */

#include "log.h"

/* Runs a function in the worker's thread between two rounds, again in each round while it returns true, and waits for
 * it. The function stops when worker_turn_is_over(). */
void worker_request(struct xts_worker *worker, bool (*run)(struct worker_state *w, void *argument), void *argument);
/* The same, but waits for XTS_ANSWER_MS at most: 0, or -ETIMEDOUT, and the function will not run (again). */
int worker_ask(struct xts_worker *worker, bool (*run)(struct worker_state *w, void *argument), void *argument);

struct worker_state { /* the worker, as channels and connections see it */
	struct xts_worker_config config;
	struct trust trust;
	int epoll_fd;
	struct ulp_bell bell; /* jobs of the handshake pool come back here */
	int command_fd;       /* an eventfd: the supervisor has a request, or another worker has left something */
	uint64_t now_ns;
	uint64_t woken_ns; /* when it last ended a sleep */
	bool draining;
	uint64_t policy_number;                    /* number of the current rules */
	struct datagram_scratch *datagram_scratch; /* NULL: there has been no datagram socket */
	struct datagram_copies *datagram_copies;   /* likewise */
	struct list channels, unowned;
	uint64_t channel_numbers; /* given so far */
	struct list cut;          /* orphans of this worker that will be reset; under the lock of orphan.c */
	struct connection *dead;  /* freed in this round: fetched epoll events may still point to them */
	struct trim trim;
	struct timers timers;      /* for connections, and for pushed protocols that asked to be called */
	_Atomic uint64_t round_ns; /* when the current round began; 0: asleep */
	_Atomic uint64_t doing;    /* enum xts_worker_phase << 32 | queue */
	struct round_time round_time;
	struct schedule schedule;
	uint64_t turn_end_ns; /* when the current turn ends */
	/* objects kept by this worker that no process holds (share.h); under the registry's lock */
	struct list kept;
	struct list wanted; /* connections that processes of other channels ask for; under the registry's lock */
	_Atomic uint32_t kept_count[3]; /* by enum keyed_kind; written under the registry's lock */
	struct timers kept_timers;      /* when keeping them ends; under the registry's lock */
	uint64_t keep_deadline_ns;      /* no kept object has to be ended before this time */
	/* parked connections that were claimed or ended: freed at the end of a round; under the registry's lock */
	struct parked *stale;
	/* Another worker has put something into one of these lists, into a shared socket, or onto cut. It is read
	 * without a lock; while it is false there is no need to take one. */
	atomic_bool left;
	bool poked;           /* there may be something on stale */
	uint64_t share_turns; /* turns given so far to members of shared listeners */
	struct xts_worker_stats stats;
	struct log log;
	struct closed_list closed;
};

uint64_t worker_monotonic_ns(void);

static inline void worker_doing(struct worker_state *w, enum xts_worker_phase phase, uint32_t queue_id)
{
	atomic_store_explicit(&w->doing, (uint64_t)phase << 32 | queue_id, memory_order_relaxed);
}

/* Something was left for the worker: it looks in its next round. The caller holds the lock of the list in which it left
 * something. */
void worker_poke(struct worker_state *w);

/* --- turns.c ------------------------------------------------------------------------------------------------------ */

/* Is the current turn over? Reads the clock. Work that has begun is finished anyway; the rest waits for the next turn.
 * */
bool worker_turn_is_over(struct worker_state *w);
/* The parts of a round; true when there was, or may be, anything to do. */
bool turns_receive(struct worker_state *w);
bool turns_carry_out(struct worker_state *w);
bool turns_send(struct worker_state *w); /* also frees channels that are dying */

/* --- supervisor_requests.c ---------------------------------------------------------------------------------------- */

/* Copies a configuration, with its own copy of the rules and its own references. 0 or -ENOMEM. */
int worker_copy_config(struct xts_worker_config *to, const struct xts_worker_config *from);
void worker_free_config(struct xts_worker_config *config);
/* From now on the worker accepts no new connections. True: the turn had no time to close all listeners. at begins as {
 * 0 }. */
bool worker_drain(struct worker_state *w, struct walk *at);

#endif
