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

struct xts_ulp_config;

enum xts_policy_action { XTS_POLICY_CONNECT = 1, XTS_POLICY_LISTEN = 2, XTS_POLICY_BOTH = 3 };

/* First match decides; without a match the default of the policy. */
struct xts_policy_rule {
	bool allow;
	uint8_t action;           /* enum xts_policy_action */
	uint8_t ip_version;       /* 4, 6, or 0 for both (address is then ignored) */
	uint8_t prefix_bits;
	uint8_t address[16];      /* the remote address for connect, the local one for listen */
	uint16_t port_first, port_last;
	uint32_t queue_first, queue_last;
};

struct xts_limits { /* per queue */
	uint32_t connections;     /* TCP sockets of any state, listeners aside; beyond: ENOBUFS */
	uint32_t listeners;       /* beyond: ENOBUFS */
	uint64_t spill_bytes;     /* sum of the windows granted to hosts, so the most that can ever wait in spill buffers */
	uint32_t window_bytes;    /* window a connection starts with */
	uint32_t window_bytes_max;/* to which a busy one grows while half of spill_bytes is free */
	uint64_t ulp_bytes;       /* that pushed protocols keep beside windows: given back, being gathered; beyond: ENOBUFS */
};

struct xts_worker_config {
	int cpu;                  /* to run on, or -1 */
	uint32_t spin_us;         /* before sleeping */
	uint16_t ethertype;
	struct xts_limits limits;
	bool policy_default_allow;
	const struct xts_policy_rule *rules; /* copied */
	uint32_t rule_count;
	const char *congestion_controls; /* that a host may choose (sockopt.h); copied */
	struct xts_ulp_config *ulp; /* for pushed protocols (ulp/config.h); the worker takes a reference of its own. NULL: defaults */
};

struct xts_worker;

/* Starts a thread. 0 or -errno. */
int xts_worker_start(struct xts_worker **out, const struct xts_worker_config *config);
/* Gives it a channel. The worker owns queue from now on. life_fd (-1: none): when it becomes readable or hangs
 * up, the host process has died and the channel is closed and forgotten; with -1 the channel stays and waits for the
 * next HELLO. The worker takes over life_fd. 0 or -errno. */
int xts_worker_add_channel(struct xts_worker *worker, struct xts_queue *queue, int life_fd, uint32_t queue_id);
/* Closes a channel: GOODBYE, then resets its connections. */
int xts_worker_remove_channel(struct xts_worker *worker, uint32_t queue_id);
/* New limits and rules for what comes from now on. */
int xts_worker_configure(struct xts_worker *worker, const struct xts_worker_config *config);
/* Stops listening and refuses new sockets with ESHUTDOWN; connections go on. xts_worker_stats() tells when
 * none are left. */
int xts_worker_drain(struct xts_worker *worker);
/* Sends GOODBYE(error) on all channels, closes them, ends the thread and frees everything. Blocks some milliseconds. */
void xts_worker_stop(struct xts_worker *worker, int error);

/* Counters of a worker since its start, and gauges. Read without stopping it. */
struct xts_worker_stats {
	uint64_t rounds, sleeps, spins;
	uint64_t looks;                            /* by timers, after what no event tells (connection_look_later()) */
	uint32_t channels, channels_up, connections, listeners;
	uint32_t shared_listeners;                 /* of the listeners: those that other channels may join */
	uint32_t kept_listeners, parked_connections; /* beside them: what no channel holds and this worker keeps for a while */
	uint64_t connects_ok, connects_failed, accepts, resets;
	uint64_t given_back;                       /* of accepts: announced, and offered to another host then */
	uint64_t parks, claims;
	uint64_t refused_policy, refused_limit;
	uint64_t sent_bytes, received_bytes;       /* towards TCP; from TCP */
	uint64_t writes, gathered_messages, spilled_bytes;
	uint64_t spill_bytes, window_bytes;        /* gauges: waiting now; granted now */
	uint64_t bad_messages, bad_identifiers, link_failures, hellos, goodbyes;
	uint64_t ulp_bytes;                        /* gauge: kept by pushed protocols, as limits.ulp_bytes counts */
	uint32_t ulp_handshakes;                   /* gauge: of pushed protocols, under way now */
	uint64_t ulp_handshakes_ok, ulp_handshakes_failed;
	uint64_t ulp_pushed[XTS_ULP_COUNT];        /* by protocol (enum xts_ulp_id): pushes, and what accepted connections got of their listener */
	uint64_t ulp_faults[XTS_FAULT_COUNT];      /* by enum xts_fault */
};
int xts_worker_stats(struct xts_worker *worker, struct xts_worker_stats *out);

struct xts_channel_stats {
	uint32_t queue_id;
	uint32_t link_state;      /* enum xts_link_state */
	int32_t link_error;
	uint32_t pid;
	uint32_t connections, listeners;
	uint32_t frame_credits;
	uint64_t window_bytes, spill_bytes, ulp_bytes;
	struct xts_link_stats link;
	struct xts_queue_stats queue;
};
/* Fills at most max entries; returns how many there are. */
int xts_worker_channels(struct xts_worker *worker, struct xts_channel_stats *out, uint32_t max);

#define XTS_ULP_NAMES_BYTES 96
struct xts_connection_stats {
	uint32_t queue_id, xts_socket, proxy_id;
	uint8_t state;            /* 0 idle, 1 connecting, 2 established, 3 listener, 4 closing, 5 failed */
	struct xts_endpoint local, peer;
	uint32_t send_credits;    /* held by the proxy: may be sent to the host */
	uint32_t window_bytes, spill_bytes;
	uint32_t unadvertised;    /* post credits freed and not yet told to the host */
	uint64_t sent_bytes, received_bytes;
	bool peeking;
	char receive_ulps[XTS_ULP_NAMES_BYTES]; /* what is pushed, from TCP upwards: "tls/http2"; "" for nothing */
	char send_ulps[XTS_ULP_NAMES_BYTES];
};
int xts_worker_connections(struct xts_worker *worker, struct xts_connection_stats *out, uint32_t max);

/* A descriptor that is readable when log lines wait, and the next line (NUL-terminated, at most bytes - 1), or 0. */
int xts_worker_log_fd(struct xts_worker *worker);
int xts_worker_log_next(struct xts_worker *worker, char *line, uint32_t bytes);

#endif
