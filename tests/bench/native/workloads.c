/* Bulk in both directions, and request/response over one connection with blocking calls. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "net_api.h"
#include "pdus.h"

static uint8_t pattern[PATTERN_BYTES];
static uint8_t buffer[PATTERN_BYTES];

int connect_to(const struct options *o, int type_flags)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(o->port) };
	int one = 1;
	int s = net_api.socket(AF_INET, SOCK_STREAM | type_flags, 0);

	if (s < 0)
		die("socket");
	if (inet_pton(AF_INET, o->address, &to.sin_addr) != 1) {
		errno = EINVAL;
		die(o->address);
	}
	if (net_api.connect(s, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS)
		die("connect");
	if (!(type_flags & SOCK_NONBLOCK) && net_api.setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die("setsockopt TCP_NODELAY");
	return s;
}

void receive_all(int s, void *data, size_t bytes)
{
	uint8_t *at = data;

	while (bytes) {
		ssize_t n = net_api.recv(s, at, bytes, 0);

		if (n <= 0) {
			if (n == 0)
				errno = ECONNRESET;
			die("recv");
		}
		at += n;
		bytes -= (size_t)n;
	}
}

/* The peer answers the end of our stream with the number of bytes it got and the position of the first wrong one. */
void end_of_stream(int s, uint64_t sent)
{
	uint64_t report[2];

	if (net_api.shutdown(s, SHUT_WR))
		die("shutdown");
	receive_all(s, report, sizeof(report));
	if (report[0] != sent) {
		fprintf(stderr, "sent %" PRIu64 " bytes, the peer got %" PRIu64 "\n", sent, report[0]);
		exit(1);
	}
	if (report[1] != UINT64_MAX)
		die_wrong("peer", report[1]);
	net_api.close(s);
}

void bulk_send(const struct options *o)
{
	uint64_t sent = 0, before = 0;
	struct window w;
	int s, phase;

	pattern_fill(pattern);
	s = connect_to(o, 0);
	window_open(&w, o);
	while ((phase = window_step(&w, now_ns())) != 2) {
		size_t at = sent % PATTERN_BYTES;
		ssize_t n;

		if (phase == 1)
			before = sent;
		n = net_api.send(s, pattern + at, PATTERN_BYTES - at, 0);
		if (n < 0)
			die("send");
		sent += (uint64_t)n;
	}
	printf("{\"bytes\": %" PRIu64 ", ", sent - before);
	sample_print(&w.from, &w.to);
	end_of_stream(s, sent);
	printf(", \"checked\": \"bytes counted by the peer\"}\n");
}

void bulk_receive(const struct options *o)
{
	uint64_t received = 0, before = 0, calls = 0;
	struct window w;
	int s, phase;

	pattern_fill(pattern);
	s = connect_to(o, 0);
	window_open(&w, o);
	while ((phase = window_step(&w, now_ns())) != 2) {
		ssize_t n;

		if (phase == 1) {
			before = received;
			calls = 0;
		}
		n = net_api.recv(s, buffer, sizeof(buffer), 0);
		if (n <= 0)
			die("recv");
		if (!pattern_spot_check(pattern, received, buffer, (size_t)n))
			die_wrong("receive", received + (size_t)n - 16);
		received += (uint64_t)n;
		calls++;
	}
	printf("{\"bytes\": %" PRIu64 ", \"calls\": %" PRIu64 ", ", received - before, calls);
	sample_print(&w.from, &w.to);
	printf(", \"checked\": \"pattern, 16 bytes of each call\"}\n");
	net_api.close(s);
}

