/*
 * The proxy's native part as its supervisor (Python, xts_proxy/workers/workers.py) sees it: workers, tenants and policy.
 *
 * Theory of operation
 *
 * A worker is one thread with its own epoll. It serves a set of channels: each is one queue, with one host process at
 * the other end. A worker runs in rounds: it receives from its queues, handles events of TCP and UDP sockets, and
 * sends. Workers share nothing on the data path.
 *
 * The supervisor starts workers, gives them channels, replaces their configuration and reads their figures. It calls
 * these functions from its own thread. Each takes effect between two rounds of the worker, and returns after that
 * (run_in_worker.c), except where it says otherwise. Errors are returned as -errno.
 *
 * Everything that costs the device time or memory is charged to a tenant (tenant.h). Policy rules say which tenant may
 * connect or listen where (policy.h).
 */
#ifndef XTS_WORKER_H
#define XTS_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"
#include "queues/queue.h"
#include "ulp_wire.h"
#include "attaching/waits.h"
#include "worker/tcp_view.h"

struct xts_ulp_config;

enum xts_policy_action { XTS_POLICY_CONNECT = 1, XTS_POLICY_LISTEN = 2, XTS_POLICY_BOTH = 3 };

/* A rule about connecting and listening. The first rule that matches decides; if none does, the default in
 * xts_worker_config. */
struct xts_policy_rule {
	bool allow;
	uint8_t action;      /* enum xts_policy_action */
	uint8_t ip_version;  /* 4, 6, or 0 for both (address is then ignored) */
	uint8_t prefix_bits; /* of the network that the address has to be in */
	uint8_t address[16]; /* the remote address for connect, the local one for listen */
	uint16_t port_first, port_last;
	uint32_t queue_first, queue_last;
	uint32_t tenant; /* its id, or XTS_TENANT_ANY */
	bool own;        /* matches the device's own addresses, instead of a network (policy.h) */
};

/* Who is charged for the device's resources (tenant.h): a user, a container or an interface. Shared by all workers. */
struct xts_tenant;

/* Resources that are counted for each tenant, over all its channels and workers. A request that would exceed the
 * tenant's limit is refused with ENOBUFS. */
enum xts_resource {
	XTS_USE_CONNECTIONS, /* TCP sockets of its channels in any state, except listeners */
	XTS_USE_LISTENERS,   /* listeners of its channels */
	XTS_USE_SPILL_BYTES, /* windows granted to hosts: the most that can ever wait in spill buffers */
	/* bytes that pushed protocols keep in addition to windows, such as a message of which a part has arrived */
	XTS_USE_ULP_BYTES,
	/* connections that belong to no channel: parked, or given back by one of the processes that share a listener */
	XTS_USE_KEPT,
	XTS_USE_KEPT_BYTES, /* bytes in the spill buffers of these connections, and kept by their protocols */
	/* connections that their host has closed, or whose host is gone, and that still have bytes to deliver */
	XTS_USE_ORPHANS,
	XTS_USE_ORPHAN_BYTES, /* bytes that orphans have to deliver, and what their protocols keep */
	XTS_USE_NAMES,        /* sockets that have a key, by which other channels may use them (share.h) */
	XTS_USE_DESCRIPTORS,  /* open descriptors: of sockets in any state, and of queues */
	XTS_USE_SOCKET_BYTES, /* memory of the sockets themselves, here and in the kernel: an estimate */
	XTS_USE_HANDSHAKES,   /* handshakes of pushed protocols that are under way */
	XTS_USE_CPU_NS,       /* CPU time of workers, since the tenant was made; has no limit */
	XTS_USE_LOOKUPS,      /* lookups of names that are under way (names.h) */
	XTS_USE_GROUPS,       /* multicast memberships of datagram sockets, and the sources they name (multicast.h) */
	XTS_USE_FILTERS,      /* instructions of filters of datagram sockets (datagram_filter.c) */
};
#define XTS_RESOURCES 16

/* Resources of the whole machine, of which each tenant has a guaranteed share (resource_pool.h). Everything that is
 * counted in bytes comes from XTS_POOL_MEMORY. */
