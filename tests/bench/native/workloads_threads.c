/*
 * Workloads over several threads, one blocking connection each: request/response, and bulk. The main thread takes the
 * samples. Which stacks the threads have is the library's setting (XTS_STACKS). How often one of them found the lock of
 * its stack taken is counted by the library for each stack, so each stack is counted once here.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "measure.h"
#include "net_api.h"

#define THREADS_MAX 16u

struct worker {
	pthread_t thread;
	const struct options *options;
	void (*work)(struct worker *w, int s);
	_Atomic uint64_t done; /* operations, or bytes */
	uint64_t lock_waits;
	uint32_t stack;
};

static struct worker workers[THREADS_MAX];
static uint8_t pattern[PATTERN_BYTES];
static atomic_bool stop;
static pthread_barrier_t connected;

static void requests(struct worker *w, int s)
{
	uint8_t request[REQUEST_BYTES_MAX], response[REQUEST_BYTES_MAX];
	size_t bytes = w->options->request_bytes;
	uint64_t count = 0;

	memset(request, 0, bytes);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		memcpy(request, &count, sizeof(count));
		if (net_api.send(s, request, bytes, 0) != (ssize_t)bytes)
			die("send");
		receive_all(s, response, bytes);
		if (memcmp(request, response, bytes))
			die_wrong("response", count * bytes);
		atomic_store_explicit(&w->done, ++count, memory_order_relaxed);
	}
	net_api.close(s);
}

static void sends(struct worker *w, int s)
{
	uint64_t sent = 0;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		size_t at = sent % PATTERN_BYTES;
		ssize_t n = net_api.send(s, pattern + at, PATTERN_BYTES - at, 0);

		if (n < 0)
			die("send");
		sent += (uint64_t)n;
		atomic_store_explicit(&w->done, sent, memory_order_relaxed);
	}
	end_of_stream(s, sent);
}

static void *run(void *argument)
{
	struct worker *w = argument;
	int s = connect_to(w->options, 0);

	pthread_barrier_wait(&connected);
	w->work(w, s);
	if (net_api.lock_waits)
		w->lock_waits = net_api.lock_waits(&w->stack);
	return NULL;
}

static void sleep_s(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };

	nanosleep(&t, NULL);
}

static uint64_t done(uint32_t count)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < count; i++)
		total += atomic_load_explicit(&workers[i].done, memory_order_relaxed);
	return total;
}

static uint64_t lock_waits(uint32_t count)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < count; i++) {
		bool counted = false;

		for (uint32_t before = 0; before < i; before++)
			counted |= workers[before].stack == workers[i].stack;
		total += counted ? 0 : workers[i].lock_waits;
	}
	return total;
}

static void threads(const struct options *o, const char *unit, void (*work)(struct worker *w, int s))
{
	uint32_t count = o->connections < THREADS_MAX ? o->connections : THREADS_MAX;
	struct sample from, to;
	uint64_t before, after;

	pattern_fill(pattern);
	pthread_barrier_init(&connected, NULL, count + 1);
	for (uint32_t i = 0; i < count; i++) {
		workers[i].options = o;
		workers[i].work = work;
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			die("pthread_create");
	}
	pthread_barrier_wait(&connected);
	sleep_s(o->warmup_s);
	sample_take(&from);
	before = done(count);
	sleep_s(o->seconds);
	after = done(count);
	sample_take(&to);
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
	printf("{\"%s\": %" PRIu64 ", ", unit, after - before);
	sample_print(&from, &to);
	if (net_api.lock_waits)
		printf(", \"lock_waits\": %" PRIu64 ", \"all\": %" PRIu64, lock_waits(count), done(count));
	printf(", \"checked\": \"every byte\"}\n");
}

void threads_request(const struct options *o)
{
	threads(o, "operations", requests);
}

void threads_send(const struct options *o)
{
	threads(o, "bytes", sends);
}
