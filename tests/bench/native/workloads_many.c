/* Workloads over an epoll set: requests over many connections, connecting and closing, idle connections. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connections.h"

void requests_many(const struct options *o)
{
	struct conn *conns = conns_new(o->connections, o);
	struct intervals round_trips = { 0 };
	struct epoll_event events[EVENTS_MAX];
	uint64_t begin_ns, end_ns, now;
	struct sample from, to;
	bool measuring = false;
	void *set = set_new();

	conns_open(set, conns, o->connections, o);
	now = now_ns();
	begin_ns = now + (uint64_t)(o->warmup_s * 1e9);
	end_ns = UINT64_MAX;
	for (uint32_t i = 0; i < o->connections; i++)
		request_send(&conns[i], now);
	while (now < end_ns) {
		int n = events_wait(set, events);

		now = now_ns();
		if (!measuring && now >= begin_ns) {
			sample_take(&from);
			end_ns = from.ns + (uint64_t)(o->seconds * 1e9);
			round_trips.count = 0;
			measuring = true;
		}
		for (int i = 0; i < n; i++) {
			struct conn *c = &conns[events[i].data.u32];

			if (!response_take(c))
				continue;
			now = now_ns();
			intervals_add(&round_trips, now - c->begin_ns);
			request_send(c, now);
		}
	}
	sample_take(&to);
	printf("{\"operations\": %zu, ", round_trips.count);
	sample_print(&from, &to);
	intervals_print(&round_trips, "");
	printf(", \"checked\": \"every byte\"}\n");
	for (uint32_t i = 0; i < o->connections; i++)
		net_api.close(conns[i].s);
	net_api.set_destroy(set);
}

static int connect_watched(void *set, const struct options *o, uint32_t index)
{
	int s = connect_to(o, SOCK_NONBLOCK);

	events_watch(set, EPOLL_CTL_ADD, s, EPOLLIN, index);
	return s;
}

/* Connect, the server closes, read the end of stream, close: so many at a time. */
void connects(const struct options *o)
{
	int *s = calloc(o->connections, sizeof(*s));
	struct epoll_event events[EVENTS_MAX];
	uint64_t begin_ns, end_ns = UINT64_MAX, count = 0, now;
	struct sample from, to;
	bool measuring = false;
	void *set = set_new();
	char byte;

	if (!s)
		die("memory");
	begin_ns = now_ns() + (uint64_t)(o->warmup_s * 1e9);
	for (uint32_t i = 0; i < o->connections; i++)
		s[i] = connect_watched(set, o, i);
	for (;;) {
		int n = events_wait(set, events);

		now = now_ns();
		if (!measuring && now >= begin_ns) {
			sample_take(&from);
			end_ns = from.ns + (uint64_t)(o->seconds * 1e9);
			count = 0;
			measuring = true;
		}
		if (now >= end_ns)
			break;
		for (int i = 0; i < n; i++) {
			uint32_t index = events[i].data.u32;
			ssize_t got = net_api.recv(s[index], &byte, 1, MSG_DONTWAIT);

			if (got < 0 && errno == EAGAIN)
				continue;
			if (got != 0)
				die("end of stream expected");
			if (net_api.close(s[index]))
				die("close");
			count++;
			s[index] = connect_watched(set, o, index);
		}
	}
	sample_take(&to);
	printf("{\"operations\": %" PRIu64 ", ", count);
	sample_print(&from, &to);
	printf(", \"checked\": \"end of stream, no byte\"}\n");
	for (uint32_t i = 0; i < o->connections; i++)
		net_api.close(s[i]);
	net_api.set_destroy(set);
}

/* Touches the memory of the queue, which belongs to the attached process and not to its connections: 64 connections,
 * and 8 MB each way over one of them. */
static void use_queue(void *set, struct conn *conns, const struct options *o)
{
	static uint8_t data[32768];
	struct epoll_event events[EVENTS_MAX];

	conns_open(set, conns, EVENTS_MAX, o);
	for (int round = 0; round < 256; round++) {
		for (size_t done = 0; done < sizeof(data);) {
			ssize_t n = net_api.send(conns[0].s, data + done, sizeof(data) - done, 0);

			if (n < 0 && errno != EAGAIN)
				die("send");
			done += n > 0 ? (size_t)n : 0;
		}
		for (size_t done = 0; done < sizeof(data);) {
			ssize_t n = net_api.recv(conns[0].s, data, sizeof(data), 0);

			if (n == 0 || (n < 0 && errno != EAGAIN))
				die("recv");
			if (n < 0)
				events_wait(set, events);
			done += n > 0 ? (size_t)n : 0;
		}
	}
	for (int i = 0; i < EVENTS_MAX; i++)
		net_api.close(conns[i].s);
}

/* Holds connections. Prints "attached" when the queue has been used, "ready" with all of them, then waits for a line of
 * input each time; at last every connection must still answer. The caller looks at memory and CPU in between. */
void idle(const struct options *o)
{
	uint32_t room = o->connections > EVENTS_MAX ? o->connections : EVENTS_MAX;
	struct conn *conns = conns_new(room, o);
	struct epoll_event events[EVENTS_MAX];
	uint32_t answered = 0, asked = 0;
	void *set = set_new();
	char line[16];

	use_queue(set, conns, o);
	printf("{\"state\": \"attached\"}\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
	conns_open(set, conns, o->connections, o);
	printf("{\"state\": \"ready\"}\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
	while (answered < o->connections) {
		for (; asked < o->connections && asked - answered < EVENTS_MAX; asked++)
			request_send(&conns[asked], now_ns());
		for (int i = 0, n = events_wait(set, events); i < n; i++)
			answered += response_take(&conns[events[i].data.u32]);
	}
	printf("{\"state\": \"answered\", \"operations\": %u, \"checked\": \"every byte\"}\n", answered);
}
