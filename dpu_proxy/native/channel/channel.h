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
#include <sys/socket.h>

#include "addresses/bound_addresses.h"
#include "turns/command_dispatch.h"
#include "channel/continuation.h"
#include "channel/gather.h"
#include "channel/relay.h"
#include "channel/token.h"
#include "channel/unnamed.h"
#include "connection/connection.h"
#include "connection/wait_reasons.h"
#include "wire/datagram.h"
#include "link/link.h"
#include "names/names.h"
#include "decorators/packets.h"
#include "processes/heard.h"
#include "queues/queue.h"
#include "tenants/tenant.h"
#include "worker/list.h"
#include "worker/schedule.h"
#include "worker/worker_state.h"

#define CHANNEL_BATCH 32u /* frames taken per round */
/* of a queue, here and in the process that accepts attachments: memory, two eventfds, life, the attachment, its pidfd,
 * status */
#define CHANNEL_DESCRIPTORS 8u
#define SOCKET_CALL_BYTES_MAX 512u /* the longest value of an option or ioctl */
/* What a host may go on with in another process, where its queue can. */
#define MOVE_FEATURES (XTS_FEATURE_MOVE | XTS_FEATURE_MOVE_DATAGRAM | XTS_FEATURE_MOVE_PUSHED | XTS_FEATURE_MOVE_NAMED)

struct ended_epochs;

#define ID_INDEX_BITS 20u
#define ID_INDEX_MASK ((1u << ID_INDEX_BITS) - 1)
#define ID_GENERATIONS (1u << (32 - ID_INDEX_BITS))

struct batch_entry {
	struct xts_rx_frame frame;
	uint32_t skip, bytes; /* payload: where it begins in the frame, and how long it is */
	struct ulp_mark mark; /* only its pdu is set for a byte stream */
	uint8_t next;         /* of the same connection; BATCH_NONE: it is the last */
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

struct channel {
	struct watch queue_watch, life_watch;
	struct list member; /* on worker->channels */
	struct worker_state *worker;
	struct xts_queue *queue;
	struct xts_queue *own_queue; /* the innermost, of its kind */
	uint64_t number;             /* larger than those of the channels before it */
	struct xts_packets packets;  /* some of its decorators */
	struct xts_link link;
	uint32_t queue_id;
	uint32_t descriptors;      /* descriptors of its queue, charged to the tenant */
	struct relayed relayed;    /* for a relay's queue, or a process behind one (relay.h) */
	struct xts_tenant *tenant; /* the tenant charged for it; a reference */
	struct identity identity;  /* who its token names, where tokens are required */
	struct xts_owner owner;    /* of the process */
	int life_fd;
	uint64_t spoken_of;                /* the epoch, while it may be spoken of (ended_epochs.h); else 0 */
	struct ended_epochs *ended_epochs; /* NULL: none has ended */
	bool epoch_live;                   /* the link is up and nothing has ended it yet */
	struct continuation continuation;  /* the command that takes several turns; resume is NULL: there is none */
	bool again;                        /* the message that is carried out has waited for a continuation already */
	uint32_t ports_tried;              /* by the BIND or CONNECT that goes on (local_ports.h) */
	bool ending;                       /* the connections of an ended epoch are being closed (turns/epoch.c) */
	bool ending_reset;                 /* they are reset */
	bool dying;                        /* it is freed at the end of a round in which it is not ending any more */
	uint32_t last_rounds; /* its process is gone: rounds left to receive what it had sent. 0: the process lives */
	bool cut_short;       /* the last turn ended with more to send */
	bool kick_again;
	struct timer clock;                         /* of a queue that has one */
	bool late_fins;                             /* CLOSED is to send FINs: send_late_fins() */
	bool slot_missing;                          /* a send found no transmit slot: do not sleep for long */
	uint32_t unkicked_bytes, unkicked_messages; /* submitted, but the host may not have been woken for them */
	uint64_t unkicked_ns;                       /* since when */
	uint32_t kicks;                             /* after which all that was submitted before is with the queue */
	uint32_t quiet_frames; /* submitted, but nobody waits for them: they leave with the next kick, or soon */
	uint64_t quiet_ns;     /* since when */
	uint8_t rung_ack;      /* the ACK that the host had when it was last woken */

