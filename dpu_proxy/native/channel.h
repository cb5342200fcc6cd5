/*
 * A channel: one queue to one host process, its link, and the connections that came over it.
 *
 * Theory of operation
 *
 * Each round of the worker receives a batch of frames (channel_receive), lets the connections write what was gathered
 * for them (one sendmsg per connection and batch: the largest single gain for small messages), takes in what epoll and
 * timers say (connection_turn), and then sends (channel_send): waiting replies, what the connections on the ready list
 * have to say, control frames; then one kick. schedule.h says how long all this may take for one channel in a round.
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
/* of a queue, here and where processes attach: memory, two bells, life, the attachment, its pidfd, status */
#define CHANNEL_DESCRIPTORS 8u
#define SOCKET_CALL_BYTES_MAX 512u /* of an option's or ioctl's value */
#define ID_INDEX_BITS 20u
#define ID_INDEX_MASK ((1u << ID_INDEX_BITS) - 1)

struct worker_state;
struct held;
struct shared;
struct pushed;
struct datagrams;
struct datagram_copies;
struct datagram_scratch;

/* What an epoll event points at. */
enum watch_kind { WATCH_CONNECTION, WATCH_QUEUE, WATCH_LIFE, WATCH_COMMAND, WATCH_PARKED, WATCH_NAME };
struct watch {
	enum watch_kind kind;
};

/* Bytes that another process had received and given back: returned.c. */
struct returned {
	struct returned_piece *first, *last;
};

struct connection {
	struct watch watch;  /* first: epoll's pointer */
	struct list ready;   /* on channel->ready: has something to say */
	struct list dirty;   /* on channel->dirty: has gathered frames to write */
	struct list member;  /* on channel->connections; of an orphan on unowned->orphans; the oldest first */
	struct timer timer;  /* of a lingering close, or a listener that could not accept: to look again */
	struct list unnamed; /* on channel->unnamed: made by a CONNECT whose answer the host may not have seen */
	/* on channel->noted, or unowned->noted: something has happened, and waits for its turn */
	struct list noted;
	uint32_t noted_events;   /* of epoll */
	struct channel *channel; /* NULL for an orphan */
	struct unowned *unowned; /* of an orphan */
	struct list by_age;      /* of an orphan: on tenant->orphans, or on worker->cut; under the lock of orphan.c */
	atomic_bool cut;         /* another orphan has taken its place in the tenant's account: to be reset */
	_Atomic uint64_t orphan_bytes; /* that are charged for it as an orphan's */
	struct connection *next_dead;
	struct worker_state *worker;
	struct xts_tenant *tenant; /* charged for it; a reference */
	struct name *name;         /* what its socket is bound to; NULL: it is not */
	int fd;
	uint32_t proxy_id, xts_socket; /* 0: none (orphan; not yet acknowledged) */
	uint32_t window;               /* granted to the host, counted in channel->window_bytes and for the tenant */
	uint8_t state;                 /* enum connection_state; it changes by connection_enter() alone (states.h) */
	uint8_t ip_version;
#define FLAG_FIELD(name, bit, meaning) bool name : 1;
	CONNECTION_FLAGS(FLAG_FIELD)
#undef FLAG_FIELD
	struct pushed *pushed;         /* protocols on it, or peek mode; NULL for most (pushed.h) */
	struct datagrams *datagrams;   /* of a datagram socket (datagram_socket.h); NULL for TCP */
	uint32_t look_ms;              /* what the timer was set to last; it doubles */
	int error;                     /* of the connection, sent in RESET, CONNECT_ACK or CLOSED */
	uint32_t held;                 /* post credits: bytes (listener: connections) we may send to the host */
	struct xts_credit_grant grant; /* what we have granted the host */
	uint32_t consumed;             /* bytes written since the window last grew */
	uint32_t read_bytes;           /* that the application has read, until receive_tuned */
	uint32_t gathered_first, gathered_last; /* chain through channel->batch, BATCH_NONE for none */
	struct outgoing out;                    /* what was sent to TCP and waits */
	uint64_t received_bytes;
	uint64_t accepted_bytes;         /* from the host, of this channel */
	struct closed *closed;           /* its record (closed.h); NULL for most */
	struct connection_waits waiting; /* for what, and for how long it has been */
	uint64_t since_ns;               /* when its connect began; then, when its host sent last; 0: neither yet */
	struct returned returned;        /* what another process had not read: sent before what TCP has */
	struct held *name_held; /* its key, by which other processes may ask for it (share.h); NULL: it has none */
	/* charged for buffers in the kernel that its program has set (buffers.c) */
	uint32_t kernel_send, kernel_receive;
	/* An offer is a connection that is announced; a listener has a list of its own. */
	struct list offers; /* of a listener: those without an answer; of an announced connection: on that list */
	struct connection *listener; /* that announced it; NULL when it has gone */
	uint32_t offer_count;
	struct shared *shared; /* a listener's, when other channels accept from it too (share.h) */
	struct list share;     /* on shared->members; under the registry's lock */
	/* The members on its own worker, in a ring without a head: no other worker touches it. */
	struct list share_here;
	uint64_t share_turn; /* of worker->share_turns, when this member had its last one */
	uint32_t keep_ms;    /* how long the shared listener outlives this member, if it was the last */
};

