/* Workloads over an epoll set: requests over many connections, connecting and closing, idle connections. */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "net_api.h"

#define EVENTS_MAX 64
#define STALL_MS 5000 /* nothing at all for so long: the path is stuck */

struct conn {
	int s;
	uint32_t got; /* bytes of the response received */
	uint64_t count, begin_ns;
	uint8_t *request, *response;
};

static size_t request_bytes;

/* So many of them, and their buffers, all touched. */
static struct conn *conns_new(uint32_t count, const struct options *o)
{
	struct conn *conns = calloc(count, sizeof(*conns));
	uint8_t *buffers = malloc(2 * (size_t)count * o->request_bytes);

	if (!conns || !buffers)
		die("memory");
	request_bytes = o->request_bytes;
	memset(buffers, 0, 2 * (size_t)count * request_bytes);
	for (uint32_t i = 0; i < count; i++) {
		conns[i].request = buffers + 2 * i * request_bytes;
		conns[i].response = conns[i].request + request_bytes;
	}
	return conns;
}

static void *set_create(void)
{
	void *set = net_api.set_create();

	if (!set)
		die("epoll set");
	return set;
}

static void watch(void *set, int op, int s, uint32_t events, uint32_t index)
{
	struct epoll_event event = { .events = events, .data.u32 = index };

	if (net_api.set_ctl(set, op, s, &event))
		die("epoll_ctl");
}

static int wait_events(void *set, struct epoll_event *events)
{
	int n = net_api.set_wait(set, events, EVENTS_MAX, STALL_MS);

	if (n < 0 && errno != EINTR)
		die("epoll_wait");
	if (n == 0) {
		errno = ETIMEDOUT;
		die("nothing has happened for 5 s");
	}
	return n < 0 ? 0 : n;
}

static void check_connected(int s)
{
	int error = 0;
	socklen_t length = sizeof(error);

	if (net_api.getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &length))
		die("getsockopt SO_ERROR");
	if (error) {
		errno = error;
		die("connect");
	}
}

/* Opens count connections, at most 64 at a time in the making; leaves them in the set, watched for EPOLLIN. */
static void open_all(void *set, struct conn *conns, uint32_t count, const struct options *o)
{
	struct epoll_event events[EVENTS_MAX];
	uint32_t begun = 0, done = 0;
	int one = 1;

	while (done < count) {
		for (; begun < count && begun - done < EVENTS_MAX; begun++) {
			conns[begun].s = connect_to(o, SOCK_NONBLOCK);
			watch(set, EPOLL_CTL_ADD, conns[begun].s, EPOLLOUT, begun);
		}
		for (int i = 0, n = wait_events(set, events); i < n; i++) {
			uint32_t index = events[i].data.u32;

			check_connected(conns[index].s);
			if (net_api.setsockopt(conns[index].s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
				die("setsockopt TCP_NODELAY");
			watch(set, EPOLL_CTL_MOD, conns[index].s, EPOLLIN, index);
			done++;
		}
	}
}

static void send_request(struct conn *c, uint64_t now)
{
	memset(c->request, (int)(c->count & 0xff), request_bytes);
	memcpy(c->request, &c->count, sizeof(c->count));
	c->begin_ns = now;
	c->got = 0;
	if (net_api.send(c->s, c->request, request_bytes, MSG_DONTWAIT) != (ssize_t)request_bytes)
		die("send");
}

/* True when a whole response is there, and right. */
static bool take_response(struct conn *c)
{
	ssize_t n = net_api.recv(c->s, c->response + c->got, request_bytes - c->got, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		if (n == 0)
			errno = ECONNRESET;
		die("recv");
	}
	c->got += (uint32_t)n;
	if (c->got < request_bytes)
		return false;
	if (memcmp(c->request, c->response, request_bytes))
		die_wrong("response", c->count * request_bytes);
	c->count++;
	return true;
}

void requests_many(const struct options *o)
{
	struct conn *conns = conns_new(o->connections, o);
	struct intervals round_trips = { 0 };
	struct epoll_event events[EVENTS_MAX];
	uint64_t begin_ns, end_ns, now;
	struct sample from, to;
	bool measuring = false;
	void *set = set_create();

	open_all(set, conns, o->connections, o);
	now = now_ns();
	begin_ns = now + (uint64_t)(o->warmup_s * 1e9);
	end_ns = UINT64_MAX;
	for (uint32_t i = 0; i < o->connections; i++)
		send_request(&conns[i], now);
	while (now < end_ns) {
		int n = wait_events(set, events);

		now = now_ns();
		if (!measuring && now >= begin_ns) {
			sample_take(&from);
			end_ns = from.ns + (uint64_t)(o->seconds * 1e9);
			round_trips.count = 0;
			measuring = true;
		}
		for (int i = 0; i < n; i++) {
			struct conn *c = &conns[events[i].data.u32];

			if (!take_response(c))
				continue;
			now = now_ns();
			intervals_add(&round_trips, now - c->begin_ns);
			send_request(c, now);
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

	watch(set, EPOLL_CTL_ADD, s, EPOLLIN, index);
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
	void *set = set_create();
	char byte;

	if (!s)
		die("memory");
	begin_ns = now_ns() + (uint64_t)(o->warmup_s * 1e9);
	for (uint32_t i = 0; i < o->connections; i++)
		s[i] = connect_watched(set, o, i);
	for (;;) {
		int n = wait_events(set, events);

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

	open_all(set, conns, EVENTS_MAX, o);
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
				wait_events(set, events);
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
	void *set = set_create();
	char line[16];

	use_queue(set, conns, o);
	printf("{\"state\": \"attached\"}\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
	open_all(set, conns, o->connections, o);
	printf("{\"state\": \"ready\"}\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
	while (answered < o->connections) {
		for (; asked < o->connections && asked - answered < EVENTS_MAX; asked++)
			send_request(&conns[asked], now_ns());
		for (int i = 0, n = wait_events(set, events); i < n; i++)
			answered += take_response(&conns[events[i].data.u32]);
	}
	printf("{\"state\": \"answered\", \"operations\": %u, \"checked\": \"every byte\"}\n", answered);
}
