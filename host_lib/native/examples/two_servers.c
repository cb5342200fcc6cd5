/*
 * Asks two servers at once and prints each answer as it comes.
 *
 *	cc two_servers.c -o two_servers $(pkg-config --cflags --libs xts)
 *	./two_servers 198.18.0.2 7777 7778
 *
 * xts_poll() is poll(2) for a few XTS sockets. For many, use xts_epoll_wait().
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "xts.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	struct pollfd waiting[2];
	int open = 2;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: two_servers ADDRESS PORT PORT\n");
		return 2;
	}
	for (int i = 0; i < 2; i++) {
		waiting[i] = (struct pollfd){ .fd = xts_socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN };
		server.sin_port = htons((uint16_t)strtoul(argv[2 + i], NULL, 10));
		if (waiting[i].fd < 0)
			return fail("xts_socket");
		if (xts_connect(waiting[i].fd, (struct sockaddr *)&server, sizeof(server)))
			return fail("xts_connect");
	}
	while (open) {
		if (xts_poll(waiting, 2, -1) < 0)
			return fail("xts_poll");
		for (int i = 0; i < 2; i++) {
			char buffer[256];
			ssize_t n;

			if (!waiting[i].revents)
				continue;
			n = xts_recv(waiting[i].fd, buffer, sizeof(buffer), 0);
			if (n < 0)
				return fail("xts_recv");
			if (n > 0) {
				printf("%d: %.*s\n", i + 1, (int)n, buffer);
				continue;
			}
			xts_close(waiting[i].fd);
			waiting[i].fd = -1; /* poll passes over it */
			open--;
		}
	}
	return 0;
}