enum xts_pool { XTS_POOL_DESCRIPTORS, XTS_POOL_MEMORY };
#define XTS_POOLS 2
/* Sets how much of each pool all tenants may use together; XTS_POOLS numbers. 0: no limit. */
void xts_pools_configure(const uint64_t *capacity);

#define XTS_TENANT_NAME_BYTES 64
#define XTS_FILTER_NAME_BYTES 64
#define XTS_TENANT_ANY 0xffffffffu
struct xts_tenant_config {
	char name[XTS_TENANT_NAME_BYTES];
	uint32_t id;                /* how policy rules refer to it */
	uint32_t weight;            /* its share of a worker's time, relative to the weights of others */
	uint32_t window_bytes;      /* the window a connection starts with */
	uint32_t window_bytes_max;  /* a busy connection's window grows to this, while half of its limit is free */
	uint32_t orphan_timeout_ms; /* an orphan is reset when its peer has taken no bytes for this long */
	uint64_t pacing_bytes_s;    /* all its sockets together send no faster; 0: no limit */
	bool marks;                 /* its packets have this DSCP (mark.h) */
	uint8_t dscp;
	uint64_t limit[XTS_RESOURCES];
	uint64_t guaranteed[XTS_POOLS];
	uint16_t port_first, port_last; /* local ports that only it may use (local_ports.h); 0: none */
};

/* Makes a tenant. The caller has the only reference to it. NULL: no memory. */
struct xts_tenant *xts_tenant_new(const struct xts_tenant_config *config);
/* Sets everything except name and id. What is in use above a new limit stays; new requests are refused. */
void xts_tenant_configure(struct xts_tenant *tenant, const struct xts_tenant_config *config);
/* Gives up the caller's reference. Channels and connections have references of their own. */
void xts_tenant_release(struct xts_tenant *tenant);

struct xts_tenant_stats {
	uint64_t used[XTS_RESOURCES];
	uint64_t refused[XTS_RESOURCES]; /* requests that would have exceeded the limit */
	uint64_t pool_used[XTS_POOLS], pool_guaranteed[XTS_POOLS];
	uint64_t pool_refused[XTS_POOLS]; /* requests above its guarantee, when the common part was used up */
	uint32_t ports_guaranteed;        /* local ports that only it may use */
	uint64_t ports_refused;           /* connects and binds that found no free local port */
};
void xts_tenant_stats(const struct xts_tenant *tenant, struct xts_tenant_stats *out);

/* A rule about name lookups. The first rule that matches decides; if none does, default_allow. */
struct xts_name_rule {
	bool allow;
	uint32_t tenant;       /* its id, or XTS_TENANT_ANY */
	uint32_t domain_bytes; /* 0: any name */
	uint8_t domain[255];   /* matches the domain and names below it. As in a DNS message, in lower case */
};

#define XTS_RESOLVERS_MAX 8
/* How names are looked up for hosts (names.h). */
struct xts_names_config {
	bool default_allow;
	uint32_t resolver_count; /* 0: no lookups, and the feature is not offered to hosts */
	struct xts_endpoint resolvers[XTS_RESOLVERS_MAX];
	uint32_t timeout_ms;               /* for one query to one resolver */
	uint32_t attempts;                 /* how often each resolver is asked before the lookup fails */
	uint32_t families;                 /* XTS_FAMILY_*: address families that the device has; 0: not known */
	const struct xts_name_rule *rules; /* copied */
	uint32_t rule_count;
};

#define XTS_INTERFACE_TEXT_BYTES 220
#define XTS_INTERFACE_STAMPS_BYTES 88
#define XTS_INTERFACE_IPV4 32
/* A network interface of the device, where hosts may join multicast groups. */
struct xts_interface {
	uint32_t index;
	uint8_t ipv4[XTS_INTERFACE_IPV4][4]; /* its first addresses; zeros: no more */
	char text[XTS_INTERFACE_TEXT_BYTES]; /* its line for hosts (PROTOCOL.md), with a line feed; empty: not listed */
	char stamps[XTS_INTERFACE_STAMPS_BYTES]; /* its line about time stamps, in the same form */
};