#define BATCH_NONE UINT32_MAX

/* --- returned.c --------------------------------------------------------------------------------------------------- */

/* Appends what is in the pieces, charged to the tenant as kept. 0 or ENOBUFS. */
int returned_add(struct returned *r, struct xts_tenant *t, const struct ulp_mark *mark, const struct iovec *iov,
		 int pieces, uint32_t bytes);
void returned_free(struct returned *r, struct xts_tenant *t);
/* Nobody will read it, and there may be millions of pieces: it is freed in turns of its tenant, and charged until then. */
void returned_drop(struct returned *r, struct worker_state *w, struct xts_tenant *t);
struct unowned;
/* Frees some of that for the rest of the turn, some at least. */
void returned_drop_some(struct unowned *u, struct worker_state *w);
/* Moves all of behind to the end of r. */
void returned_join(struct returned *r, struct returned *behind);
/* Takes some of what there is, at most room: how many bytes. */
ssize_t returned_read(struct returned *r, struct xts_tenant *t, void *out, uint32_t room, struct ulp_mark *mark);

struct batch_entry {
	struct xts_rx_frame frame;
	uint32_t skip, bytes; /* payload: where it begins in the frame, and how long it is */
	struct ulp_mark mark; /* only its pdu is set for a byte stream */
	uint32_t next;        /* of the same connection */
};

/* The payload of a call, which its length says is there: in the first piece of its frame. */
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

/* A message of datagrams that a turn had no time for all of; or one with a push for which something has to be made
 * first (slow_push.c). */
struct unfinished {
	bool there;
	bool more; /* datagrams: its flag MORE */
	uint32_t id;
	struct xts_rx_frame frame;
	struct xts_datagram_cursor cursor; /* in the frame */
	bool again;                        /* it is to be carried out from the beginning, and does not wait again */
	struct xts_head head;
	struct ulp_preparation *preparation; /* NULL: it waits no more */
	uint64_t since_ns;
};

