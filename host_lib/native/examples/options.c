/*
 * Sets options of an offloaded connection, reads them back, and asks how much is unacknowledged.
 *
 *	cc options.c -o options $(pkg-config --cflags --libs xts)
 *	./options 198.18.0.2 7777
 *
 * Options are those of the device's TCP. Some are refused to hosts: xts_last_error() says so.
 */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "xts.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int level, option, value;
	} wanted[] = {
		{ "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 30 },
		{ "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1 },
	};
	struct sockaddr_in server = { .sin_family = AF_INET };
	int s, mark = 7, unacknowledged = -1;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: options ADDRESS PORT\nexample: options 198.18.0.2 7777\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
	s = xts_socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0)
		return fail("xts_socket");
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		int value = 0;
		socklen_t length = sizeof(value);

		if (xts_setsockopt(s, wanted[i].level, wanted[i].option, &wanted[i].value, sizeof(int)) ||
		    xts_getsockopt(s, wanted[i].level, wanted[i].option, &value, &length))
			return fail(wanted[i].name);
		printf("%s: %d\n", wanted[i].name, value);
	}
	if (xts_setsockopt(s, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)))
		printf("SO_MARK: %s\n", xts_last_error());
	if (xts_connect(s, (struct sockaddr *)&server, sizeof(server)))
		return fail("xts_connect");
	if (xts_send(s, "hello", 5, 0) != 5 || xts_ioctl(s, SIOCOUTQ, &unacknowledged))
		return fail("SIOCOUTQ");
	printf("SIOCOUTQ: %s\n", unacknowledged <= 5 ? "at most what was sent" : "more than was sent");
	return xts_close(s) ? 1 : 0;
}
