/*
 * Sends a head and a body from two buffers in one call, and receives into two.
 *
 *	cc gather.c -o gather $(pkg-config --cflags --libs xts)
 *	./gather 198.18.0.2 7777	an echo server listens there
 *
 * xts_sendmsg() and xts_recvmsg() take struct msghdr, as sendmsg(2) and recvmsg(2) do.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xts.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	char head[] = "length 11\n", body[] = "hello world", got_head[10], got_body[12] = "";
	struct iovec out[] = { { head, 10 }, { body, 11 } }, in[] = { { got_head, 10 }, { got_body, 11 } };
	struct msghdr sent = { .msg_iov = out, .msg_iovlen = 2 }, received = { .msg_iov = in, .msg_iovlen = 2 };
	int s;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: gather ADDRESS PORT\nexample: gather 198.18.0.2 7777\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
	s = xts_socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0)
		return fail("xts_socket");
	if (xts_connect(s, (struct sockaddr *)&server, sizeof(server)))
		return fail("xts_connect");
	if (xts_sendmsg(s, &sent, 0) != 21)
		return fail("xts_sendmsg");
	if (xts_recvmsg(s, &received, MSG_WAITALL) != 21)
		return fail("xts_recvmsg");
	printf("%.10s%s\n", got_head, got_body);
	return xts_close(s) ? 1 : 0;
}
