/*
 * Stress: many connections that do everything at once, every byte checked. One program for both ends (stress-xts on the
 * host, stress-kernel as the TCP peer).
 *
 * Theory of operation
 *
 * What a connection does is decided by (seed, who opened it, slot, generation) alone: a script of sizes, pauses, buffer
 * sizes and ways of ending, which both ends derive for themselves. The opener says who it is in a header of 16 bytes;
 * from then on both ends know what each must see, so that a lost, repeated or foreign byte, an early end or an
 * uncalled-for reset is an error that names connection and position. A seed reproduces the script of a run, not its
 * timing.
 *
 * Stream bytes are a pattern keyed by connection and direction: the word at 8 p is mix(key + p), so a wrong byte can be
 * searched for elsewhere in the stream, which distinguishes a shift from corruption.
 */
#ifndef STRESS_H
#define STRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NEVER UINT64_MAX

enum end { HOST, PEER };        /* which program: host application or TCP peer */
enum side { OPENER, ACCEPTOR }; /* of one connection; also the direction *from* that side */

/* The same on both ends: scripts depend on it. Sizes in bytes, shares in parts per thousand. */
struct config {
	uint64_t seed;
	uint64_t stream_max; /* longest stream in one direction */
	uint32_t message_min, message_max;
	uint32_t slow_share[2]; /* connections whose HOST or PEER end reads slowly */
	uint32_t slow_pause_us; /* longest pause between two slow reads */
	uint32_t abort_share;   /* connections that one end aborts */
	uint32_t host_window;   /* the library's receive window, 0: large; only to see how slow a stream may be */
	uint32_t buffer_min, buffer_max; /* SO_SNDBUF, SO_RCVBUF of half of the connections; 0: leave alone */
};

struct side_script {
	uint64_t bytes; /* this side sends */
	uint64_t key;
	uint64_t abort_at;               /* abort when so many bytes have been sent and received in all; NEVER */
	uint64_t sizes;                  /* random state for message sizes */
	uint32_t read_max;               /* bytes asked for in one receive */
	uint32_t pause_us;               /* between two receives; 0: none */
	int send_buffer, receive_buffer; /* 0: leave alone */
	bool abort_plainly;              /* close with whatever is unread, instead of SO_LINGER 0 */
	bool close_without_shutdown;     /* where it is the last to finish */
	bool peeks, corks, no_delay;
};

struct script {
	struct side_script side[2];
};

uint64_t random_next(uint64_t *state);
/* Uniform in the logarithm, from low to high inclusive. */
uint64_t random_size(uint64_t *state, uint64_t low, uint64_t high);
void script_derive(struct script *out, const struct config *config, enum end opener, uint32_t slot, uint32_t generation);

void stream_fill(uint64_t key, uint64_t position, uint8_t *data, size_t bytes);
/* Position of the first wrong byte, or NEVER. */
uint64_t stream_check(uint64_t key, uint64_t position, const uint8_t *data, size_t bytes);
/* Looks for data (16 bytes or more) near position in the stream; NEVER when it is not from there. */
uint64_t stream_find(uint64_t key, uint64_t position, const uint8_t *data, size_t bytes);

/* --- connections -------------------------------------------------------------------------------------------------- */

enum conn_state { CONN_CONNECTING, CONN_HEADER, CONN_RUNNING, CONN_FINISHED };

struct header {
	uint32_t magic, opener, slot, generation;
};

struct worker;

struct conn {
	struct conn *next, **link; /* in the worker's list */
	struct worker *worker;
	int s;
	enum conn_state state;
	enum end opener;
	enum side side;
	uint32_t slot, generation;
	struct header header;
	uint32_t header_done; /* bytes sent or received */
	struct script script;
	uint64_t sent, received;
	uint64_t sizes;
	uint32_t message_left;
	uint32_t interest;        /* epoll events asked for */
	bool shut, ended;         /* our stream ended, theirs has */
	uint64_t paused_until_ns; /* slow reader; 0: not paused */
	uint64_t progress_ns;
};

enum outcome { OUTCOME_COMPLETE, OUTCOME_ABORTED, OUTCOME_SAW_ABORT, OUTCOMES };

struct totals {
	_Atomic uint64_t opened, accepted, sent_bytes, received_bytes, checked_peeks, outcomes[OUTCOMES];
};

struct options {
	struct config config;
	enum end end;
	const char *listen_address, *connect_address;
	uint16_t listen_port, connect_port;
	uint32_t connections, threads;
	uint32_t stall_ms;
	bool reconnect;
};

struct worker {
	const struct options *options;
	struct totals *totals;
	pthread_t thread;
	unsigned number;
	void *set;
	struct conn *conns;
	uint32_t open; /* connections of either kind in being */
	uint32_t slot_first, slot_end;
	uint32_t *generation; /* of each of our slots */
	uint8_t *buffer;      /* of message_max bytes and more */
	size_t buffer_bytes;
	pthread_mutex_t inbox_lock;
	int inbox[1024]; /* accepted sockets handed over by worker 0 */
	uint32_t inbox_used;
	_Atomic bool paused;
	_Atomic uint32_t now_open;
};

extern _Atomic bool stopping, pausing;

uint64_t now_ns(void);

/* Opens the connection of a slot; accepts a socket. Errors end the program. */
void conn_open(struct worker *w, uint32_t slot);
void conn_adopt(struct worker *w, int s);
/* Does what can be done; frees the connection when it has finished. */
void conn_step(struct conn *c, uint32_t events);
void conn_print(const struct conn *c, FILE *out);

void *worker_run(void *worker);

/* Ends the program with a description of the connection: something is wrong. Exit status 1, or 3 for a stall. */
_Noreturn void fail(const struct conn *c, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
