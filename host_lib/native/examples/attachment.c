/*
 * Prints how this process is attached, and which protocols the proxy offers it.
 *
 *	cc attachment.c -o attachment $(pkg-config --cflags --libs xts)
 *	./attachment /run/xts/endpoint.sock
 *
 * xts_configure() comes before the first socket, and goes before the environment.
 */
#include <stdio.h>

#include "xts.h"

int main(int argc, char **argv)
{
	struct xts_options options = { .size = sizeof(options), .spin_us = 20 };
	struct xts_info info = { .size = sizeof(info) };
	struct xts_ulp_offer offers[32];
	int count;

	if (argc > 2) {
		fprintf(stderr, "usage: attachment [ENDPOINT]\n");
		return 2;
	}
	options.endpoint = argc > 1 ? argv[1] : NULL; /* NULL: XTS_ENDPOINT, or the default */
	if (xts_configure(&options)) {
		fprintf(stderr, "xts_configure: %s\n", xts_last_error());
		return 1;
	}
	count = xts_ulps(offers, 32);
	if (count < 0 || xts_get_info(&info)) {
		fprintf(stderr, "not attached: %s\n", xts_last_error());
		return 1;
	}
	printf("%s queue %u, messages of up to %u bytes\n", info.queue_kind, info.queue_id, info.largest_message);
	for (int i = 0; i < count && i < 32; i++)
		printf("protocol %u version %u\n", offers[i].ulp_id, offers[i].version);
	return 0;
}