struct xts_worker_config {
	int cpu;                /* the CPU to run on; -1: any */
	uint32_t spin_us;       /* how long an idle worker polls before it sleeps */
	bool polls_always;      /* while it has a socket it does not sleep */
	uint32_t wakeup_gap_us; /* from one wake-up to the next, at least (worker.c); 0: any */
	/* the most channels behind one relay (relay.h), up to XTS_RELAYED_MAX; 0: relays are refused */
	uint32_t relayed_max;
	uint16_t ethertype;
	bool policy_default_allow;           /* may connect where no rule matches */
	bool policy_listen_allow;            /* may bind and listen where no rule matches */
	bool low_ports_for_all;              /* struct xts_owner's first_port is ignored */
	const struct xts_policy_rule *rules; /* copied */
	uint32_t rule_count;
	const char *congestion_controls; /* algorithms that a host may choose (sockopt.h); copied */
	uint64_t (*clock_ns)(void);      /* NULL: CLOCK_MONOTONIC. For tests; xts_worker_configure() ignores it */
	/* settings of pushed protocols (ulp/config.h); the worker takes a reference of its own. NULL: defaults */
	struct xts_ulp_config *ulp;
	struct xts_names_config names;
	const struct xts_interface *interfaces; /* of the device, sorted by index; copied */
	uint32_t interface_count;
	uint16_t port_first, port_last; /* local ports that all tenants share (local_ports.h); 0: not known */
	uint32_t closed_sample; /* one connection in this many leaves a record when it ends (closed_records.h); 0: none */
};

/* What is known of the process behind a channel, from its token or from the proxy's own endpoint. */
struct xts_owner {
	uint32_t uid;        /* XTS_UID_UNKNOWN: nobody has said */
	uint32_t first_port; /* it may bind to this port and those above (messages/xts_messages/machine/low_ports.py) */
};
#define XTS_UID_UNKNOWN UINT32_MAX
#define XTS_FIRST_PORT_UNKNOWN 1024u

struct xts_worker;

/* Starts a worker. 0 or -errno. */
int xts_worker_start(struct xts_worker **out, const struct xts_worker_config *config);
/* Gives the worker a channel, which is charged to the tenant. If it succeeds, the worker owns the queue and life_fd.
 * When life_fd becomes readable or hangs up, the host process has ended, and the channel is closed and freed. With
 * life_fd -1 the channel stays, and waits for the HELLO of the next process. owner: of the process; NULL: it is not
 * known, or tokens will say. 0 or -errno. */
int xts_worker_add_channel(struct xts_worker *worker, struct xts_queue *queue, int life_fd, uint32_t queue_id,
			   struct xts_tenant *tenant, const struct xts_owner *owner);
#define XTS_TOKEN_KEY_BYTES_MAX 128
#define XTS_CGROUP_BYTES_MAX 255
/* Which tenant a process behind an interface belongs to. The first rule that matches its token decides (token.h). */
struct xts_identity_rule {
	uint32_t queue_first, queue_last;
	bool any_uid; /* uid is ignored */
	uint32_t uid;
	uint32_t cgroup_bytes;                /* 0: any cgroup */
	uint8_t cgroup[XTS_CGROUP_BYTES_MAX]; /* matches this cgroup and those below it */
	struct xts_tenant *tenant;
};
/* Requires attach tokens under this key on channels that are added from now on, except where life_fd is the attach
 * connection of a process of this machine (XTS_QUEUE_DEATH_SHOWS). The rules (copied) are
 * for links that open from now on. key_bytes 0: tokens are not required. 0 or -errno. */
int xts_worker_trust(struct xts_worker *worker, const uint8_t *key, uint32_t key_bytes,
		     const struct xts_identity_rule *rules, uint32_t rule_count);
/* Closes a channel: sends GOODBYE, then resets its connections. */
int xts_worker_remove_channel(struct xts_worker *worker, uint32_t queue_id);
/* No process has the connections of these keys any more: they end. */
int xts_worker_keys_over(struct xts_worker *worker, struct xts_tenant *tenant, const uint64_t *keys, uint32_t count);
/* Replaces the configuration, for requests from now on. Limits are set with xts_tenant_configure(). */
int xts_worker_configure(struct xts_worker *worker, const struct xts_worker_config *config);

