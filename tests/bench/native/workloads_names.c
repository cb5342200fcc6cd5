/*
 * Names: one looked up after the other, each another one. With libxts by the proxy, which asks the peer; else by asking
 * the peer in a datagram.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "datagram_client.h"

#define ROOM 512u

/* A query for the address of nNUMBER.bench.test: its length. */
static size_t query_of(uint8_t *query, uint32_t number)
{
	static const uint8_t head[] = { 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
	static const uint8_t tail[] = { 5, 'b', 'e', 'n', 'c', 'h', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1 };
	size_t at = sizeof(head);
	int digits;

	memcpy(query, head, sizeof(head));
	query[0] = (uint8_t)(number >> 8);
	query[1] = (uint8_t)number;
	digits = snprintf((char *)query + at + 1, 16, "n%" PRIu32, number);
	query[at] = (uint8_t)digits;
	at += 1u + (size_t)digits;
	memcpy(query + at, tail, sizeof(tail));
	return at + sizeof(tail);
}

static size_t look_up(int s, const uint8_t *query, size_t bytes, uint8_t *answer)
{
	ssize_t n;

	if (net_api.query_name) {
		n = net_api.query_name(query, bytes, answer, ROOM, 1000);
	} else {
		if (net_api.send(s, query, bytes, 0) != (ssize_t)bytes)
			die("send");
		n = net_api.recv(s, answer, ROOM, 0);
	}
	if (n < 0)
		die("no answer to a query");
	return (size_t)n;
}

void names(const struct options *o)
{
	uint8_t query[ROOM], answer[ROOM];
	struct intervals times = { 0 };
	int s = net_api.query_name ? -1 : datagrams_open(o, DATAGRAM_NAMES, 0), phase;
	uint64_t count = 0;
	struct window w;

	if (s >= 0)
		datagrams_timeout(s, 1000);
	window_open(&w, o);
	while ((phase = window_step(&w, now_ns())) != 2) {
		size_t bytes = query_of(query, (uint32_t)count), got;
		uint64_t begun = now_ns();

		if (phase == 1) {
			times.count = 0;
			count = 0;
		}
		got = look_up(s, query, bytes, answer);
		intervals_add(&times, now_ns() - begun);
		if (got < bytes + 16 || memcmp(query, answer, 2) || !(answer[2] & 0x80) ||
		    memcmp(query + 12, answer + 12, bytes - 12))
			die_wrong("no answer to this query, number", count);
		count++;
	}
	printf("{\"operations\": %" PRIu64 ", ", count);
	sample_print(&w.from, &w.to);
	intervals_print(&times, "");
	printf(", \"checked\": \"the question of each\"}\n");
	if (s >= 0)
		net_api.close(s);
}
