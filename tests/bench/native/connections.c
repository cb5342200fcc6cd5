/* Many connections of an epoll set; see connections.h. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connections.h"

#define STALL_MS 5000

static size_t request_bytes;

struct conn *conns_new(uint32_t count, const struct options *o)
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

void *set_new(void)
{
	void *set = net_api.set_create();

	if (!set)
		die("epoll set");
	return set;
}

void events_watch(void *set, int op, int s, uint32_t events, uint32_t index)
{
	struct epoll_event event = { .events = events, .data.u32 = index };

	if (net_api.set_ctl(set, op, s, &event))
		die("epoll_ctl");
}

int events_wait(void *set, struct epoll_event *events)
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

void conns_open(void *set, struct conn *conns, uint32_t count, const struct options *o)
{
	struct epoll_event events[EVENTS_MAX];
	uint32_t begun = 0, done = 0;
	int one = 1;

	while (done < count) {
		for (; begun < count && begun - done < EVENTS_MAX; begun++) {
			conns[begun].s = connect_to(o, SOCK_NONBLOCK);
			events_watch(set, EPOLL_CTL_ADD, conns[begun].s, EPOLLOUT, begun);
		}
		for (int i = 0, n = events_wait(set, events); i < n; i++) {
			uint32_t index = events[i].data.u32;

			check_connected(conns[index].s);
			if (net_api.setsockopt(conns[index].s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
				die("setsockopt TCP_NODELAY");
			events_watch(set, EPOLL_CTL_MOD, conns[index].s, EPOLLIN, index);
			done++;
		}
	}
}

bool request_try(struct conn *c, uint64_t begin_ns)
{
	ssize_t sent;

	memset(c->request, (int)(c->count & 0xff), request_bytes);
	memcpy(c->request, &c->count, sizeof(c->count));
	c->begin_ns = begin_ns;
	c->got = 0;
	sent = net_api.send(c->s, c->request, request_bytes, MSG_DONTWAIT);
	if (sent < 0 && errno == EAGAIN)
		return false;
	if (sent != (ssize_t)request_bytes)
		die("send");
	return true;
}

void request_send(struct conn *c, uint64_t now)
{
	while (!request_try(c, now)) {
		if (now_ns() - now > (uint64_t)STALL_MS * 1000000)
			die("send");
		usleep(100);
	}
}

bool response_take(struct conn *c)
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
