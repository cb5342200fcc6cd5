/*
 * Fetches a page over an offloaded connection and prints it:
 *
 *	cc fetch.c -o fetch $(pkg-config --cflags --libs xts)
 *	XTS_ENDPOINT=/run/xts/endpoint.sock ./fetch 198.18.0.2 80 /
 *
 * The calls are those of BSD sockets with xts_ before them; addresses, errno and blocking are as there.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "xts.h"

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	char buffer[65536];
	ssize_t n;
	int s, length;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: fetch ADDRESS PORT PATH\nexample: fetch 198.18.0.2 80 /\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));

	s = xts_socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0)
		fail("xts_socket");
	if (xts_connect(s, (struct sockaddr *)&server, sizeof(server)))
		fail("xts_connect");

	length = snprintf(buffer, sizeof(buffer), "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", argv[3], argv[1]);
	if (length < 0 || (size_t)length >= sizeof(buffer) || xts_send(s, buffer, (size_t)length, 0) != length)
		fail("xts_send");
	while ((n = xts_recv(s, buffer, sizeof(buffer), 0)) > 0)
		if (write(STDOUT_FILENO, buffer, (size_t)n) != n)
			return 1;
	if (n < 0)
		fail("xts_recv");
	return xts_close(s) ? 1 : 0;
}