/* Handing a channel over to another process of the proxy (processes/move.h), or back. */
#define XTS_MOVED_FDS 200
/* a note for each (processes/move_record.h) */
#define XTS_MOVED_NOTES_BYTES 4000
#define XTS_MOVED_NAMES_BYTES 5600
/* A piece of what a channel hands over. The caller owns it: xts_moved_free(), and the descriptors. */
/* A channel behind a relay's queue that goes with it. */
struct xts_relayed {
	uint32_t number;
	char tenant[XTS_TENANT_NAME_BYTES];
	uint64_t ticket, epoch;
	struct xts_owner owner;
};
struct xts_moved {
	/* records of sockets; of the last piece, the state of the queue (xts_queue_resume()), its session
	 * (xts_arq_resume()), and what the channel knows of its host (struct xts_resumed) */
	uint8_t *data;
	uint32_t bytes, room;
	uint32_t state_bytes, session_bytes;  /* of the last piece: how many are the queue's state, and its session */
	int private_fd;                       /* where keys are written to (processes/private_bytes.h); the caller's */
	uint32_t private_bytes;               /* so much has been: the descriptor goes behind fds */
	bool private_broken;                  /* it takes nothing more */
	uint8_t notes[XTS_MOVED_NOTES_BYTES]; /* for behind the records */
	uint32_t note_bytes;
	uint8_t names[XTS_MOVED_NAMES_BYTES]; /* for behind these: earlier versions read the notes only */
	uint32_t name_bytes;
	int fds[XTS_MOVED_FDS]; /* one for each record; of the last piece, those of the queue */
	uint32_t fd_count;
	uint32_t sockets; /* in this piece */
	uint32_t reset;   /* of the last piece: connections that could not be handed over, and were reset */
	bool last;        /* the channel is gone */
	char tenant[XTS_TENANT_NAME_BYTES]; /* whom the channel is charged to */
	/* Of the last piece: for struct xts_resumed. */
	uint64_t ticket, epoch;
	struct xts_owner owner;
	struct xts_relayed *relayed; /* what is known of their hosts is behind what is known of its own */
	uint32_t relayed_count;
};
/* Begins: the host has so long to finish its calls. 0; or nothing has begun: -ENOENT: no such channel; -EALREADY;
 * -EAGAIN: not at the moment; -EBUSY: it has connections that cannot be handed over, and may end by themselves;
 * -EOPNOTSUPP: its host cannot go on with another process. */
enum xts_move_urgency {
	XTS_MOVE_WHEN_POSSIBLE,
	XTS_MOVE_NOW, /* the last two are no reason to wait any more: what cannot be handed over is reset */
	XTS_MOVE_END, /* it is not asked any more either: the queue goes on, and its epoch ends */
};
/* For -EBUSY and -EOPNOTSUPP: what it waits for, and of how many sockets. */
#define XTS_MOVE_REASONS 8
struct xts_move_reason {
	const char *why;
	uint32_t sockets;
};
struct xts_move_waits {
	struct xts_move_reason reasons[XTS_MOVE_REASONS];
	uint32_t count;
};
/* records_version: up to which the process that takes over reads records (record_table.py). */
int xts_worker_move_ask(struct xts_worker *worker, uint32_t queue_id, uint32_t within_ms, enum xts_move_urgency urgency,
			uint16_t records_version, struct xts_move_waits *waits);
/* The next piece. private_fd: an empty file in memory, for keys. 0; -EAGAIN: not yet; -ECANCELED: its host has gone
 * meanwhile; -ENOENT; another -errno. */
int xts_worker_move_take(struct xts_worker *worker, uint32_t queue_id, int private_fd, struct xts_moved *out);
void xts_moved_free(struct xts_moved *m);
/* The last descriptor is the one where keys are, if any are. Takes sockets, for which the tenant is charged, and all
 * descriptors. Returns how many; the others are reset. */
