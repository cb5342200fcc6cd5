/*
 * A UDP server: sends each datagram back to where it is from.
 *
 *	cc udp_echo.c -o udp_echo $(pkg-config --cflags --libs xts)
 *	./udp_echo 7777 2		two datagrams, then it ends
 *
 * The address is one of the device's: clients send to the device, not to this host.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "xts.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

static int serve(int s)
{
	struct sockaddr_storage from;
	socklen_t length = sizeof(from);
	char buffer[65536];
	ssize_t n = xts_recvfrom(s, buffer, sizeof(buffer), 0, (struct sockaddr *)&from, &length);

	if (n < 0)
		return fail("xts_recvfrom");
	if (xts_sendto(s, buffer, (size_t)n, 0, (struct sockaddr *)&from, length) != n)
		return fail("xts_sendto");
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	int s;

	if (argc != 3) {
		fprintf(stderr, "usage: udp_echo PORT DATAGRAMS\nexample: udp_echo 7777 2\n");
		return 2;
	}
	address.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
	s = xts_socket(AF_INET, SOCK_DGRAM, 0);
	if (s < 0)
		return fail("xts_socket");
	if (xts_bind(s, (struct sockaddr *)&address, sizeof(address)))
		return fail("xts_bind");
	puts("bound");
	fflush(stdout);
	for (long left = strtol(argv[2], NULL, 10); left > 0; left--)
		if (serve(s))
			return 1;
	return xts_close(s) ? 1 : 0;
}
