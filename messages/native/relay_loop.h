/*
 * The relay of an agent: carries the frames of many processes over one queue.
 *
 * Theory of operation
 *
 * Each process has shared memory to the relay, and thinks that the proxy is at its other end. The relay has one queue
 * to the proxy, with a link of its own (the trunk), and a channel on it for each process (mux.h). It copies frames from
 * one to the other and understands none of them, with three exceptions. It stamps each with the number of the process's
 * channel. It lets a HELLO through only with the epoch that the agent gave this process, and nothing that carries other
 * frames. And for a process that has gone it says GOODBYE, behind what the process had sent.
 *
 * Towards the proxy the trunk's frame credits decide how much goes out. They are given to the processes one frame each
 * in turn, so that one that floods delays the others by their number of frames at most. What does not go out waits in
 * the process's own memory. Towards a process its own link decides: the proxy sends no more than fits into its memory.
 * A process that does not return memory as it acknowledges frames is ended.
 *
 * The agent gives orders over a socket (SOCK_SEQPACKET) and gets their results over it. The relay ends with the trunk:
 * with the agent, with the proxy, or refused by it. Its processes see the ends of their bells.
 */
#ifndef XTS_RELAY_LOOP_H
#define XTS_RELAY_LOOP_H

#include "attach.h"
#include "queue.h"

enum xts_relay_what {
	/* order: a process, with two descriptors: its memory, and our bell. geometry has its epoch */
	XTS_RELAY_ADD = 1,
	XTS_RELAY_REMOVE = 2, /* order: it has gone */
	XTS_RELAY_UP = 3,     /* report: processes can be served */
	XTS_RELAY_ENDED = 4,  /* report: a process has gone, or was ended with error */
	XTS_RELAY_DOWN = 5,   /* report, the last: error is why */
};

struct xts_relay_order {
	uint32_t what, number;
	struct xts_attach_reply geometry; /* of ADD */
};

struct xts_relay_report {
	uint32_t what, number;
	int32_t error;    /* a positive errno, or 0 */
	uint32_t dropped; /* of ENDED: frames of the process that were not let through */
};

struct xts_relay_config {
	struct xts_queue *trunk; /* taken over */
	uint64_t epoch;          /* of the trunk */
	uint16_t ethertype;
	const uint8_t *token; /* of the trunk, as the agent made it; token_bytes 0: none */
	uint32_t token_bytes;
	uint32_t channels_max; /* at most XTS_RELAYED_MAX */
	uint32_t spin_us;      /* before sleeping */
	int control_fd;        /* to the agent; stays the caller's */
};

/* Serves until the trunk or the agent has gone. 0 (the agent) or -errno. */
int xts_relay_run(const struct xts_relay_config *config);

#endif