int xts_worker_take_in(struct xts_worker *worker, struct xts_tenant *tenant, const uint8_t *data, uint32_t bytes,
		       const int *fds, uint32_t fd_count);
/* Ends what xts_worker_take_in() has kept for queues that have not come, and will not: who had them has ended. */
void xts_worker_forget_arrived(struct xts_worker *worker);

/* As xts_worker_add_channel(), for a queue that another process has left: its host has these sockets and this epoch,
 * and is known so. -EINVAL: that cannot be read. */
struct xts_resumed {
	uint64_t ticket, epoch;
	const uint8_t *known;
	uint32_t known_bytes;
	struct xts_owner owner;
	bool died; /* that process has not left it, but died: its host is told, and says RESUME */
	const struct xts_relayed *relayed;
	struct xts_tenant **tenants; /* of those */
	uint32_t relayed_count;
};
int xts_worker_resume_channel(struct xts_worker *worker, struct xts_queue *queue, int life_fd, uint32_t queue_id,
			      struct xts_tenant *tenant, const struct xts_resumed *how);

/* --- a process goes on when the one before it has died: channel/ledger.h --- */

/* Makes the ledger, for descriptors and queues below these numbers, before the understudy is made. Queues are written
 * down from now on. 0 or -errno. */
int xts_ledger_make(uint32_t descriptors, uint32_t channels);
/* Makes a process that shares this one's descriptors, and has its memory as a copy and its parent (clone_sharing.c).
 * Returns its number, in that process 0; or -errno. Only while there is one thread. */
int xts_clone_sharing(void);
struct xts_swept {
	uint32_t kept;  /* sockets that may go on */
	uint32_t reset; /* connections that cannot */
};
/* In the process that goes on, before it opens anything: closes all descriptors below this number but those to keep,
 * and those that the ledger tells of. 0 or -errno. */
int xts_ledger_sweep(uint32_t descriptors, const int *keep, uint32_t keep_count, struct xts_swept *out);
/* When there is memory for keys: the process that will go on finds it, if there is a ledger. In a process that goes on,
 * it takes TLS connections out of the memory that the one before had. Before there are workers. */
void xts_ledger_keys(void);
#define XTS_KNOWN_BYTES_MAX 1024
struct xts_dead_channel {
	uint64_t epoch;
	char tenant[XTS_TENANT_NAME_BYTES];
	struct xts_owner owner;
	uint8_t known[XTS_KNOWN_BYTES_MAX];
	uint32_t known_bytes;
	uint32_t number;   /* behind a relay */
	uint8_t heads[10]; /* for xts_headed_resume_dead() */
};
/* What the ledger says of a channel. -ENOENT: its host had no epoch, or cannot go on. */
int xts_ledger_channel(uint32_t queue_id, struct xts_dead_channel *out);
/* The same of the channels behind this one, which is a relay's: the first one from here on (0: of all). Returns where
 * the next one is looked for; 0: there is none. */
uint32_t xts_ledger_relayed(uint32_t queue_id, uint32_t from, struct xts_dead_channel *out);
/* The line of a descriptor (struct ledger_line), and a place for a page (struct ledger_relayed); NULL: there is none. */
void *xts_ledger_line(uint32_t fd);
void *xts_ledger_place_of_relayed(uint32_t index);
/* Where the struct of its queue was, for resume_dead (queue_kinds.h), and how long that may be. NULL: nowhere. */
const void *xts_ledger_queue(uint32_t queue_id);
uint32_t xts_ledger_queue_bytes(void);
/* The same of its decorator that repeats lost frames, for xts_arq_dead_session() (arq.h). */
void *xts_ledger_session(uint32_t queue_id);
uint32_t xts_ledger_session_bytes(void);
/* Keeps the sockets of a channel for its host, as xts_worker_take_in(). number: behind the relay that has the queue; or
 * 0. queue: the channel's, which has just been resumed and is used by nobody. Returns how many there are; or -ENOENT. */
int xts_worker_recover(struct xts_worker *worker, struct xts_queue *queue, struct xts_tenant *tenant, uint32_t queue_id,
		       uint32_t number, uint64_t ticket);

/* Closes all listeners and refuses new sockets with ESHUTDOWN; connections go on. xts_worker_stats() shows when none
 * are left. */
