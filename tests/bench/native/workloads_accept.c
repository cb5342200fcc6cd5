/* A server: connections come from the network, and each is closed as soon as it can be written to; over TLS that is
 * when its handshake is done. Runs until it is killed; who makes the connections counts them (tls_load.c). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>

#include "measure.h"
#include "net_api.h"

#define EVENTS_MAX 64
#define BACKLOG 4096
#define LISTENER UINT32_MAX /* its number in the set; a connection's is its descriptor */

static void watch(void *set, int s, uint32_t events, uint32_t number)
{
	struct epoll_event event = { .events = events, .data.u32 = number };

	if (net_api.set_ctl(set, EPOLL_CTL_ADD, s, &event))
		die("epoll_ctl");
}

static int listen_on(const struct options *o)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(o->port) };
	int s = net_api.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	if (s < 0 || net_api.setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		die("socket");
	if (inet_pton(AF_INET, o->address, &at.sin_addr) != 1) {
		errno = EINVAL;
		die(o->address);
	}
	if (net_api.bind(s, (struct sockaddr *)&at, sizeof(at)) || net_api.listen(s, BACKLOG))
		die("listen");
	return s;
}

static void accept_all(void *set, int listener)
{
	int s;

	while ((s = net_api.accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		watch(set, s, EPOLLOUT, (uint32_t)s);
	if (errno != EAGAIN && errno != ECONNABORTED)
		die("accept");
}

void accepts(const struct options *o)
{
	struct epoll_event events[EVENTS_MAX];
	void *set = net_api.set_create();
	int listener = listen_on(o);

	if (!set)
		die("epoll set");
	watch(set, listener, EPOLLIN, LISTENER);
	for (;;) {
		int n = net_api.set_wait(set, events, EVENTS_MAX, -1);

		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 == LISTENER)
				accept_all(set, listener);
			else if (net_api.close((int)events[i].data.u32))
				die("close");
		}
	}
}
