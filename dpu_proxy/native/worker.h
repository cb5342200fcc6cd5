/*
 * A worker: one thread of the offload proxy, serving a set of channels (queues) with its own epoll. Workers share
 * nothing on the data path; the supervisor (Python) starts them, gives them channels, and reads their figures.
 * Functions are called from the supervisor's thread; each takes effect between two rounds of the
 * worker, and returns then.
 */
#ifndef XTS_WORKER_H
#define XTS_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "link.h"
#include "queue.h"
#include "ulp_wire.h"
#include "waits.h"

struct xts_ulp_config;

enum xts_policy_action { XTS_POLICY_CONNECT = 1, XTS_POLICY_LISTEN = 2, XTS_POLICY_BOTH = 3 };

/* First match decides; without a match the default of the policy. */
struct xts_policy_rule {
	bool allow;
	uint8_t action;     /* enum xts_policy_action */
	uint8_t ip_version; /* 4, 6, or 0 for both (address is then ignored) */
	uint8_t prefix_bits;
	uint8_t address[16]; /* the remote address for connect, the local one for listen */
	uint16_t port_first, port_last;
	uint32_t queue_first, queue_last;
	uint32_t tenant; /* its id, or XTS_TENANT_ANY */
	bool own;        /* the device's own addresses, instead of a network (policy.h) */
};

/* Who is charged for the device's resources (tenant.h): a user, a container, an interface. Shared by all workers. */
struct xts_tenant;

/* What is counted for a tenant, over all its channels and all workers; beyond its limit: ENOBUFS. */
enum xts_resource {
	XTS_USE_CONNECTIONS, /* TCP sockets of channels, of any state, listeners aside */
	XTS_USE_LISTENERS,   /* of channels */
	XTS_USE_SPILL_BYTES, /* windows granted to hosts, so the most that can ever wait in spill buffers */
	/* bytes that pushed protocols keep in addition to windows: given back, being gathered */
	XTS_USE_ULP_BYTES,
	/* connections that belong to no channel: parked, or given back by a shared listener's member */
	XTS_USE_KEPT,
	XTS_USE_KEPT_BYTES, /* in their spill buffers, and kept by their protocols */
	/* connections whose host has closed them or has gone, and that have bytes to deliver yet */
	XTS_USE_ORPHANS,
	XTS_USE_ORPHAN_BYTES, /* those bytes, and what their protocols keep */
	XTS_USE_NAMES,        /* listeners that have a key, by which other channels may join them */
	XTS_USE_DESCRIPTORS,  /* of sockets, whoever has them, and of queues */
	XTS_USE_SOCKET_BYTES, /* what a socket costs by itself, here and in the kernel, estimated */
	XTS_USE_HANDSHAKES,   /* of pushed protocols, under way */
	XTS_USE_CPU_NS,       /* of workers, ever; has no limit */
	XTS_USE_LOOKUPS,      /* of names, under way (names.h) */
	XTS_USE_GROUPS,       /* memberships of datagram sockets, and sources of their filters (multicast.h) */
	XTS_USE_FILTERS,      /* instructions of filters of datagram sockets (datagram_filter.c) */
};
#define XTS_RESOURCES 16

/* What the machine has, of which each tenant has a guaranteed share (resource_pool.h). All that is counted in bytes is
 * of one pool. */
enum xts_pool { XTS_POOL_DESCRIPTORS, XTS_POOL_MEMORY };
#define XTS_POOLS 2
/* So much there is of each, for all tenants together; 0: not watched. */
void xts_pools_configure(const uint64_t *capacity);

#define XTS_TENANT_NAME_BYTES 64
#define XTS_FILTER_NAME_BYTES 64
#define XTS_TENANT_ANY 0xffffffffu
struct xts_tenant_config {
	char name[XTS_TENANT_NAME_BYTES];
	uint32_t id;                /* by which policy rules mean it */
	uint32_t weight;            /* its share of a worker's time, relative to others' */
	uint32_t window_bytes;      /* window a connection starts with */
	uint32_t window_bytes_max;  /* to which a busy one grows while half of the limit of windows is free */
	uint32_t orphan_timeout_ms; /* how long the peer of an orphan may take nothing */
	uint64_t limit[XTS_RESOURCES];
	uint64_t guaranteed[XTS_POOLS];
	uint16_t port_first, port_last; /* local ports of its own (local_ports.h); 0: none */
};

