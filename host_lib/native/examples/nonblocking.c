/*
 * A connection that is given up when it takes too long, without a thread or a signal.
 *
 *	cc nonblocking.c -o nonblocking $(pkg-config --cflags --libs xts)
 *	./nonblocking 198.18.0.2 80 500	connects within 500 ms or says why not
 *
 * A non-blocking connect returns EINPROGRESS. The socket becomes writable when its outcome is known,
 * and SO_ERROR has it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "xts.h"

int main(int argc, char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	struct pollfd waiting = { .events = POLLOUT };
	socklen_t length = sizeof(int);
	int error = 0, ready;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: nonblocking ADDRESS PORT MS\nexample: nonblocking 198.18.0.2 80 500\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
	waiting.fd = xts_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (waiting.fd < 0) {
		fprintf(stderr, "xts_socket: %s\n", xts_last_error());
		return 1;
	}
	if (xts_connect(waiting.fd, (struct sockaddr *)&server, sizeof(server)) && errno != EINPROGRESS) {
		fprintf(stderr, "xts_connect: %s\n", xts_last_error());
		return 1;
	}
	ready = xts_poll(&waiting, 1, atoi(argv[3])); /* takes numbers of XTS sockets */
	if (ready == 0) {
		puts("too late");
		return xts_close(waiting.fd) ? 1 : 0;
	}
	if (ready < 0 || xts_getsockopt(waiting.fd, SOL_SOCKET, SO_ERROR, &error, &length)) {
		fprintf(stderr, "waiting: %s\n", xts_last_error());
		return 1;
	}
	printf("%s\n", error ? xts_last_error() : "connected");
	return xts_close(waiting.fd) ? 1 : 0;
}
