/* The relay as its own files see it: relay_loop.c, relay_orders.c, relay_frames.c. */
#ifndef XTS_RELAY_INSIDE_H
#define XTS_RELAY_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"
#include "decorators/packets.h"
#include "queues/queue.h"
#include "relay/relay_loop.h"

struct process { /* that the relay serves */
	uint32_t number, uid, pid;
	uint64_t epoch;
	struct xts_queue *shm;     /* to the process */
	struct xts_queue *channel; /* to the proxy */
	uint32_t dropped;
	uint32_t last_frames; /* it has gone, and at most this many more of its frames are looked for. 0: it is alive */
	bool kick;
	bool ending; /* GOODBYE is due */
	/* the proxy's process has died, and not all has left that this one had sent before: a HELLO is for that process */
	bool hello_of_before;
	int error;
};

/* Another process of the proxy takes the trunk over (relay_move.c). */
struct relay_move {
	uint64_t ticket; /* MOVE has come; 0: nothing moves */
	bool acked;      /* no frame may leave before the next epoch */
};

#define RELAY_WORDS_MAX 256u

/* What the agent has said and has not left yet (relay_words.c): a ring. */
struct relay_words {
	struct relay_word {
		uint64_t epoch;
		uint32_t bytes;
		uint8_t keys[XTS_RELAY_OVER_BYTES_MAX];
	} word[RELAY_WORDS_MAX];
	uint32_t first, count;
	uint64_t at_ns; /* not before */
};

struct relay {
	const struct xts_relay_config *config;
	struct xts_queue *trunk;
	struct xts_packets packets;
	struct xts_link link;
	struct relay_move move;
	struct relay_words words;
	uint32_t largest_message; /* in force, from the first epoch on; 0: there was none */
	struct xts_mux *mux;
	struct process **processes;
	uint32_t count, first; /* first: the process with which the next round begins */
	int epoll_fd;
	int control_fd; /* to the agent; -1: there is none */
	uint32_t next;  /* the first number that no process has had */
	bool agent_gone, slot_missing, kick_again, unkicked;
	uint64_t now_ns, idle_since_ns;
};

/* --- relay_agents.c ----------------------------------------------------------------------------------------------- */

/* The agent has gone: the relay waits for another, or ends. */
void relay_agent_lost(struct relay *r);
/* Without an agent: takes up the next one, if it is there. True: it was. */
bool relay_agent_comes(struct relay *r);

/* --- relay_orders.c ----------------------------------------------------------------------------------------------- */

/* Carries out some of the agent's orders; true when there were any, or the agent has gone. */
bool relay_take_orders(struct relay *r);
/* Tells the agent. */
void relay_report(struct relay *r, uint32_t what, uint32_t number, int error, uint32_t dropped);
/* An event on fd wakes the relay. 0 or -errno. */
int relay_watch(struct relay *r, int fd);
void relay_process_free(struct relay *r, struct process *p);

/* --- relay_move.c ------------------------------------------------------------------------------------------------- */

/* MOVE has come. */
void relay_moves(struct relay *r, const struct xts_rx_frame *frame);
/* Answers it, and begins the next epoch when the trunk has been left. */
void relay_move_turn(struct relay *r);

/* --- relay_frames.c ----------------------------------------------------------------------------------------------- */

/* A batch from the trunk, for whichever processes; true when there was anything. */
bool relay_trunk_receive(struct relay *r);
/* What has come for a process goes into its memory. */
bool relay_to_process(struct process *p);
/* One frame of each in turn, until none has any or no more may leave. */
bool relay_from_processes(struct relay *r);
/* A process is served no more: 0, or the errno that says why. */
void relay_process_end(struct process *p, int error);
/* GOODBYE for a process that has ended. False: there is no room for it now. */
bool relay_say_goodbye(struct relay *r, struct process *p);
/* From us to the proxy. */
void relay_write_ethernet(const struct relay *r, uint8_t *frame);

/* --- relay_words.c ------------------------------------------------------------------------------------------------ */

/* The agent says that no process has these connections any more. It is said on the trunk when that is up. */
void relay_say_over(struct relay *r, uint64_t epoch, const uint8_t *keys, uint32_t bytes);
/* Says some of what waits, if it is time. */
void relay_words_turn(struct relay *r);
/* When relay_words_turn() is to be called again; UINT64_MAX: not before something happens. */
uint64_t relay_words_at_ns(const struct relay *r);

#endif