/* A tenant of one reference, the caller's; NULL: no memory. */
struct xts_tenant *xts_tenant_new(const struct xts_tenant_config *config);
/* Another weight and other limits, for what comes from now on. Name and id stay. */
void xts_tenant_configure(struct xts_tenant *tenant, const struct xts_tenant_config *config);
/* The caller's reference: channels and connections have their own. */
void xts_tenant_release(struct xts_tenant *tenant);

struct xts_tenant_stats {
	uint64_t used[XTS_RESOURCES];
	uint64_t refused[XTS_RESOURCES]; /* how often the limit was in the way */
	uint64_t pool_used[XTS_POOLS], pool_guaranteed[XTS_POOLS];
	uint64_t pool_refused[XTS_POOLS]; /* how often it was above its guarantee, and others had the rest */
	uint32_t ports_guaranteed;        /* local ports of its own */
	uint64_t ports_refused;           /* how often no local port was left for it */
};
void xts_tenant_stats(const struct xts_tenant *tenant, struct xts_tenant_stats *out);

/* Who may look up what. First match decides; without a match the default. */
struct xts_name_rule {
	bool allow;
	uint32_t tenant;       /* its id, or XTS_TENANT_ANY */
	uint32_t domain_bytes; /* 0: any name */
	uint8_t domain[255];   /* it and what is below it: in the form of a DNS message, in lower case */
};

#define XTS_RESOLVERS_MAX 8
/* How names are looked up for hosts (names.h). */
struct xts_names_config {
	bool default_allow;
	uint32_t resolver_count; /* 0: nobody may look up anything, and hosts are not offered it */
	struct xts_endpoint resolvers[XTS_RESOLVERS_MAX];
	uint32_t timeout_ms;               /* of each try */
	uint32_t attempts;                 /* rounds over all resolvers */
	uint32_t families;                 /* XTS_FAMILY_*: of addresses that the device has; 0: not known */
	const struct xts_name_rule *rules; /* copied */
	uint32_t rule_count;
};

#define XTS_INTERFACE_TEXT_BYTES 220
#define XTS_INTERFACE_STAMPS_BYTES 88
#define XTS_INTERFACE_IPV4 32
/* An interface of the device, where groups may be joined. */
struct xts_interface {
	uint32_t index;
	uint8_t ipv4[XTS_INTERFACE_IPV4][4]; /* its first addresses; zeros: no more */
	char text[XTS_INTERFACE_TEXT_BYTES]; /* that hosts are told (PROTOCOL.md), with a line feed; empty: not told */
	char stamps[XTS_INTERFACE_STAMPS_BYTES]; /* likewise, of its time stamps */
};

struct xts_worker_config {
	int cpu;          /* to run on, or -1 */
	uint32_t spin_us; /* before sleeping */
	/* channels behind one relay (relay.h), at most XTS_RELAYED_MAX; 0: relays are not served */
	uint32_t relayed_max;
	uint16_t ethertype;
	bool policy_default_allow;           /* to connect */
	bool policy_listen_allow;            /* the default for bind and listen */
	const struct xts_policy_rule *rules; /* copied */
	uint32_t rule_count;
	const char *congestion_controls; /* that a host may choose (sockopt.h); copied */
	uint64_t (*clock_ns)(void);      /* NULL: CLOCK_MONOTONIC. For tests: it cannot change later */
	/* for pushed protocols (ulp/config.h); the worker takes a reference of its own. NULL: defaults */
	struct xts_ulp_config *ulp;
	struct xts_names_config names;
	const struct xts_interface *interfaces; /* of the device, by index; copied */
	uint32_t interface_count;
	uint16_t port_first, port_last; /* local ports that no tenant has for its own (local_ports.h); 0: not known */
	uint32_t closed_sample;         /* one of so many connections has a record when it has ended; 0: none has */
};

