/* A worker as its channels and connections see it. worker.h is what the supervisor sees of one. */
#ifndef XTS_WORKER_STATE_H
#define XTS_WORKER_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "addresses/local_ports.h"
#include "channel/token.h"
#include "connection/closed_records.h"
#include "ulp/handshake_pool.h"
#include "ulp/ulp.h"
#include "worker/list.h"
#include "worker/log.h"
#include "worker/round_time.h"
#include "worker/schedule.h"
#include "worker/timer.h"
#include "worker/trim_heap.h"
#include "worker/worker.h"

struct connection;
struct datagram_scratch;
struct parked;
struct walk;

/* What the data of an epoll event points to. */
enum watch_kind { WATCH_CONNECTION, WATCH_QUEUE, WATCH_LIFE, WATCH_COMMAND, WATCH_PARKED, WATCH_NAME };
struct watch {
	enum watch_kind kind;
};

struct worker_state {
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
	struct list channels, unowned;
	uint64_t channel_numbers; /* given so far */
	struct list cut;          /* orphans of this worker that will be reset; under the lock of orphan.c */
	struct list dead;         /* connections freed in this round: fetched epoll events may still point to them */
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
	atomic_bool follow_due; /* a shared socket of this worker has begun, or ceased, to listen (share_listening.c) */
	bool poked;             /* there may be something on stale */
	uint64_t accepted_ns;   /* of the last connection that it has accepted (listener.c) */
	uint32_t share_turns;   /* turns given so far to members of shared listeners; it wraps */
	struct xts_worker_stats stats;
	struct log log;
	struct closed_list closed;
	struct local_port_choices port_choices;
};

/* --- worker_state.c ----------------------------------------------------------------------------------------------- */

uint64_t worker_monotonic_ns(void);

static inline void worker_doing(struct worker_state *w, enum xts_worker_phase phase, uint32_t queue_id)
{
	atomic_store_explicit(&w->doing, (uint64_t)phase << 32 | queue_id, memory_order_relaxed);
}

/* Something was left for the worker: it looks in its next round. The caller holds the lock of the list in which it left
 * something. */
void worker_poke(struct worker_state *w);
/* Is the current turn over? Reads the clock. Work that has begun is finished anyway; the
 * rest waits for the next turn. */
bool worker_turn_is_over(struct worker_state *w);

#endif
