/*
 * Request/response by many processes at once, each with a connection and an attachment of its own.
 *
 * The first process makes the others with fork(), waits until all are connected, and takes the samples. What they have
 * in common is shared memory: a phase, which it sets, and what each has measured. Where there are more processes than
 * queues some are served by the agent's relay; each says how it is served, and the round trips of both kinds are
 * printed separately, so that they can be compared within one run.
 *
 * With a rate, each process sends its share of it at even intervals and sleeps in between, however long a response
 * takes; a process that is late sends at once and is not late any more. A round trip begins when its request is sent.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "net_api.h"

#define ROUND_TRIPS_MAX 65536u /* of a process */
#define CONNECT_S 50u          /* until all are connected */
#define LOOK_NS 1000000        /* between two looks at their number */

enum phase { WARMUP, MEASURING, END };
enum served { BY_KERNEL, BY_OWN_QUEUE, BY_RELAY };

struct process {
	enum served served;
	uint32_t count;
	uint32_t ns[ROUND_TRIPS_MAX];
};

struct shared {
	_Atomic uint32_t connected;
	_Atomic uint32_t ended;
	_Atomic int phase;
	struct process process[];
};

static enum served how_served(void)
{
	const char *kind = net_api.queue_kind ? net_api.queue_kind() : NULL;

	return !kind ? BY_KERNEL : strcmp(kind, "relay") == 0 ? BY_RELAY : BY_OWN_QUEUE;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void round_trip(int s, size_t bytes, uint64_t count)
{
	uint8_t request[REQUEST_BYTES_MAX], response[REQUEST_BYTES_MAX];

	memset(request, (int)(count & 0xff), bytes);
	memcpy(request, &count, sizeof(count));
	if (net_api.send(s, request, bytes, 0) != (ssize_t)bytes)
		die("send");
	receive_all(s, response, bytes);
	if (memcmp(request, response, bytes))
		die_wrong("response", count * bytes);
}

static void add(struct process *p, uint64_t ns)
{
	if (p->count == ROUND_TRIPS_MAX) {
		errno = ENOBUFS;
		die("more round trips than there is room for");
	}
	p->ns[p->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* One process, the index-th of o->connections. */
static void run_process(const struct options *o, struct shared *shared, uint32_t index)
{
	struct process *p = &shared->process[index];
	uint64_t interval_ns = o->rate ? (uint64_t)(1e9 * o->connections / o->rate) : 0, next_ns, count = 0;
	int s = connect_to(o, 0), phase;

	round_trip(s, o->request_bytes, UINT64_MAX); /* all of its link has been used */
	p->served = how_served();
	atomic_fetch_add(&shared->connected, 1);
	next_ns = now_ns() + interval_ns * index / o->connections;
	while ((phase = atomic_load_explicit(&shared->phase, memory_order_relaxed)) != END) {
		uint64_t begin_ns = now_ns();

		if (begin_ns < next_ns) {
			sleep_ns(next_ns - begin_ns);
			continue;
		}
		round_trip(s, o->request_bytes, count++);
		if (phase == MEASURING)
			add(p, now_ns() - begin_ns);
		next_ns = begin_ns > next_ns + interval_ns ? begin_ns : next_ns + interval_ns;
	}
	net_api.close(s);
	atomic_fetch_add(&shared->ended, 1);
}

/* One that ends early has failed, and said why. */
static void check_alive(void)
{
	if (waitpid(-1, NULL, WNOHANG) > 0) {
		fprintf(stderr, "one of the processes has ended\n");
		exit(1);
	}
}

static void wait_connected(struct shared *shared, uint32_t processes)
{
	uint64_t deadline_ns = now_ns() + CONNECT_S * UINT64_C(1000000000);

	while (atomic_load(&shared->connected) < processes) {
		check_alive();
		if (now_ns() > deadline_ns) {
			errno = ETIMEDOUT;
			die("connecting all processes");
		}
		sleep_ns(LOOK_NS);
	}
}

static uint32_t gather(struct shared *shared, uint32_t processes, enum served served, struct intervals *out)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < processes; i++) {
		const struct process *p = &shared->process[i];

		if (p->served != served)
			continue;
		found++;
		for (uint32_t j = 0; j < p->count; j++)
			intervals_add(out, p->ns[j]);
	}
	return found;
}

void processes_request(const struct options *o)
{
	size_t bytes = sizeof(struct shared) + o->connections * sizeof(struct process);
	struct intervals all = { 0 }, own = { 0 }, relayed = { 0 };
	struct sample from, to;
	uint32_t of_own, of_relay;
	struct shared *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
				     -1, 0);

	if (shared == MAP_FAILED)
		die("memory for round trips");
	for (uint32_t i = 0; i < o->connections; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_process(o, shared, i);
			_exit(0);
		}
	}
	wait_connected(shared, o->connections);
	sleep_ns((uint64_t)(o->warmup_s * 1e9));
	sample_take(&from);
	atomic_store(&shared->phase, MEASURING);
	sleep_ns((uint64_t)(o->seconds * 1e9));
	check_alive();
	atomic_store(&shared->phase, END);
	sample_take(&to);
	while (waitpid(-1, NULL, 0) > 0)
		;
	if (atomic_load(&shared->ended) != o->connections) {
		fprintf(stderr, "%u of %u processes failed\n", o->connections - atomic_load(&shared->ended),
			o->connections);
		exit(1);
	}
	(void)gather(shared, o->connections, BY_KERNEL, &all);
	of_own = gather(shared, o->connections, BY_OWN_QUEUE, &all);
	of_relay = gather(shared, o->connections, BY_RELAY, &all);
	(void)gather(shared, o->connections, BY_OWN_QUEUE, &own);
	(void)gather(shared, o->connections, BY_RELAY, &relayed);
	printf("{\"operations\": %zu, \"own_queues\": %u, \"relayed\": %u, ", all.count, of_own, of_relay);
	sample_print(&from, &to);
	intervals_print(&all, "");
	intervals_print(&own, "own_");
	intervals_print(&relayed, "relayed_");
	printf(", \"checked\": \"every byte\"}\n");
}