int xts_worker_drain(struct xts_worker *worker);
/* Sends GOODBYE(error) on all channels, closes them, ends the thread and frees everything. Blocks some milliseconds. */
void xts_worker_stop(struct xts_worker *worker, int error);

/* What the worker is doing, and since when. Read without its help, so it also works for a worker that hangs. */
enum xts_worker_phase {
	XTS_PHASE_ASLEEP,
	XTS_PHASE_RECEIVE, /* receives messages from a queue */
	XTS_PHASE_EVENTS,  /* handles events of a queue's connections */
	XTS_PHASE_SEND,    /* sends to a queue */
	XTS_PHASE_REQUEST, /* carries out a request of the supervisor */
	XTS_PHASE_ELSE,    /* timers, orphans, and sockets without a channel */
};
struct xts_worker_pulse {
	uint64_t busy_ns;  /* since the current round began; 0: it sleeps */
	uint32_t phase;    /* enum xts_worker_phase */
	uint32_t queue_id; /* the queue, for RECEIVE, EVENTS and SEND */
};
void xts_worker_pulse(struct xts_worker *worker, struct xts_worker_pulse *out);

/* A histogram of durations. Each is counted in the first bucket whose bound it does not exceed; the last bucket has no
 * bound. */
#define XTS_HISTOGRAM_COUNTS 23
struct xts_histogram {
	uint64_t counts[XTS_HISTOGRAM_COUNTS];
	uint64_t sum_ns;
};
/* The bound of a bucket, in microseconds; 0 for the last one. */
uint64_t xts_histogram_bound_us(uint32_t count);

/* Figures of a worker: counters since it started, and gauges, which say how many there are now. The fields become
 * metrics (xts_proxy/metrics/metric_catalogue.py). */
struct xts_worker_stats {
	uint64_t rounds, sleeps, spins, yields;
	uint64_t hits;                  /* rounds that found something to do; the others are misses */
	uint64_t gaps;                  /* sleeps in which nothing could wake it (wakeup_gap_us) */
	uint64_t cpu_ns;                /* CPU time of its thread */
	uint64_t poll_ns;               /* of that: for rounds that found nothing (round_time.h) */
	struct xts_histogram round_cpu; /* CPU time of rounds (round_time.h) */
	/* how long messages of a queue that had been idle may have waited for the worker (round.c) */
	struct xts_histogram turn_delay;
	struct xts_histogram connect_time;   /* of TCP connects that succeeded */
	struct xts_histogram handshake_time; /* of all pushed protocols of a connection, if they succeeded */
	struct xts_histogram request_gap;    /* between two batches in which a host sent on one connection */
	/* looks by a timer for things that happen without an event (connection_look_later()) */
	uint64_t looks;
	uint64_t paced; /* waits of connections until a rate let them send (paced.h) */
	uint32_t channels, channels_up, connections, listeners; /* gauges */
	uint32_t shared_listeners;                              /* gauge: listeners that other channels may join */
	/* gauges: sockets without a channel that this worker keeps for a while; not among those above */
	uint32_t kept_listeners, parked_connections;
	uint32_t datagram_sockets; /* gauge; not among the connections */
	uint64_t datagrams_sent, datagrams_received;
	uint64_t datagrams_refused; /* datagrams of hosts: denied by policy or the kernel, or waiting at the end */
	uint64_t datagrams_dropped; /* datagrams from the network: no room in the socket, or rejected by a filter */
	uint32_t datagrams_waiting; /* gauge: datagrams of hosts for which the device's kernel has no room */
	uint32_t orphans;           /* gauge: how many of the connections are orphans (orphan.c) */
	uint64_t orphans_cut;       /* orphans that were reset because their tenant's limit was reached */
	uint64_t connects_ok, connects_failed, accepts, resets;
	uint32_t relayed;         /* gauge: channels behind relays */
	uint64_t relayed_refused; /* channels behind relays: there were relayed_max, or no memory */
	/* frames of a relay that were dropped: from an unknown number; malformed, or from a channel that has ended */
	uint64_t relayed_unknown, relayed_dropped;
	uint64_t common_locks; /* how often it took a mutex that all workers share (common_lock.h) */
	uint64_t given_back;   /* accepted connections that one host gave back, for another */
	uint64_t parks, claims;
	uint64_t resumed;   /* sockets with which hosts went on after a worker had died */
	uint64_t torn;      /* those where bytes were under way, which were reset */
	uint64_t unclaimed; /* parked connections that nobody claimed in time */
	uint64_t refused_policy, refused_limit;
	uint64_t sent_bytes, received_bytes; /* to TCP; from TCP */
	uint64_t writes, gathered_messages, spilled_bytes;
	uint64_t spill_bytes, window_bytes; /* gauges: waiting now; granted now */
	uint32_t lookups;                   /* gauge: name lookups under way */
	uint64_t names_asked, names_answered, names_failed;
	uint64_t names_denied; /* lookups denied by policy */
	uint64_t names_wrong;  /* answers dropped because of another ID or question */
	uint64_t closed_lost;  /* records of connections (xts_worker_closed()) that were not fetched in time */
	uint64_t bad_messages, bad_identifiers, link_failures, hellos, goodbyes;
	uint64_t ulp_bytes;      /* gauge: memory of pushed protocols, as counted by XTS_USE_ULP_BYTES */
	uint32_t ulp_handshakes; /* gauge: handshakes of pushed protocols under way */
	uint64_t ulp_handshakes_ok, ulp_handshakes_failed;
	/* by protocol (enum xts_ulp_id): pushed by hosts, or copied from the listener to an accepted connection */
	uint64_t ulp_pushed[XTS_ULP_COUNT];
	uint64_t ulp_faults[XTS_FAULT_COUNT]; /* by enum xts_fault */
};
/* The functions that read figures of a worker return 0 or a count; or -ETIMEDOUT, if the worker has not answered for
 * XTS_ANSWER_MS. */