/* Not a measurement: every byte of check_bytes each way. Odd sizes, so that calls and frames do not line up. */
void bulk_check(const struct options *o)
{
	struct options source = *o;
	uint64_t sent = 0, received = 0, wrong;
	int s;

	pattern_fill(pattern);
	s = connect_to(o, 0);
	for (size_t size = 1; sent < o->check_bytes; size = size * 7 % 100003 + 1) {
		size_t at = sent % PATTERN_BYTES;
		ssize_t n = net_api.send(s, pattern + at, size < PATTERN_BYTES - at ? size : PATTERN_BYTES - at, 0);

		if (n < 0)
			die("send");
		sent += (uint64_t)n;
	}
	end_of_stream(s, sent);

	source.port++; /* the source is the service after the checking sink */
	s = connect_to(&source, 0);
	for (size_t size = 1; received < o->check_bytes; size = size * 11 % 200003 + 1) {
		ssize_t n = net_api.recv(s, buffer, size, 0);

		if (n <= 0)
			die("recv");
		wrong = pattern_check(pattern, received, buffer, (size_t)n);
		if (wrong != UINT64_MAX)
			die_wrong("receive", wrong);
		received += (uint64_t)n;
	}
	net_api.close(s);
	printf("{\"sent_bytes\": %" PRIu64 ", \"received_bytes\": %" PRIu64 ", \"checked\": \"every byte\"}\n", sent,
	       received);
}

/* NVMe/TCP PDUs for the window, as fast as they come; their data is what pdus.c makes, of which
 * a byte of each is checked. */
static void nvme_receive(const struct options *o, bool digests)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(o->port) };
	uint64_t received = 0, position = 0, pdus = 0;
	struct window w;
	int s, phase;

	if (inet_pton(AF_INET, o->address, &to.sin_addr) != 1 || !net_api.nvme_connect) {
		errno = EINVAL;
		die("nvme");
	}
	s = net_api.nvme_connect((struct sockaddr *)&to, sizeof(to), digests);
	if (s < 0)
		die("connect");
	window_open(&w, o);
	while ((phase = window_step(&w, now_ns())) != 2) {
		size_t got = 0, whole = NVME_HEADER_BYTES + NVME_DATA_BYTES;
		uint8_t last;

		if (phase == 1)
			received = pdus = 0;
		while (got < whole) {
			ssize_t n = net_api.nvme_recv(s, buffer + got, sizeof(buffer) - got);

			if (n <= 0)
				die("recv");
			got += (size_t)n;
		}
		last = (uint8_t)((NVME_DATA_BYTES - 1) * 31 + position % NVME_PDUS);
		if (got != whole || buffer[0] != 7 || buffer[whole - 1] != last)
			die_wrong("PDU", position);
		position++;
		pdus++;
		received += got;
	}
	printf("{\"bytes\": %" PRIu64 ", \"calls\": %" PRIu64 ", ", received, pdus);
	sample_print(&w.from, &w.to);
	printf(", \"checked\": \"length and last byte of each PDU\"}\n");
	net_api.close(s);
}

void nvme_with_digests(const struct options *o)
{
	nvme_receive(o, true);
}

void nvme_without(const struct options *o)
{
	nvme_receive(o, false);
}

void round_trips_on(const struct options *o, int s, size_t bytes, void (*receive)(int s, void *data, size_t bytes))
{
	uint8_t request[REQUEST_BYTES_MAX], response[REQUEST_BYTES_MAX];
	struct intervals round_trips = { 0 };
	uint64_t count = 0, begin;
	struct window w;
	int phase;

	window_open(&w, o);
	while ((phase = window_step(&w, begin = now_ns())) != 2) {
		if (phase == 1) {
			round_trips.count = 0;
			begin = now_ns();
		}
		memset(request, (int)(count & 0xff), bytes);
		memcpy(request, &count, sizeof(count));
		if (net_api.send(s, request, bytes, 0) != (ssize_t)bytes)
			die("send");
		receive(s, response, bytes);
		if (memcmp(request, response, bytes))
			die_wrong("response", count * bytes);
		intervals_add(&round_trips, now_ns() - begin);
		count++;
	}
	printf("{\"operations\": %zu, ", round_trips.count);
	sample_print(&w.from, &w.to);
	intervals_print(&round_trips, "");
	printf(", \"checked\": \"every byte\"}\n");
	net_api.close(s);
}

void requests_one(const struct options *o)
{
	round_trips_on(o, connect_to(o, 0), o->request_bytes, receive_all);
}
