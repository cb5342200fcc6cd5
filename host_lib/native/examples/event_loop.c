/*
 * A client in an event loop of the kernel's: an offloaded connection and a timer in one epoll set.
 *
 *	cc event_loop.c -o event_loop $(pkg-config --cflags --libs xts)
 *	./event_loop 198.18.0.2 7777	sends a line four times a second, prints what comes back
 *
 * xts_fileno() gives a descriptor that is readable and writable when the socket is. It is only for
 * waiting: data goes through xts_send() and xts_recv().
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "xts.h"

#define LINES 4

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

static int connect_to(const char *address, const char *port)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	int s;

	server.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
	if (inet_pton(AF_INET, address, &server.sin_addr) != 1)
		return -1;
	s = xts_socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0 || xts_connect(s, (struct sockaddr *)&server, sizeof(server)))
		return -1;
	return s;
}

static int on_timer(int s, int timer, int *sent)
{
	uint64_t expired;

	if (read(timer, &expired, sizeof(expired)) != sizeof(expired) || *sent == LINES)
		return 0;
	++*sent;
	return xts_send(s, "tick\n", 5, 0) == 5 ? 0 : fail("xts_send");
}

int main(int argc, char **argv)
{
	struct itimerspec quarter = { .it_interval.tv_nsec = 250000000, .it_value.tv_nsec = 250000000 };
	struct epoll_event event = { .events = EPOLLIN };
	int s, set, timer, sent = 0;
	size_t received = 0;

	s = argc == 3 ? connect_to(argv[1], argv[2]) : -1;
	if (s < 0) {
		fprintf(stderr, "usage: event_loop ADDRESS PORT\n%s\n", xts_last_error());
		return 2;
	}
	set = epoll_create1(EPOLL_CLOEXEC);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	timerfd_settime(timer, 0, &quarter, NULL);
	event.data.fd = timer;
	epoll_ctl(set, EPOLL_CTL_ADD, timer, &event);
	event.data.fd = xts_fileno(s);
	epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
	while (received < LINES * strlen("tick\n")) {
		struct epoll_event ready;
		char buffer[256];
		ssize_t n;

		if (epoll_wait(set, &ready, 1, -1) != 1)
			continue;
		if (ready.data.fd == timer) {
			if (on_timer(s, timer, &sent))
				return 1;
			continue;
		}
		n = xts_recv(s, buffer, sizeof(buffer), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return fail("xts_recv");
		if (n > 0) {
			fwrite(buffer, 1, (size_t)n, stdout);
			received += (size_t)n;
		}
	}
	close(set);
	close(timer);
	return xts_close(s) ? 1 : 0;
}