#define XTS_ANSWER_MS 2000
int xts_worker_stats(struct xts_worker *worker, struct xts_worker_stats *out);

struct xts_channel_stats {
	uint32_t queue_id;
	uint32_t relayed; /* its number behind a relay, which has the queue; 0: it has the queue itself */
	char tenant[XTS_TENANT_NAME_BYTES];
	uint32_t link_state; /* enum xts_link_state */
	int32_t link_error;
	uint32_t pid;
	uint64_t epoch;
	uint32_t connections, listeners;
	uint32_t frame_credits;
	uint64_t window_bytes, spill_bytes, ulp_bytes;
	struct xts_link_stats link;
	struct xts_queue_stats queue;
};
/* Fills at most max entries; returns how many there are. */
int xts_worker_channels(struct xts_worker *worker, struct xts_channel_stats *out, uint32_t max);

/* What the kernel's TCP says about a connection: TCP_INFO of tcp(7). 0: this kernel does not know it. */
struct xts_tcp_figures {
	bool known; /* false: it is no TCP connection, or there is no socket */
	uint32_t rtt_us, rttvar_us, min_rtt_us;
	uint32_t retransmits; /* segments, since the connection began */
	uint32_t cwnd_segments, mss_bytes, unacked_segments;
	uint32_t unsent_bytes;         /* bytes in the send buffer that were not sent yet */
	uint64_t delivery_bytes_per_s; /* the most recent measurement */
	/* total time with unacknowledged data; the parts of it limited by the peer's window, and by the send buffer */
	uint64_t busy_us, peer_window_us, send_buffer_us;
};

