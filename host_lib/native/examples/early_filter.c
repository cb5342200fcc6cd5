/*
 * A UDP server that is flooded with what it does not want. Datagrams that do not begin with 'q' are dropped by a filter
 * on the device, and never reach this host. Of the others a callback sees each one before it is queued: it drops those
 * without a question mark, keeps one at a time as it is, and queues the rest.
 *
 *	cc early_filter.c -o early_filter $(pkg-config --cflags --libs xts)
 *	./early_filter 7777 3		three datagrams to be wanted, then it ends
 */
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xts.h"

struct counts {
	long wanted, unwanted;
	const struct xts_packet *kept;
};

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, xts_last_error());
	return 1;
}

/* Offsets count from the UDP header, which has 8 bytes. */
static int set_filter(int s)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'q', 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return xts_setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* Must not call the library, except to give back what it has kept. */
static enum xts_packet_verdict look(const struct xts_packet *packet, void *context)
{
	struct counts *counts = context;

	if (!packet->bytes || !memchr(packet->data, '?', packet->bytes)) {
		counts->unwanted++;
		return XTS_PACKET_DROP;
	}
	counts->wanted++;
	if (counts->kept)
		return XTS_PACKET_RECV;
	counts->kept = packet;
	return XTS_PACKET_HOLD;
}

static void show(const char *how, const void *data, size_t bytes)
{
	printf("%s %.*s\n", how, (int)bytes, (const char *)data);
	fflush(stdout);
}

/* Waiting for what is queued finds what is held, too. */
static int serve(int s, struct counts *counts, long wanted)
{
	struct pollfd fd = { .fd = s, .events = POLLIN };
	char buffer[65536];
	ssize_t n;

	while (counts->wanted < wanted) {
		if (xts_poll(&fd, 1, 100) < 0)
			return fail("xts_poll");
		while ((n = xts_recv(s, buffer, sizeof(buffer), MSG_DONTWAIT)) >= 0)
			show("queued", buffer, (size_t)n);
		if (!counts->kept)
			continue;
		show("held", counts->kept->data, counts->kept->bytes);
		xts_packet_free(counts->kept);
		counts->kept = NULL;
	}
	printf("%ld unwanted reached the callback\n", counts->unwanted);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	struct counts counts = { 0 };
	int s;

	if (argc != 3) {
		fprintf(stderr, "usage: early_filter PORT DATAGRAMS\nexample: early_filter 7777 3\n");
		return 2;
	}
	address.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
	s = xts_socket(AF_INET, SOCK_DGRAM, 0);
	if (s < 0)
		return fail("xts_socket");
	if (set_filter(s))
		return fail("SO_ATTACH_FILTER");
	if (xts_register_recv_callback(s, look, &counts))
		return fail("xts_register_recv_callback");
	if (xts_bind(s, (struct sockaddr *)&address, sizeof(address)))
		return fail("xts_bind");
	puts("bound");
	fflush(stdout);
	return serve(s, &counts, strtol(argv[2], NULL, 10)) || xts_close(s) ? 1 : 0;
}
