/*
 * A server for many clients in one thread: sends back what it receives.
 *
 *	cc epoll_echo.c -o epoll_echo $(pkg-config --cflags --libs xts)
 *	./epoll_echo 7777 100		a hundred connections, then it ends
 *
 * xts_epoll_wait() waits for XTS sockets alone, and is the fastest way to. With XTS_EPOLL_BATCH all
 * answers of one round leave together.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "xts.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

static int listen_at(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int s = xts_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;

	if (s < 0 || xts_setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    xts_bind(s, (struct sockaddr *)&address, sizeof(address)) || xts_listen(s, 128))
		return -1;
	return s;
}

static int watch(void *set, int s)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = s };

	return xts_epoll_ctl(set, EPOLL_CTL_ADD, s, &event);
}

/* 1: the connection has ended. */
static int echo(int s)
{
	char buffer[4096];
	ssize_t n = xts_recv(s, buffer, sizeof(buffer), 0);

	if (n > 0)
		/* A server of more than small messages would wait for EPOLLOUT here. */
		return xts_send(s, buffer, (size_t)n, MSG_NOSIGNAL) != n;
	return !(n < 0 && errno == EAGAIN);
}

int main(int argc, char **argv)
{
	struct epoll_event events[64];
	long left;
	void *set;
	int listener;

	if (argc != 3) {
		fprintf(stderr, "usage: epoll_echo PORT CONNECTIONS\nexample: epoll_echo 7777 100\n");
		return 2;
	}
	left = strtol(argv[2], NULL, 10);
	listener = listen_at((uint16_t)strtoul(argv[1], NULL, 10));
	set = xts_epoll_ctx_create_flags(XTS_EPOLL_BATCH);
	if (listener < 0 || !set || watch(set, listener))
		return fail("listening");
	puts("listening");
	fflush(stdout);
	while (left > 0) {
		int count = xts_epoll_wait(set, events, 64, -1);

		if (count < 0)
			return fail("xts_epoll_wait");
		for (int i = 0; i < count; i++) {
			int s = events[i].data.fd;

			if (s == listener) {
				s = xts_accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				if (s >= 0 && watch(set, s))
					return fail("xts_epoll_ctl");
			} else if (echo(s)) {
				xts_close(s); /* which takes it out of the set */
				left--;
			}
		}
	}
	xts_epoll_ctx_destroy(set);
	return xts_close(listener) ? 1 : 0;
}
