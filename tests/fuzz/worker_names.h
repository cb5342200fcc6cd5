/*
 * Names: a host's queries, and the UDP peer as the name server.
 */
#ifndef XTS_FUZZ_WORKER_NAMES_H
#define XTS_FUZZ_WORKER_NAMES_H

#include "worker_take.h"

#define DNS_HEADER_BYTES 12u

/* A query with one question, mostly without a mistake. Its bytes. */
static uint32_t put_query(uint8_t *out, struct input *in)
{
	uint8_t how = take(in), letters = how % 64u;
	uint32_t at = DNS_HEADER_BYTES;

	out[1] = how;
	out[2] = how >= 240 ? how : 1;
	out[5] = 1;
	out[at++] = letters;
	for (uint8_t i = 0; i < letters; i++)
		out[at++] = 'a' + i % 26;
	if (letters)
		out[at++] = 0;
	out[at + 1] = how & 64 ? 28 : 1;
	out[at + 3] = 1;
	return at + 4;
}

static void say_query(struct scene *s, struct input *in)
{
	uint8_t frame[LARGEST] = { 0 };
	struct xts_query_name m = { .token = take(in) };

	m.length = put_query(frame + XTS_QUERY_NAME_BYTES, in);
	if (m.token >= 250)
		m.length = pick_number(in) % (LARGEST - XTS_QUERY_NAME_BYTES);
	xts_query_name_encode(frame, &m);
	say_call(s, frame, XTS_CMD_QUERY_NAME, 0, 0, XTS_QUERY_NAME_BYTES + m.length);
}

/* Answers what has come: as a server would, cut off, as one that knows nothing, or to another question. */
static void name_server_answers(struct input *in)
{
	static uint8_t message[2048];
	uint8_t how = take(in);
	struct sockaddr_in from;
	socklen_t length = sizeof from;
	ssize_t bytes;

	for (unsigned i = 0; i < 64; i++) {
		bytes = recvfrom(datagram_fd, message, sizeof message / 2, 0, (struct sockaddr *)&from, &length);
		if (bytes < (ssize_t)DNS_HEADER_BYTES)
			return;
		message[2] |= 0x80 | (how & 1 ? 2 : 0);
		message[3] = how & 2 ? how >> 4 : 0x80;
		if (how & 4)
			message[1]++;
		if (how & 8)
			bytes += take(in);
		(void)!sendto(datagram_fd, message, (size_t)bytes, 0, (struct sockaddr *)&from, length);
	}
}

static void op_name(struct scene *s, struct input *in)
{
	if (take(in) & 1)
		name_server_answers(in);
	else
		say_query(s, in);
}

#endif