	struct list connections;
	struct list ready;
	struct gather gather;
	struct unnamed unnamed;
	struct list noted; /* connections with noted events */
	struct frames_missing frames_missing;
	struct names names;
	/* connections that it has parked and still has to return the rest of; under the registry's lock */
	struct list returning;
	struct move_out *move; /* it goes to another process of the proxy; NULL in most */
	/* listeners with protocols accept nothing until then, since it may be handed over; and since when they do not */
	uint64_t accepts_held_until_ns, accepts_held_since_ns;
	uint64_t moved_ticket;     /* by which its host claims what came with it */
	uint64_t moved_epoch;      /* it has come from another one, and its host has this epoch; 0: no */
	struct heard_frames heard; /* that come again, which it had sent to that one */
	bool returning_left;       /* the channel is ending, and some of these may be left */
	struct account account;
	uint64_t looked_ns; /* when its queue was last checked and had nothing from the host; 0: it had something */
	uint32_t connection_count, listener_count;
	uint64_t window_bytes; /* sum of the windows granted */
	uint64_t ulp_bytes;    /* kept by the protocols of all connections */
	uint64_t spill_bytes;  /* bytes in their spill buffers */
	struct id_slot *ids;
	uint32_t id_count, id_used, id_free; /* room, slots ever used, head of the free list (0: none) */
	uint16_t id_generation;              /* of a new slot: move_generation() */

#ifdef XTS_DEBUG
	uint32_t replies_made; /* by the message that is being carried out (tickets.h) */
#endif
	uint8_t refusal;       /* enum xts_refusal: why the proxy refuses the request that is being carried out */
	struct reply *replies; /* ring of XTS_FRAME_WINDOW_MAX */
	uint32_t reply_first, reply_count;

