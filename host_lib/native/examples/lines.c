/*
 * Receives lines: the proxy finds their ends, and each receive call gives one whole line.
 *
 *	cc lines.c -o lines $(pkg-config --cflags --libs xts)
 *	./lines 198.18.0.2 7777
 *
 * A socket of type SOCK_SEQPACKET carries PDUs of the protocol that is pushed onto it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
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
	struct ulp_info lines = { .ulp_id = XTS_ULP_LINES }; /* without parameters: ended by LF */
	struct iovec part;
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	char buffer[1024];
	ssize_t n;
	int s;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: lines ADDRESS PORT\nexample: lines 198.18.0.2 7777\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
	s = xts_socket(AF_INET, SOCK_SEQPACKET, 0);
	if (s < 0)
		return fail("xts_socket");
	if (xts_ioctl(s, SIOC_PUSH_ULP, &lines))
		return fail("xts_ioctl");
	if (xts_connect(s, (struct sockaddr *)&server, sizeof(server)))
		return fail("xts_connect");
	for (;;) {
		part = (struct iovec){ .iov_base = buffer, .iov_len = sizeof(buffer) };
		n = xts_recvmsg(s, &message, 0);
		if (n < 0)
			return fail("xts_recvmsg");
		if (n == 0 && !(message.msg_flags & MSG_EOR))
			break; /* the end; an empty line has MSG_EOR */
		printf("[%.*s]%s\n", (int)n, buffer, message.msg_flags & MSG_EOR ? "" : " ...");
	}
	return xts_close(s) ? 1 : 0;
}