struct xts_worker;

/* Starts a thread. 0 or -errno. */
int xts_worker_start(struct xts_worker **out, const struct xts_worker_config *config);
/* Gives it a channel, of which the tenant bears the costs. The worker owns queue from now on. life_fd (-1: none): when
 * it becomes readable or hangs up, the host process has died and the channel is closed and forgotten; with -1 the
 * channel stays and waits for the next HELLO. The worker takes over life_fd. 0 or -errno. */
int xts_worker_add_channel(struct xts_worker *worker, struct xts_queue *queue, int life_fd, uint32_t queue_id,
			   struct xts_tenant *tenant);
#define XTS_TOKEN_KEY_BYTES_MAX 128
#define XTS_CGROUP_BYTES_MAX 255
/* Whose costs those of a process behind an interface are; the first that it fits decides (token.h). */
struct xts_identity_rule {
	uint32_t queue_first, queue_last;
	bool any_uid;
	uint32_t uid;
	uint32_t cgroup_bytes;                /* 0: any */
	uint8_t cgroup[XTS_CGROUP_BYTES_MAX]; /* it or what is below it */
	struct xts_tenant *tenant;
};
/* Channels without life_fd that are added from now on ask for attach tokens under this key; the rules (copied) are for
 * what opens from now on. No key: they do not ask. 0 or -errno. */
int xts_worker_trust(struct xts_worker *worker, const uint8_t *key, uint32_t key_bytes,
		     const struct xts_identity_rule *rules, uint32_t rule_count);
/* Closes a channel: GOODBYE, then resets its connections. */
int xts_worker_remove_channel(struct xts_worker *worker, uint32_t queue_id);
/* New rules and protocols for what comes from now on; limits are the tenants'. */
int xts_worker_configure(struct xts_worker *worker, const struct xts_worker_config *config);
/* Stops listening and refuses new sockets with ESHUTDOWN; connections go on. xts_worker_stats() shows when none are
 * left. */
int xts_worker_drain(struct xts_worker *worker);
/* Sends GOODBYE(error) on all channels, closes them, ends the thread and frees everything. Blocks some milliseconds. */
void xts_worker_stop(struct xts_worker *worker, int error);

/* Is the worker at work, on what, and for how long without an end? Read without the worker's doing: also of one that
 * hangs. */
enum xts_worker_phase {
	XTS_PHASE_ASLEEP,
	XTS_PHASE_RECEIVE, /* messages of a queue */
	XTS_PHASE_EVENTS,  /* of connections of a queue */
	XTS_PHASE_SEND,    /* to a queue */
	XTS_PHASE_REQUEST, /* of the supervisor */
	XTS_PHASE_ELSE,    /* timers, orphans, what is kept */
};
struct xts_worker_pulse {
	uint64_t busy_ns;  /* since its present round began; 0: it sleeps */
	uint32_t phase;    /* enum xts_worker_phase */
	uint32_t queue_id; /* of the first three */
};
void xts_worker_pulse(struct xts_worker *worker, struct xts_worker_pulse *out);

/* Times: each is counted within the least bound that it does not exceed; the last count has those beyond all bounds. */
#define XTS_HISTOGRAM_COUNTS 23
struct xts_histogram {
	uint64_t counts[XTS_HISTOGRAM_COUNTS];
	uint64_t sum_ns;
};
/* A bound, in microseconds; 0 for the last count, which has none. */
uint64_t xts_histogram_bound_us(uint32_t count);

