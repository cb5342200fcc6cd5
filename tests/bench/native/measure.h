/*
 * What is measured, and the pattern that streams carry.
 *
 * CPU is the busy time of a *whole core* (wall time less idle and stolen time, /proc/stat): work in softirq
 * context hides from the process's own account. Stolen is what a hypervisor gave to others although we had work:
 * none of ours, and a run that lost much of it is made again. The resolution is one tick (10 ms), so windows last
 * about a second or longer.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORES 2u              /* core 0: the application; core 1: everything else */
#define PATTERN_BYTES 262144u /* period of the stream pattern, and the size of one bulk call */
#define REQUEST_BYTES 64u     /* of a request and of its response, unless the options say otherwise */
#define REQUEST_BYTES_MAX 4096u
#define WATCHED_MAX 4u
#define TLS_NAME "peer.bench.test" /* the name the peer's certificates are for */

struct sample {
	uint64_t ns;
	double idle_s[CORES], stolen_s[CORES];
	uint64_t net_rx[CORES]; /* NET_RX softirqs of the core: who does the receiving */
	double process_s;
	double watched_s[WATCHED_MAX];
};

struct options {
	const char *workload;
	const char *address;
	uint16_t port;
	double seconds, warmup_s;
	uint32_t connections;
	uint32_t spin_us;
	uint32_t request_bytes;
	uint64_t check_bytes;
	/* of datagrams */
	uint32_t batch;    /* in one call */
	uint32_t segments; /* of a train */
	uint32_t rate;     /* a second that the peer sends; 0: as many as it can. requests-at-rate: of requests */
	/* of groups */
	const char *interface; /* its address: where they are joined */
	uint32_t groups;       /* to which nothing is sent */
};

uint64_t now_ns(void);
/* Processor time of other programs of ours, in all samples from now on: "NAME=PID" or "NAME=PID,PID", printed as
 * NAME_s. Ends the program when that is something else, or there are WATCHED_MAX. */
void watch_program(const char *name_and_pids);
void sample_take(struct sample *out);
/* Prints the members of a JSON object about the window between two samples, without the braces. */
void sample_print(const struct sample *from, const struct sample *to);

/* Phases of a run: warm-up, then the measured window, and its end. */
struct window {
	struct sample from, to;
	uint64_t begin_ns, end_ns;
	bool measuring;
};
void window_open(struct window *w, const struct options *o);
/* 0: go on; 1: the window begins now, reset the counters; 2: it has ended. */
int window_step(struct window *w, uint64_t now);

/* Round trips or other intervals; percentiles are printed as JSON members in microseconds. */
struct intervals {
	uint32_t *ns;
	size_t count, room;
};
void intervals_add(struct intervals *v, uint64_t ns);
/* prefix: of the members' names. Nothing when there are none. */
void intervals_print(struct intervals *v, const char *prefix);

void pattern_fill(uint8_t pattern[PATTERN_BYTES]);
/* Cheap check of received stream bytes: the word at the end must be the pattern's for that position. */
bool pattern_spot_check(const uint8_t *pattern, uint64_t position, const uint8_t *data, size_t bytes);
/* Full check; returns the stream position of the first wrong byte, or UINT64_MAX. */
uint64_t pattern_check(const uint8_t *pattern, uint64_t position, const uint8_t *data, size_t bytes);

/* Ends the program with a message that says what failed and the errno's text. */
_Noreturn void die(const char *what);
_Noreturn void die_wrong(const char *what, uint64_t position);

/* Workloads: run for the options' time and print one line of JSON. */
int connect_to(const struct options *o, int type_flags);
void receive_all(int s, void *data, size_t bytes);
/* Half-closes; the peer answers with the number of bytes it got, and the first wrong one. */
void end_of_stream(int s, uint64_t sent);
void bulk_send(const struct options *o);
void bulk_receive(const struct options *o);
void bulk_check(const struct options *o);
void nvme_with_digests(const struct options *o);
void nvme_without(const struct options *o);
/* Requests of so many bytes on a socket, each echoed before the next; then the socket is closed. */
void round_trips_on(const struct options *o, int s, size_t bytes, void (*receive)(int s, void *data, size_t bytes));
void requests_one(const struct options *o);
void requests_many(const struct options *o);
void requests_at_rate(const struct options *o);
void connects(const struct options *o);
void idle(const struct options *o);
/* Runs until it is killed. */
void accepts(const struct options *o);
/* As many processes as connections. */
void processes_request(const struct options *o);
/* As many threads as connections. */
void threads_request(const struct options *o);
void threads_send(const struct options *o);
void datagrams_request(const struct options *o);
void datagrams_send(const struct options *o);
void datagrams_receive(const struct options *o);
void datagrams_lossless(const struct options *o);
void datagrams_group(const struct options *o);
void names(const struct options *o);

#endif