struct channel {
	struct watch queue_watch, life_watch;
	struct list member; /* on worker->channels */
	struct worker_state *worker;
	struct xts_queue *queue;
	uint64_t number;          /* larger than those of the channels before it */
	struct xts_queue *bundle; /* the same where frames are packets (xts_bundle_wrap()), else NULL */
	struct xts_link link;
	uint32_t queue_id;
	uint32_t descriptors;      /* that its queue has, charged to the tenant */
	struct relayed relayed;    /* what is behind a relay, and what is a relay's queue (relay.h) */
	struct xts_tenant *tenant; /* charged for it; a reference */
	struct identity identity;  /* whom its token names, where tokens are required */
	int life_fd;
	bool epoch_live;             /* the link is up and nothing has ended it yet */
	struct connection *refusing; /* a listener that its host has closed, whose backlog is being reset; NULL: none */
	bool refusing_unwaited;      /* nobody waits for its CLOSED */
	bool refusing_keeps;         /* it is kept for other processes, as if its own had ended */
	struct connection *binding;  /* it waits for kept listeners on its address to be closed (bind.c); NULL: none */
	struct xts_bind bind;        /* what its host has asked for */
	struct unfinished unfinished; /* nothing more is received until it is read */
	bool ending;                  /* connections of an epoch that is over are being closed (ending.c) */
	bool ending_reset;            /* by reset */
	bool dying;                   /* to be freed at the end of a round, when nothing is ending any more */
	uint32_t last_rounds; /* its process has gone; so many more rounds for what it sent before. 0: it lives */
	bool cut_short;       /* the last turn ended with more to send */
	bool kick_again;
	bool slot_missing;                          /* a send found no transmit slot: do not sleep for long */
	uint32_t unkicked_bytes, unkicked_messages; /* submitted, and the host may not know */
	uint64_t unkicked_ns;                       /* since when */
	uint32_t quiet_frames;                      /* nobody waits for them: they leave with the next kick, or soon */
	uint64_t quiet_ns;                          /* since when */
	uint8_t rung_ack;                           /* what the host knew of recycled frames when it was last rung */