	uint32_t batch_used;
	uint64_t batch_bytes;
	struct batch_entry batch[CHANNEL_BATCH];
	uint32_t dirty_count;
	struct connection *dirty[CHANNEL_BATCH]; /* to be flushed with the batch; NULL: flushed already */
};

/* --- channel.c ---------------------------------------------------------------------------------------------------- */

int channel_open(struct channel **out, struct worker_state *worker, struct xts_queue *queue, int life_fd,
		 uint32_t queue_id, struct xts_tenant *tenant);
/* The limit of sockets that HELLO_ACK announces to the host. */
uint32_t channel_sockets_max(const struct xts_tenant *t);
/* Logs a line about the channel, unless its tenant has used up its log lines. */
__attribute__((format(printf, 2, 3))) void channel_log(const struct channel *ch, const char *format, ...);
/* The host broke the protocol: the link ends. */
void channel_violation(struct channel *ch, const char *what, uint32_t id);

/* --- turns/channel_receive.c -------------------------------------------------------------------------------------------- */

/* Receives a batch of frames and carries them out; true when there were any. */
bool channel_receive(struct channel *ch);
/* Writes the payload gathered for connections to TCP, and recycles the frames of the batch. */
void channel_flush(struct channel *ch);

/* --- turns/channel_send.c ----------------------------------------------------------------------------------------------- */

/* Sends what the channel has to send; true when anything was sent. */
bool channel_send(struct channel *ch);

/* --- connection/dirty.c ------------------------------------------------------------------------------------------- */

/* The connection has something to flush with the batch. */
void channel_dirty(struct channel *ch, struct connection *c);
/* It has not any more. */
void channel_clean(struct channel *ch, struct connection *c);
/* Writes what they have to TCP. */
void channel_flush_dirty(struct channel *ch);

/* --- submit.c ------------------------------------------------------------------------------------------------------ */

/* How many frames may be sent now. Where the host can go on with another process of the proxy one is set aside, for the
 * MOVE that asks it: a host that sleeps, with its window full, could not be asked. */
static inline uint32_t channel_credits(const struct channel *ch)
{
	uint32_t credits = xts_link_credits(&ch->link), for_move = ch->link.features & XTS_FEATURE_MOVE && !ch->move;

	return credits > for_move ? credits - for_move : 0;
}
/* A transmit slot for one sequenced message, or false while frame credits or slots are missing. */
bool channel_slot(struct channel *ch, struct xts_tx_slot *slot);
/* The same for MOVE. */
bool channel_slot_of_move(struct channel *ch, struct xts_tx_slot *slot);
/* Gives it back unused. */
void channel_abandon(struct channel *ch, const struct xts_tx_slot *slot);
/* Seals and submits a sequenced message. */
void channel_submit(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes);
/* The same for a message that the host need not be woken for. */
void channel_submit_quietly(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes);
/* Wakes the host for what was submitted. */
void channel_kick(struct channel *ch);
/* Of a queue with a clock: sets the timer for its next deadline. After receiving; a kick does it by itself. */
void channel_clock_set(struct channel *ch);

/* --- turns/epoch.c ----------------------------------------------------------------------------------------------------- */

/* A HELLO has been accepted: a process begins. */
void channel_link_opened(struct channel *ch);
/* The link went down: by GOODBYE, or by a violation of either kind. */
void channel_link_closed(struct channel *ch);
/* Begins to end all connections: they are reset, or closed as the kernel does for a process that has exited. The
 * channel is *ending* from now on. */
void channel_end_epoch(struct channel *ch, bool reset);
/* The same for what has come from another process, with a host that has ended and has not said HELLO. */
void channel_end_moved(struct channel *ch, bool reset);
/* Ends the epoch, all of it at once, and frees everything, including the queue. */
void channel_free(struct channel *ch, bool reset);

/* --- turns/leave.c ------------------------------------------------------------------------------------------------ */

/* In its turn, when it has received: leaves it if its host has sent its last message. */
void channel_left_look(struct channel *ch);
/* From now on nothing is done for the channel, but that its GOODBYE leaves (processes/move.h). */
void channel_leave(struct channel *ch);
/* Has its host sent nothing since it was asked, and waits for nothing? Then it may be asleep, and nothing is under way. */
bool channel_is_quiet(struct channel *ch);

/* --- reply.c ------------------------------------------------------------------------------------------------------- */

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
/* Does policy allow it? Counts a refusal. */
bool command_allowed(struct channel *ch, enum xts_policy_action action, const struct xts_endpoint *endpoint);

/* --- connection/target.c ------------------------------------------------------------------------------------------ */

/* The connection that a call is about; id 0 makes a new one. NULL with *error. */
struct connection *command_target(struct channel *ch, uint32_t id, uint32_t xts_socket, uint32_t domain, int *error);

/* --- pushed/slow_push.c -------------------------------------------------------------------------------------------------- */

/* True: the message has not been carried out, and waits (continuation.h). */
bool prepare_for_ioctl(struct channel *ch, const struct xts_head *head, const struct xts_ioctl *m,
		       const struct batch_entry *e);
bool prepare_for_connect(struct channel *ch, const struct xts_head *head, const struct xts_connect *m,
			 const struct batch_entry *e);

/* --- connection/bind.c ------------------------------------------------------------------------------------------------------- */

/* bind(2), to a port of the tenant's if it is 0. 0, or an errno with its refusal; with `tried` also LOCAL_PORTS_LATER
 * (local_ports.h). */
int connection_bind_fd(struct connection *c, const struct xts_endpoint *local, uint32_t *tried);
/* May the socket be bound there: by policy, and by the kernel's rule for privileged ports? 0 or an errno, with its
 * refusal. */
int connection_may_bind(struct connection *c, const struct xts_endpoint *local);
/* connect(2) of TCP, from a port of the tenant's if the socket has none. 0, LOCAL_PORTS_LATER, or an errno with its
 * refusal. */
int connection_connect_fd(struct connection *c, const struct sockaddr *address, socklen_t length);
/* Notes the address and port that the kernel has picked, which nobody else can have. 0 or an errno. */
int connection_note_bound_address(struct connection *c);

/* --- identifier.c ----------------------------------------------------------------------------------------------- */

/* A new identifier, never 0, for a connection; 0: none left. */
uint32_t identifier_take(struct channel *ch, struct connection *c);
void identifier_release(struct channel *ch, uint32_t id);
/* Forgets all identifiers at the end of an epoch. A queue that is used again begins with a small table. */
void identifiers_forget(struct channel *ch);
/* Finds a connection by the identifier in a message of the host. */
struct connection *connection_find(struct channel *ch, uint32_t proxy_id);

#endif
