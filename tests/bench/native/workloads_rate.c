/*
 * Requests at a fixed rate, whatever the answers do: what was due while its connection waited is sent late, and counts
 * from when it was due. Until SIGTERM. Then the slowest request of each millisecond is printed, by when it began.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connections.h"

#define SILENCE_MS 60000

struct milliseconds {
	uint64_t first;
	size_t room;
	struct {
		uint32_t slowest_us, count;
	} *at;
};

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static void milliseconds_add(struct milliseconds *m, uint64_t begin_ns, uint64_t end_ns)
{
	size_t at = begin_ns / 1000000 - m->first;
	uint32_t us = (uint32_t)((end_ns - begin_ns) / 1000);

	if (at >= m->room) {
		size_t room = at + 60000;

		m->at = realloc(m->at, room * sizeof(*m->at));
		if (!m->at)
			die("memory");
		memset(m->at + m->room, 0, (room - m->room) * sizeof(*m->at));
		m->room = room;
	}
	m->at[at].count++;
	if (us > m->at[at].slowest_us)
		m->at[at].slowest_us = us;
}

static void milliseconds_print(const struct milliseconds *m)
{
	const char *between = "";

	printf("{\"requests\": [");
	for (size_t i = 0; i < m->room; i++) {
		if (!m->at[i].count)
			continue;
		printf("%s[%" PRIu64 ", %u, %u]", between, m->first + i, m->at[i].slowest_us, m->at[i].count);
		between = ", ";
	}
	printf("], \"checked\": \"every byte\"}\n");
}

/* What is due on connections where nothing is awaited. What finds no room is tried again the next time. */
static void send_due(struct conn *conns, const struct options *o, uint64_t start_ns, uint64_t due)
{
	for (uint32_t i = 0; i < o->connections; i++) {
		struct conn *c = &conns[i];

		if (c->busy || c->next >= due)
			continue;
		c->busy = request_try(c, start_ns + c->next * 1000000000 / o->rate);
		if (c->busy)
			c->next += o->connections;
	}
}

void requests_at_rate(const struct options *o)
{
	struct conn *conns = conns_new(o->connections, o);
	struct epoll_event events[EVENTS_MAX];
	struct milliseconds found = { 0 };
	uint64_t start_ns, heard_ns, now;
	void *set = set_new();

	if (!o->rate)
		die("requests-at-rate needs --rate");
	signal(SIGTERM, end);
	conns_open(set, conns, o->connections, o);
	for (uint32_t i = 0; i < o->connections; i++)
		conns[i].next = i;
	start_ns = heard_ns = now = now_ns();
	found.first = start_ns / 1000000;
	printf("{\"state\": \"ready\"}\n");
	fflush(stdout);
	while (!ended) {
		int n = net_api.set_wait(set, events, EVENTS_MAX, 1);

		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		now = now_ns();
		for (int i = 0; i < n; i++) {
			struct conn *c = &conns[events[i].data.u32];

			if (!response_take(c))
				continue;
			milliseconds_add(&found, c->begin_ns, now);
			c->busy = false;
			heard_ns = now;
		}
		send_due(conns, o, start_ns, (now - start_ns) * o->rate / 1000000000);
		if (now - heard_ns > (uint64_t)SILENCE_MS * 1000000) {
			errno = ETIMEDOUT;
			die("no answer");
		}
	}
	milliseconds_print(&found);
}