/* Counters of a worker since its start, and gauges. Read without stopping it. */
struct xts_worker_stats {
	uint64_t rounds, sleeps, spins, yields;
	struct xts_histogram round_cpu;    /* round_time.h */
	struct xts_histogram turn_delay;   /* since an idle queue was looked at, when it then has messages (turns.c) */
	struct xts_histogram connect_time; /* of TCP, of those that succeed */
	struct xts_histogram handshake_time; /* of protocols of one connection, of those that succeed */
	struct xts_histogram request_gap;    /* between what a host sends on one connection, by batches */
	/* by timers, for what comes without an event (connection_look_later()) */
	uint64_t looks;
	uint32_t channels, channels_up, connections, listeners;
	uint32_t shared_listeners; /* of the listeners: those that other channels may join */
	/* in addition: sockets without a channel that this worker keeps for a while */
	uint32_t kept_listeners, parked_connections;
	uint32_t datagram_sockets; /* gauge; not among the connections */
	uint64_t datagrams_sent, datagrams_received;
	uint64_t datagrams_refused; /* of the host, by policy or by the device's kernel, or left waiting */
	uint64_t datagrams_dropped; /* of the network, mostly by the device's kernel: no room, or a filter */
	uint64_t datagram_copies;   /* of those received: crossed together with another socket's */
	uint32_t datagrams_waiting; /* gauge: of hosts, until the device's kernel has room */
	uint32_t orphans;           /* of connections: gauge */
	uint64_t orphans_cut;       /* reset, as their tenant's budget was full */
	uint64_t connects_ok, connects_failed, accepts, resets;
	uint32_t relayed;         /* gauge: channels behind relays */
	uint64_t relayed_refused; /* as there were relayed_max already, or no memory */
	/* frames of a number that is not there; no frame, or of a channel that has ended */
	uint64_t relayed_unknown, relayed_dropped;
	uint64_t common_locks; /* mutexes of all workers that it has taken (common_lock.h) */
	uint64_t given_back;   /* of accepts: announced, and offered to another host then */
	uint64_t parks, claims;
	uint64_t unclaimed; /* parked connections that nobody took over in time */
	uint64_t refused_policy, refused_limit;
	uint64_t sent_bytes, received_bytes; /* towards TCP; from TCP */
	uint64_t writes, gathered_messages, spilled_bytes;
	uint64_t spill_bytes, window_bytes; /* gauges: waiting now; granted now */
	uint32_t lookups;                   /* gauge: of names, under way */
	uint64_t names_asked, names_answered, names_failed;
	uint64_t names_denied; /* by policy */
	uint64_t names_wrong;  /* answers dropped: of another ID, or to another question */
	uint64_t closed_lost;  /* records of connections (xts_worker_closed()) that were not fetched in time */
	uint64_t bad_messages, bad_identifiers, link_failures, hellos, goodbyes;
	uint64_t ulp_bytes;      /* gauge: kept by pushed protocols, as XTS_USE_ULP_BYTES counts */
	uint32_t ulp_handshakes; /* gauge: of pushed protocols, under way now */
	uint64_t ulp_handshakes_ok, ulp_handshakes_failed;
	/* by protocol (enum xts_ulp_id): pushes, and what accepted connections got of their listener */
	uint64_t ulp_pushed[XTS_ULP_COUNT];
	uint64_t ulp_faults[XTS_FAULT_COUNT]; /* by enum xts_fault */
};
/* What asks a worker for figures answers 0 or more, or -ETIMEDOUT when the worker has made no progress for
 * XTS_ANSWER_MS. */
#define XTS_ANSWER_MS 2000
int xts_worker_stats(struct xts_worker *worker, struct xts_worker_stats *out);

