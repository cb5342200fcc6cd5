/*
 * The relay of an agent: carries the frames of many processes over one queue.
 *
 * Theory of operation
 *
 * Each process has shared memory to the relay, and behaves as if the proxy were at its other end. The relay has one
 * queue to the proxy, with a link of its own (the trunk), and a channel on it for each process (mux.h). It copies
 * frames from one to the other without interpreting them, with three exceptions. It stamps each with the number of the
 * process's channel. It lets a HELLO pass only with the epoch that the agent gave this process, and no frame that
 * carries other frames. And when a process has gone, it sends GOODBYE for it, after all that the process had sent.
 *
 * Towards the proxy, the trunk's frame credits limit what is sent. The processes get them in turn, one frame each, so
 * that one that floods delays each of the others by at most as many frames as there are processes. Frames that have to
 * wait stay in the process's own memory. Towards a process, its own link is the limit: the proxy sends no more than
 * fits into its memory. A process that does not return memory although it acknowledges frames is ended.
 *
 * What the agent knows of connections that no process has (OVER) the relay says on the trunk, in no channel: the
 * process that had told of them has most often ended.
 *
 * The agent sends orders over a socket (SOCK_SEQPACKET) and gets reports over it. The relay outlives it: as long as it
 * has processes it waits for the next agent at a socket that listens (relay_agents.c). It ends when the proxy refuses
 * the trunk, or another proxy says that it knows none. Its processes see that by the end of their bells. A proxy that
 * is only silent does not end it: for how long a silent one is waited for is a setting of each process (XTS_DEAD_MS),
 * which pings the proxy itself. Unless the trunk is of a kind that nobody goes on with after so long (silent_ms).
 */
#ifndef XTS_RELAY_LOOP_H
#define XTS_RELAY_LOOP_H

#include "attaching/attach.h"
#include "queues/queue.h"

enum xts_relay_what {
	/* order: a process, with two descriptors: its memory, and our bell. geometry contains its epoch */
	XTS_RELAY_ADD = 1,
	XTS_RELAY_REMOVE = 2, /* order: the process has gone */
	XTS_RELAY_UP = 3,     /* report: processes can be served from now on */
	XTS_RELAY_ENDED = 4,  /* report: a process has gone, or was ended with error */
	XTS_RELAY_DOWN = 5,   /* the last report: error is the reason */
	/* order: OVER is to be said. geometry has the epoch; its token is the payload, at most
	 * XTS_RELAY_OVER_BYTES_MAX. A relay that does not know it says nothing */
	XTS_RELAY_OVER = 6,
};

#define XTS_RELAY_OVER_BYTES_MAX 256u
#define XTS_RELAY_STATE_MAGIC 0x58525331u
/* Of the state, and of orders and reports: agent and relay may be of two releases. */
#define XTS_RELAY_STATE_VERSION 1u

struct xts_relay_order {
	uint32_t what, number;
	uint32_t uid, pid;                /* for ADD: whose it is, for the next agent */
	struct xts_attach_reply geometry; /* for ADD */
};

/* What the next agent is told first, with the socket that listens as a descriptor; `count` of the second follow in the
 * same message. */
struct xts_relay_state {
	uint32_t magic, version;
	uint32_t count, next;             /* next: the first number that no process has had */
	struct xts_attach_reply geometry; /* of the trunk, with its epoch */
};
struct xts_relay_member {
	uint32_t number, uid, pid, reserved;
	uint64_t epoch;
};

struct xts_relay_report {
	uint32_t what, number;
	int32_t error;    /* a positive errno, or 0 */
	uint32_t dropped; /* for ENDED: frames of the process that were not let pass */
};

struct xts_relay_config {
	struct xts_queue *trunk; /* the relay takes it over */
	uint64_t epoch;          /* epoch of the trunk */
	uint16_t ethertype;
	const uint8_t *token; /* token of the trunk, as made by the agent; token_bytes 0: none */
	uint32_t token_bytes;
	uint32_t channels_max; /* at most XTS_RELAYED_MAX */
	uint32_t spin_us;      /* how long to spin before sleeping */
	uint32_t silent_ms;    /* a proxy that has not answered a ping for so long has gone; 0: it is waited for */
	int control_fd;        /* to the agent; the relay takes it over */
	int listen_fd; /* where the next agent comes (SOCK_SEQPACKET); the caller keeps it. -1: the agent is the last */
	const struct xts_attach_reply *geometry; /* of the trunk, for the next agent */
};

/* Serves until the trunk has gone, or the agent and all processes. Returns 0 (these have gone) or -errno. */
int xts_relay_run(const struct xts_relay_config *config);

#endif