	struct list connections;
	struct list ready, dirty;
	struct list unnamed;
	struct list noted; /* connections with noted events */
	struct frames_missing frames_missing;
	struct names names;
	/* connections that it has parked, and is to return the rest of; under the registry's lock */
	struct list returning;
	bool returning_left; /* the channel is ending, and some of them may be left */
	struct account account;
	uint64_t looked_ns; /* when the last look found nothing from its host; 0: it found something */
	uint32_t connection_count, listener_count;
	uint64_t window_bytes; /* sum of the windows granted */
	uint64_t ulp_bytes;    /* kept by the protocols of all connections */
	uint64_t spill_bytes;  /* in their spill buffers */
	struct id_slot *ids;
	uint32_t id_count, id_used, id_free; /* room, ever used, head of the free list (0: none) */

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
/* Takes a batch of frames and carries them out; true when there were any. */
bool channel_receive(struct channel *ch);
/* Sends what there is to send; true when anything was sent. */
bool channel_send(struct channel *ch);
/* A transmit slot for one sequenced message, or false while frame credits or slots are missing. */
bool channel_slot(struct channel *ch, struct xts_tx_slot *slot);
/* Seals and submits a sequenced message. */
void channel_submit(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes);
/* The same for one that the host need not be woken for. */
void channel_submit_quietly(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes);
/* Writes what was gathered for connections, and recycles the frames of the batch. */
void channel_flush(struct channel *ch);
/* A line about the channel, unless its tenant has filled the log. */
__attribute__((format(printf, 2, 3))) void channel_log(const struct channel *ch, const char *format, ...);
/* The host broke the protocol: the link ends. */
void channel_violation(struct channel *ch, const char *what, uint32_t id);

/* --- ending.c ----------------------------------------------------------------------------------------------------- */

/* All connections are to end: reset, or closed as the kernel does for a process that has exited. The channel is ending
 * from now on. */
void channel_end_epoch(struct channel *ch, bool reset);
/* Ends some of them, for the rest of the turn, one at least. */
void channel_end_some(struct channel *ch);
/* Ends the epoch, all of it at once, and frees everything, the queue included. */
void channel_free(struct channel *ch, bool reset);

/* --- command.c: carrying out messages of the host. Its functions, one for each type, are in command_dispatch.h. --- */

/* The proxy refuses the request that is being carried out: its reply says why. Returns the errno, positive. */
int command_refuse(struct channel *ch, enum xts_refusal refusal);
/* A reply that waits its turn: its frame, the head written, the rest to be filled in. */
uint8_t *command_reply(struct channel *ch, uint8_t type, uint32_t bytes, uint32_t xts_socket, int error);
/* For the option calls and ioctl, whose acknowledgements have the same layout. */
void command_reply_value(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error, const void *value, uint32_t bytes);
/* LISTEN_ACK, BIND_ACK or SHARE_ACK about c (NULL: it is gone). */
void command_reply_local(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error);
/* The connection a call is about; id 0 makes it. NULL with *error. */
struct connection *command_target(struct channel *ch, uint32_t id, uint32_t xts_socket, uint32_t domain, int *error);
/* Does policy allow it? Counts if not. */
bool command_allowed(struct channel *ch, enum xts_policy_action action, const struct xts_endpoint *endpoint);

/* --- datagram_send.c ---------------------------------------------------------------------------------------------- */

/* Goes on with channel->unfinished for the rest of the turn. True: it has been read, or the link has failed. */
bool datagrams_read_on(struct channel *ch);

/* --- slow_push.c -------------------------------------------------------------------------------------------------- */

/* True: channel->unfinished waits; the message has not been carried out. */
bool prepare_for_ioctl(struct channel *ch, const struct xts_head *head, const struct xts_ioctl *m,
		       const struct batch_entry *e);
bool prepare_for_connect(struct channel *ch, const struct xts_head *head, const struct xts_connect *m,
			 const struct batch_entry *e);
/* It still waits. */
void prepare_help(struct channel *ch);
/* It waits no more. */
void prepare_forget(struct channel *ch);

/* --- bind.c ------------------------------------------------------------------------------------------------------- */

/* Goes on with the BIND that channel->binding waits for. */
void command_bind_goes_on(struct channel *ch);
/* Names the address and port that the kernel has picked: nobody else has them. 0 or an errno. */
int connection_name_what_is_bound(struct connection *c);

/* --- identifier.c ----------------------------------------------------------------------------------------------- */

/* A new identifier, never 0, for a connection; 0: none left. */
uint32_t identifier_take(struct channel *ch, struct connection *c);
void identifier_release(struct channel *ch, uint32_t id);
/* The epoch has ended, and its identifiers with it: a queue that is used again begins with a small table. */
void identifiers_forget(struct channel *ch);
/* By the identifier a message of the host carries. */
struct connection *connection_find(struct channel *ch, uint32_t proxy_id);
/* By the host's own number, among those whose identifier it may not know yet: for calls that follow a CONNECT. */
struct connection *connection_find_unnamed(struct channel *ch, uint32_t xts_socket);

/* --- window.c --------------------------------------------------------------------------------------------------- */

/* Gives a new connection its window, as far as the tenant's limit allows: the post credits to advertise, 0 for none. */
uint32_t connection_grant_window(struct connection *c);
/* The same for a datagram socket. False: there is no window for it. */
bool connection_grant_datagrams(struct connection *c);
/* The same for a connection with `spilled` bytes in its spill buffer. False: there is no window for it. */
bool connection_grant_claimed(struct connection *c, uint32_t spilled);
/* Doubles the window, at most to buffers_window_max(), while half of the tenant's limit is free. */
void connection_grow_window(struct connection *c);
/* Sets the size of the window, as far as the tenant's limit allows. It shrinks by keeping credits that are freed. */
void connection_set_window(struct connection *c, uint32_t bytes);
/* Bytes of the window have left or are dropped: their credits are freed. */
void connection_free_credits(struct connection *c, uint32_t credits);
/* Gives the window up; it is not charged any more. */
void connection_return_window(struct connection *c);
bool channel_window_left(const struct channel *ch);
/* Counts memory of pushed protocols (negative: that is free). False: the tenant's limit. */
bool connection_count_memory(struct connection *c, int64_t bytes);

/* --- buffers.c ---------------------------------------------------------------------------------------------------- */

/* A connection begins: the window it should have. */
uint32_t buffers_begin(struct connection *c);
/* The largest window that fits the present size of TCP's send buffer. */
uint32_t buffers_window_max(const struct connection *c);
/* The host's application has read so much of what came from TCP. Only until c->receive_tuned. */
void buffers_read(struct connection *c, uint32_t bytes);
/* From now on TCP's receive buffer is tuned as any: before the socket goes to another connection, for instance. */
void buffers_tune(struct connection *c);
/* The socket now belongs to another connection, which has claimed it. */
void buffers_claimed(struct connection *c);
/* An option has been set. */
void buffers_option_set(struct connection *c, int level, int name);
/* The socket is closed or belongs to another connection: ends the charge for its buffers. */
void buffers_uncharge(struct connection *c);

/* --- connection.c ------------------------------------------------------------------------------------------------- */

/* A new socket with an identifier; fd >= 0 is taken over, else one is made. NULL with *error (positive). */
struct connection *connection_new(struct channel *ch, int fd, uint8_t ip_version, int *error);
/* It has something to send: onto the ready list. */
void connection_wake(struct connection *c);
/* Post credits of the host's (send.c). False: a violation. */
bool connection_take_credits(struct connection *c, uint32_t post_credits);
int connection_watch(struct connection *c);
/* CONNECT is answered: it is established, or has failed. */
void connection_connected(struct connection *c);
void connection_connect_failed(struct connection *c, int error);
/* Notes what epoll says, or (0) a timer: it is carried out in the turn of its channel. */
void connection_note(struct connection *c, uint32_t epoll_events);
/* Carries out what was noted. May free it. */
void connection_turn(struct connection *c);
/* Something went wrong on TCP. */
void connection_fail(struct connection *c, int error);
/* Carries out a close of the host; read_bytes as in PROTOCOL.md. */
void connection_close(struct connection *c, uint8_t flags, uint32_t read_bytes);
/* What a datagram socket had to send before its close has been sent. */
void connection_close_datagram(struct connection *c);
/* Goes on with what connection_close() has begun: a listener's backlog takes several turns (channel->refusing). */
void connection_close_listener(struct connection *c);
/* A connection that has failed, as its host knows, becomes an unconnected socket again; false: it has not, or
 * cannot. */
bool connection_renew(struct connection *c);
/* Frees it; the socket is closed, by reset if asked. */
void connection_free(struct connection *c, bool reset);
/* Looks again later, with a growing interval, for what may come without an event: the end of lingering, or room for
 * what a listener could not accept. */
void connection_look_later(struct connection *c);
/* Half-closes or finishes closing when nothing waits. */
void connection_drained(struct connection *c);

/* --- to_tcp.c ----------------------------------------------------------------------------------------------------- */

/* Writes what waits, and then the gathered frames, which wait behind it as far as they are not taken. May free an
 * orphan. */
void connection_flush(struct connection *c);
/* Drops what waits; its credits are free. */
void connection_drop_outgoing(struct connection *c);
/* The payload of a batch entry as pieces. */
int batch_pieces(const struct batch_entry *e, struct iovec *iov, int max);

/* --- to_host.c ---------------------------------------------------------------------------------------------------- */

/* Sends the messages of the connection, at most budget; true when it has more. */
bool connection_send(struct connection *c, uint32_t budget);

/* --- orphan.c ----------------------------------------------------------------------------------------------------- */

/* Frees its identifier and leaves its channel: what was accepted is still delivered, then it frees itself. */
void connection_orphan(struct connection *c);
/* Its host has gone without closing it: is there unread data? Then it ends by reset, as with the kernel. */
bool orphan_would_reset(struct connection *c);
/* Evicts the tenant's oldest orphan on any worker. It is not charged any more, and is reset at once, or by its own
 * worker in that worker's next round. False: the tenant has none. */
bool orphan_gives_way(struct worker_state *w, struct xts_tenant *t);
/* Notes the orphans of this worker that have been evicted. */
void orphans_poked(struct worker_state *w);
/* For connection_free(). */
void orphan_uncount(struct connection *c);
/* Charges bytes for an orphan; false: its tenant's limit. */
bool orphan_take_bytes(struct connection *c, uint64_t bytes);
/* So many bytes are not kept any more. */
void orphan_give_bytes(struct connection *c, uint64_t bytes);
/* Bytes have left the spill buffer. */
void connection_spill_gone(struct connection *c, uint64_t bytes);

/* --- unowned.c ---------------------------------------------------------------------------------------------------- */

/* What a tenant has on a worker without a channel: orphans, and parked connections with bytes to deliver. It gets turns
 * like a channel, in the tenant's share of the worker. */
struct unowned {
	struct list member;        /* on worker->unowned */
	struct xts_tenant *tenant; /* a reference */
	struct account account;
	struct list orphans;     /* the oldest first */
	struct list noted;       /* of them: something has happened to them */
	struct list drains;      /* parked connections (share.h) of which TCP takes more */
	struct list expired;     /* what was kept for too long (keyed.kept): to be ended; under the registry's lock */
	bool expiring;           /* there may be some: a reference */
	struct returned dropped; /* to be freed; if there is something, a reference */
	uint32_t references;
};

/* A reference to the tenant's on this worker; NULL: no memory. */
struct unowned *unowned_hold(struct worker_state *w, struct xts_tenant *t);
void unowned_release(struct unowned *u);
/* Frees those that nothing refers to. */
void unowned_reap(struct worker_state *w);
bool unowned_has_work(const struct unowned *u);
/* One parked connection writes some of what it has. */
void unowned_drain_some(struct unowned *u, struct worker_state *w);

/* --- connection_walk.c -------------------------------------------------------------------------------------------- */

/* The position of a walk over several rounds. What exists from its first round to its last is
 * visited once; begins as { 0 }. */
struct walk {
	uint64_t number;   /* of the channel */
	uint32_t index;    /* connections of it that were passed */
	struct list *node; /* the channel, or the end of the list: only in this round */
};

/* First in each round. */
void walk_goes_on(struct walk *at, struct worker_state *w);
/* The channel, or NULL: there are no more. */
struct channel *walk_channel(struct walk *at, struct worker_state *w);
void walk_leaves_channel(struct walk *at);
/* The connection, of any channel, or NULL: there are no more. The same again until at->index++. */
struct connection *walk_connection(struct walk *at, struct worker_state *w);

struct sockaddr_storage;

/* --- listener.c --------------------------------------------------------------------------------------------------- */

/* Announces c to the host of l (NEWCONN). */
void listener_announce(struct connection *l, struct connection *c, const struct xts_endpoint *peer,
		       const struct xts_tx_slot *slot);
/* Accepts and announces connections while credits last, at most budget; true when it has more. */
bool listener_send(struct connection *l, uint32_t budget);
/* The connection becomes a listener: the caller has charged XTS_USE_LISTENERS. */
void listener_become(struct connection *c);
/* May its tenant have one connection more? */
bool listener_has_room(const struct connection *l);
/* Closes the listener's descriptor; other processes may have the same socket open. */
void listener_close(struct connection *l);
/* Resets connections in the kernel's backlog until the turn is over. True: none is left, so that closing the socket is
 * quick. With 4,000 connections in the backlog close() took 33 to 69 ms. */
bool listener_refuse_some(struct connection *l);
/* The same for one. False: there is none. */
bool backlog_refuse_one(int listener_fd);
/* The host has answered the announcement of c, or never will. */
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
/* The socket's own address, and its peer's; none when it has none. */
void socket_local(int fd, struct xts_endpoint *endpoint);
void socket_peer(int fd, struct xts_endpoint *endpoint);

/* --- worker.c ----------------------------------------------------------------------------------------------------- */

#include "log.h"

/* Runs a function in the worker's thread between two rounds, again in each round while it returns true, and waits for
 * it. The function stops when worker_turn_is_over(). */
void worker_request(struct xts_worker *worker, bool (*run)(struct worker_state *w, void *argument), void *argument);
/* Waits for XTS_ANSWER_MS at most: 0, or -ETIMEDOUT, and the function is not run (again). */
int worker_ask(struct xts_worker *worker, bool (*run)(struct worker_state *w, void *argument), void *argument);

struct worker_state { /* what channels and connections see of their worker */
	struct xts_worker_config config;
	struct trust trust;
	int epoll_fd;
	struct ulp_bell bell; /* jobs of the handshake pool come back here */
	int command_fd;       /* an eventfd: the supervisor has a request, or another worker has left something */
	uint64_t now_ns;
	uint64_t woken_ns; /* when it last ended a sleep */
	bool draining;
	uint64_t policy_number;                    /* of the present rules */
	struct datagram_scratch *datagram_scratch; /* NULL: there has been no datagram socket */
	struct datagram_copies *datagram_copies;   /* likewise */
	struct list channels, unowned;
	uint64_t channel_numbers; /* given so far */
	struct list cut;          /* orphans of this worker that are to be reset; under the lock of orphan.c */
	struct connection *dead;  /* freed this round: epoll may still point at them */
	struct trim trim;
	struct timers timers;      /* of connections, and of pushed protocols that want to be called */
	_Atomic uint64_t round_ns; /* when the present round began; 0: asleep */
	_Atomic uint64_t doing;    /* enum xts_worker_phase << 32 | queue */
	struct round_time round_time;
	struct schedule schedule;
	uint64_t turn_end_ns; /* of the present turn */
	/* what this worker keeps while nobody holds it (share.h); under the registry's lock */
	struct list kept;
	struct list wanted;             /* connections that processes of other channels ask for; likewise */
	_Atomic uint32_t kept_count[3]; /* by enum keyed_kind; written under that lock */
	struct timers kept_timers;      /* when that is over; likewise */
	uint64_t keep_deadline_ns;      /* nothing kept has to be ended before */
	/* claimed or ended meanwhile: to be freed at the end of a round; under the registry's lock */
	struct parked *stale;
	/* Another worker has left something in one of these lists, in a shared socket, or on cut. Looked at without a
	 * lock: without it there is no reason to take one. */
	atomic_bool left;
	bool poked;           /* look at stale */
	uint64_t share_turns; /* given so far to members of shared listeners */
	struct xts_worker_stats stats;
	struct log log;
	struct closed_list closed;
};

uint64_t worker_monotonic_ns(void);

static inline void worker_doing(struct worker_state *w, enum xts_worker_phase phase, uint32_t queue_id)
{
	atomic_store_explicit(&w->doing, (uint64_t)phase << 32 | queue_id, memory_order_relaxed);
}

/* Something is left for the worker, under the lock of what it was left in: it looks in its next round. */
void worker_poke(struct worker_state *w);

/* --- turns.c ------------------------------------------------------------------------------------------------------ */

/* Is the present turn over? Reads the clock. Work that has begun is finished anyway; the rest waits for the next
 * turn. */
bool worker_turn_is_over(struct worker_state *w);
/* The parts of a round; true when there was anything to do, or may be. */
bool turns_receive(struct worker_state *w);
bool turns_carry_out(struct worker_state *w);
bool turns_send(struct worker_state *w); /* frees channels that are dying */

/* --- supervisor_requests.c ---------------------------------------------------------------------------------------- */

/* A configuration with rules and references of its own: 0 or -ENOMEM. */
int worker_copy_config(struct xts_worker_config *to, const struct xts_worker_config *from);
void worker_free_config(struct xts_worker_config *config);
/* Accepts no new connections from now on. True: there are more listeners to be closed than the turn had
 * time for. at begins as { 0 }. */
bool worker_drain(struct worker_state *w, struct walk *at);

#endif