#define XTS_ULP_NAMES_BYTES 96
struct xts_connection_stats {
	uint64_t epoch; /* of the attachment. epoch and xts_socket together identify the socket at both ends */
	uint32_t queue_id, xts_socket, proxy_id;
	uint8_t state; /* 0 idle, 1 connecting, 2 established, 3 listener, 4 closing, 5 failed, 6 datagram */
	struct xts_endpoint local, peer;
	uint32_t send_credits; /* post credits held by the proxy: bytes it may send to the host */
	uint32_t window_bytes;
	uint32_t unadvertised; /* post credits freed and not yet advertised to the host */
	struct xts_tcp_view side;
	struct xts_waits waits; /* times include a wait that is going on now; since_ns is 0 */
	struct xts_tcp_figures tcp;
	uint64_t pacing_bytes_s; /* that its program asks for (SO_MAX_PACING_RATE); 0: no limit */
	uint32_t traffic_class;  /* TOS of IPv4, or traffic class of IPv6, of what it sends */
	/* for a datagram socket: */
	uint32_t datagrams_dropped;         /* datagrams from the network: rejected by its filter, or no room */
	uint32_t filter_instructions;       /* 0: it has no filter; one of the operator's filters counts as 1 */
	char filter[XTS_FILTER_NAME_BYTES]; /* the operator's filter that its host has chosen; "": none */
	bool peeking;
	char receive_ulps[XTS_ULP_NAMES_BYTES]; /* pushed protocols, from TCP upwards: "tls/http2"; "": none */
	char send_ulps[XTS_ULP_NAMES_BYTES];
	/* who has the records of TLS: "ours", "openssl (why)", "kernel", "card"; "": there are none */
	char receive_carrier[XTS_ULP_NAMES_BYTES], send_carrier[XTS_ULP_NAMES_BYTES];
};
/* Fills at most max entries; returns how many there are. */
int xts_worker_connections(struct xts_worker *worker, struct xts_connection_stats *out, uint32_t max);

/* One of the operator's filters: totals over all workers, since the process started. */
struct xts_filter_totals {
	char name[XTS_FILTER_NAME_BYTES];
	uint64_t sockets; /* sockets that have it now */
	/* datagrams that the kernel dropped at sockets with this filter: rejected by it, or no room */
	uint64_t dropped;
};
/* Lists the filters that a host has ever chosen. Fills at most max entries; returns how many there are. */
uint32_t xts_filter_totals(struct xts_filter_totals *out, uint32_t max);

/* How a connection began on its channel, and how it ended there. */
enum xts_closed_begin { XTS_BEGUN_CONNECT, XTS_BEGUN_ACCEPT, XTS_BEGUN_CLAIM };
enum xts_closed_end {
	XTS_ENDED_CLOSED,      /* both sides have closed it */
	XTS_ENDED_UNCONNECTED, /* it could not be connected */
	XTS_ENDED_FAILED,      /* with an error, such as a reset by the peer */
	XTS_ENDED_RESET,       /* by the host, or by the proxy */
	XTS_ENDED_HOST_GONE,   /* its process has ended, or the link has failed */
	XTS_ENDED_DELIVERED,   /* closed by the host; the peer took all remaining bytes after that */
	XTS_ENDED_UNDELIVERED, /* closed by the host; some remaining bytes could not be delivered */
	XTS_ENDED_HANDED_OVER, /* taken over by another process, which has a record of its own */
};
/* A record of a connection that has ended. Times are by the worker's clock. */
struct xts_closed_stats {
	uint64_t begun_ns, connected_ns, ended_ns; /* connected_ns 0: never */
	uint8_t begin, end;                        /* enum xts_closed_begin, enum xts_closed_end */
	struct xts_tcp_view side;                  /* as it was at the end */
	/* its channel's; its host's number of the socket; the proxy's identifier */
	uint32_t queue_id, relayed, pid, xts_socket, proxy_id;
	char tenant[XTS_TENANT_NAME_BYTES];
	struct xts_endpoint local, peer;
	uint32_t rtt_us, retransmits;   /* of TCP, when the connection ended; 0: not known */
	char ulps[XTS_ULP_NAMES_BYTES]; /* pushed protocols of the sending side */
};
/* Takes at most max records from the worker. Returns how many; or -ETIMEDOUT. */
int xts_worker_closed(struct xts_worker *worker, struct xts_closed_stats *out, uint32_t max);

/* A descriptor that is readable while log lines wait. */
int xts_worker_log_fd(struct xts_worker *worker);
/* Takes the next log line, NUL-terminated and cut after bytes - 1 characters. Returns 1, or 0: there is none. */
int xts_worker_log_next(struct xts_worker *worker, char *line, uint32_t bytes);

#endif