struct xts_channel_stats {
	uint32_t queue_id;
	uint32_t relayed; /* its number behind the relay that has the queue, or 0 */
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

/* What the kernel's TCP says of a connection: tcp(7), TCP_INFO. What it does not know is 0. */
struct xts_tcp_figures {
	bool known; /* false: it is no TCP connection, or there is no socket */
	uint32_t rtt_us, rttvar_us, min_rtt_us;
	uint32_t retransmits; /* segments, in all */
	uint32_t cwnd_segments, mss_bytes, unacked_segments;
	uint32_t unsent_bytes;         /* in its send buffer */
	uint64_t delivery_bytes_per_s; /* measured last */
	/* in all: with data that is not acknowledged; of it, held back by the peer's window, and by the send buffer */
	uint64_t busy_us, peer_window_us, send_buffer_us;
};

#define XTS_ULP_NAMES_BYTES 96
struct xts_connection_stats {
	uint64_t epoch; /* of the attachment: with xts_socket it names the socket at either end */
	uint32_t queue_id, xts_socket, proxy_id;
	uint8_t state; /* 0 idle, 1 connecting, 2 established, 3 listener, 4 closing, 5 failed, 6 datagram */
	struct xts_endpoint local, peer;
	uint32_t send_credits; /* held by the proxy: may be sent to the host */
	uint32_t window_bytes, spill_bytes;
	uint32_t unadvertised; /* post credits freed and not yet advertised to the host */
	uint64_t sent_bytes, received_bytes;
	struct xts_waits waits; /* since_ns is 0: ns has what goes on */
	struct xts_tcp_figures tcp;
	/* of a datagram socket */
	uint32_t datagrams_dropped;         /* of the network: by its filter, or there was no room */
	uint32_t filter_instructions;       /* 0: it has no filter; an operator's counts as one */
	char filter[XTS_FILTER_NAME_BYTES]; /* the operator's that its host has named; "": none */
	bool peeking;
	char receive_ulps[XTS_ULP_NAMES_BYTES]; /* what is pushed, from TCP upwards: "tls/http2"; "" for nothing */
	char send_ulps[XTS_ULP_NAMES_BYTES];
};
int xts_worker_connections(struct xts_worker *worker, struct xts_connection_stats *out, uint32_t max);

/* An operator's filter, by its name: of all workers, since the process started. */
struct xts_filter_totals {
	char name[XTS_FILTER_NAME_BYTES];
	uint64_t sockets; /* that have it now */
	/* by the device's kernel, of what came for sockets while they had it: by the filter, or for want of room */
	uint64_t dropped;
};
/* Those that a host has named. Returns how many there are; out has at most max of them. */
uint32_t xts_filter_totals(struct xts_filter_totals *out, uint32_t max);

enum xts_closed_begin { XTS_BEGUN_CONNECT, XTS_BEGUN_ACCEPT, XTS_BEGUN_CLAIM };
enum xts_closed_end {
	XTS_ENDED_CLOSED,      /* both sides have closed it */
	XTS_ENDED_UNCONNECTED, /* it could not be connected */
	XTS_ENDED_FAILED,      /* with an error, such as a reset by the peer */
	XTS_ENDED_RESET,       /* by the host, or by the proxy */
	XTS_ENDED_HOST_GONE,   /* its process has ended, or the link has */
	XTS_ENDED_DELIVERED,   /* closed by the host, and what it had sent was taken after that */
	XTS_ENDED_UNDELIVERED, /* the same, and it was not */
	XTS_ENDED_HANDED_OVER, /* to another process, which has a record of its own */
};
/* What a connection was. Times are by the worker's clock. */
struct xts_closed_stats {
	uint64_t begun_ns, connected_ns, ended_ns; /* connected_ns 0: never */
	uint8_t begin, end;                        /* enum xts_closed_begin, enum xts_closed_end */
	int32_t error;
	uint32_t queue_id, relayed, pid, xts_socket, proxy_id; /* of its channel, its host's, the proxy's */
	char tenant[XTS_TENANT_NAME_BYTES];
	struct xts_endpoint local, peer;
	uint64_t sent_bytes, received_bytes; /* to TCP, from TCP */
	uint64_t host_bytes;                 /* that the host has sent */
	uint32_t rtt_us, retransmits;        /* of TCP, at its end; 0: not known */
	char ulps[XTS_ULP_NAMES_BYTES];      /* pushed, for sending */
};
/* Takes records of connections that have ended, at most max. How many; or -ETIMEDOUT. */
int xts_worker_closed(struct xts_worker *worker, struct xts_closed_stats *out, uint32_t max);

/* A descriptor that is readable when log lines wait, and the next line (NUL-terminated, at most bytes - 1), or 0. */
int xts_worker_log_fd(struct xts_worker *worker);
int xts_worker_log_next(struct xts_worker *worker, char *line, uint32_t bytes);

#endif
