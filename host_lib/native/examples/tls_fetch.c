/*
 * Fetches a page over TLS that the proxy does: this process has no keys and no TLS library.
 *
 *	cc tls_fetch.c -o tls_fetch $(pkg-config --cflags --libs xts)
 *	./tls_fetch 198.18.0.2 443 example.org system
 *
 * The last argument names trust roots of the proxy's configuration. TLS is pushed and connected in
 * one round trip; ULPS.md lists the parameters.
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
	_Alignas(struct ulp_info) char room[XTS_ULP_INFO_BYTES_MAX];
	struct sockaddr_in server = { .sin_family = AF_INET };
	struct ulp_info *tls = (struct ulp_info *)(void *)room;
	struct xts_ulp_push push = { .request = SIOC_PUSH_ULP, .info = tls };
	char buffer[4096];
	ssize_t n;
	int s, length;

	if (argc != 5 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: tls_fetch ADDRESS PORT NAME ROOTS\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
	*tls = (struct ulp_info){ .ulp_id = XTS_ULP_TLS };
	if (xts_ulp_put(tls, sizeof(room), XTS_TLS_SERVER_NAME, argv[3], strlen(argv[3]), 0) ||
	    xts_ulp_put(tls, sizeof(room), XTS_TLS_TRUST, argv[4], strlen(argv[4]), 0))
		return fail("xts_ulp_put");
	s = xts_socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0)
		return fail("xts_socket");
	if (xts_ulp_connect(s, (struct sockaddr *)&server, sizeof(server), &push, 1))
		return fail("xts_ulp_connect");
	length = snprintf(buffer, sizeof(buffer), "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", argv[3]);
	if (xts_send(s, buffer, (size_t)length, 0) != length)
		return fail("xts_send");
	while ((n = xts_recv(s, buffer, sizeof(buffer), 0)) > 0)
		fwrite(buffer, 1, (size_t)n, stdout);
	if (n < 0)
		return fail("xts_recv");
	return xts_close(s) ? 1 : 0;
}
