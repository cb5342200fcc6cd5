/*
 * A server for one client at a time: sends back what it receives.
 *
 *	cc echo_server.c -o echo_server $(pkg-config --cflags --libs xts)
 *	./echo_server 7777 2		two connections, then it ends
 *
 * The address is one of the device's: clients connect to the device, not to this host.
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

static int serve(int client)
{
	char buffer[4096];
	ssize_t n;

	while ((n = xts_recv(client, buffer, sizeof(buffer), 0)) > 0)
		if (xts_send(client, buffer, (size_t)n, 0) != n)
			return fail("xts_send");
	xts_close(client);
	return n < 0 ? fail("xts_recv") : 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	int listener, on = 1;

	if (argc != 3) {
		fprintf(stderr, "usage: echo_server PORT CONNECTIONS\nexample: echo_server 7777 2\n");
		return 2;
	}
	address.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
	listener = xts_socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0)
		return fail("xts_socket");
	if (xts_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
		return fail("xts_setsockopt");
	if (xts_bind(listener, (struct sockaddr *)&address, sizeof(address)))
		return fail("xts_bind");
	if (xts_listen(listener, 16))
		return fail("xts_listen");
	puts("listening");
	fflush(stdout);
	for (long left = strtol(argv[2], NULL, 10); left > 0; left--) {
		int client = xts_accept(listener, NULL, NULL);

		if (client < 0)
			return fail("xts_accept");
		if (serve(client))
			return 1;
	}
	return xts_close(listener) ? 1 : 0;
}
