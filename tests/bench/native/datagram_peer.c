/*
 * The UDP peer in the network: a sink, a source, an echo and a name server on consecutive ports (datagrams.h). What
 * waits is taken, and what is due is sent, many at a time: the peer should not be what limits a stream.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "datagrams.h"
#include "measure.h"

#define AT_ONCE 32u
#define CLIENTS 64u
#define RECEIVE_BYTES (8 << 20) /* of the sink's buffer: it should not be the first that loses any */

struct client {
	struct sockaddr_in address;
	uint64_t count, total;
	uint32_t round;
};

/* Those of one service. */
struct clients {
	struct client each[CLIENTS];
	unsigned used;
};

static struct clients sinks, sources;
static struct datagram_command stream; /* what the sources send: of the last START */
static uint64_t stream_begun_ns, stream_sent;
static int service[DATAGRAM_SERVICES];

static struct client *client_of(struct clients *all, const struct sockaddr_in *address)
{
	struct client *c;

	for (unsigned i = 0; i < all->used; i++) {
		c = &all->each[i];
		if (c->address.sin_port == address->sin_port && c->address.sin_addr.s_addr == address->sin_addr.s_addr)
			return c;
	}
	if (all->used == CLIENTS)
		all->used = 0; /* those of runs that have ended */
	c = &all->each[all->used++];
	*c = (struct client){ .address = *address };
	return c;
}

static int open_service(const char *address, uint16_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), bytes = RECEIVE_BYTES;

	if (s < 0 || inet_pton(AF_INET, address, &at.sin_addr) != 1 || bind(s, (struct sockaddr *)&at, sizeof(at)))
		die("bind");
	if (setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		(void)setsockopt(s, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	return s;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void send_to_group(struct client *c)
{
	c->address.sin_port = htons(DATAGRAM_GROUP_PORT);
	(void)inet_pton(AF_INET, DATAGRAM_GROUP, &c->address.sin_addr);
}

static void start(struct client *c, const struct datagram_command *m)
{
	bool another = m->round != stream.round;

	if (!another && m->group)
		return; /* it is sending */

	if (another) {
		sources.each[0] = *c;
		c = &sources.each[0];
		sources.used = 1;
		stream = *m;
		stream_begun_ns = now_ns();
		stream_sent = 0;
	}
	if (another || c->round != m->round) {
		c->count = 0;
		c->total = m->total ? m->total : UINT64_MAX;
		c->round = m->round;
	}
	if (m->group)
		send_to_group(c);
}

static void command(enum datagram_service of, struct datagram_command *m, const struct sockaddr_in *from)
{
	struct client *c = client_of(of == DATAGRAM_SINK ? &sinks : &sources, from);

	if (of == DATAGRAM_SOURCE && m->code == COMMAND_START)
		start(c, m);
	else if (of == DATAGRAM_SOURCE && m->code == COMMAND_STOP)
		sources.used = 0;
	m->count = of == DATAGRAM_SOURCE && c->count < c->total && m->code == COMMAND_COUNT ? 0 : c->count;
	(void)sendto(service[of], m, sizeof(*m), 0, (const struct sockaddr *)from, sizeof(*from));
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Where the question of a query ends; 0: it is none. */
static size_t question_end(const uint8_t *query, size_t bytes)
{
	size_t at = 12;

	while (at < bytes && query[at])
		at += 1u + query[at];
	return at + 5 <= bytes ? at + 5 : 0;
}

/* The query becomes its answer, which has an address. False: it is no query. */
static bool answer_query(uint8_t *message, size_t room, size_t *bytes)
{
	static const uint8_t record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 2 };
	static const uint8_t counts[] = { 0, 1, 0, 1, 0, 0, 0, 0 };
	size_t end = *bytes > 12 ? question_end(message, *bytes) : 0;

	if (!end || end + sizeof(record) > room)
		return false;
	message[2] |= 0x84; /* an answer, of the authority */
	message[3] = 0x80;
	memcpy(message + 4, counts, sizeof(counts));
	memcpy(message + end, record, sizeof(record));
	*bytes = end + sizeof(record);
	return true;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static void take(enum datagram_service of)
{
	static uint8_t data[AT_ONCE][2048];
	struct sockaddr_in from[AT_ONCE];
	struct mmsghdr messages[AT_ONCE];
	struct iovec iov[AT_ONCE];
	int n;

	for (unsigned i = 0; i < AT_ONCE; i++) {
		iov[i] = (struct iovec){ data[i], sizeof(data[i]) };
		messages[i].msg_hdr = (struct msghdr){
			.msg_name = &from[i], .msg_namelen = sizeof(from[i]), .msg_iov = &iov[i], .msg_iovlen = 1
		};
	}
	n = recvmmsg(service[of], messages, AT_ONCE, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		struct datagram_command m;
		uint64_t number = 0;

		if (messages[i].msg_len >= sizeof(number))
			memcpy(&number, data[i], sizeof(number));
		if (number >= COMMAND_MIN && messages[i].msg_len >= sizeof(m)) {
			memcpy(&m, data[i], sizeof(m));
			command(of, &m, &from[i]);
		} else if (of == DATAGRAM_SINK) {
			client_of(&sinks, &from[i])->count++;
		}
		iov[i].iov_len = messages[i].msg_len;
		if (of == DATAGRAM_NAMES && !answer_query(data[i], sizeof(data[i]), &iov[i].iov_len))
			iov[i].iov_len = 0;
	}
	if ((of == DATAGRAM_ECHO || of == DATAGRAM_NAMES) && n > 0)
		(void)sendmmsg(service[of], messages, (unsigned)n, MSG_DONTWAIT);
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static bool is_sending(void)
{
	for (unsigned i = 0; i < sources.used; i++)
		if (sources.each[i].count < sources.each[i].total)
			return true;
	return false;
}

/* How many datagrams are due. */
static uint64_t due(void)
{
	uint64_t most = AT_ONCE * stream.segments, by_now;

	if (!stream.rate)
		return most;
	by_now = (now_ns() - stream_begun_ns) * stream.rate / 1000000000u;
	if (by_now < stream_sent)
		return 0;
	return by_now - stream_sent < most ? by_now - stream_sent : most;
}

static void send_due(void)
{
	static uint8_t data[AT_ONCE][DATAGRAM_BYTES * SEGMENTS];
	static unsigned turn;
	uint64_t wanted = due() / stream.segments;
	struct client *to[AT_ONCE];
	struct mmsghdr messages[AT_ONCE];
	struct iovec iov[AT_ONCE];
	unsigned count = 0;
	int n;

	for (unsigned tries = 0; count < wanted && tries < AT_ONCE + CLIENTS; tries++) {
		struct client *c = &sources.each[turn++ % sources.used];

		if (c->count >= c->total)
			continue;
		for (unsigned i = 0; i < stream.segments; i++, c->count++)
			memcpy(data[count] + i * DATAGRAM_BYTES, &c->count, sizeof(c->count));
		iov[count] = (struct iovec){ data[count], DATAGRAM_BYTES * stream.segments };
		messages[count].msg_hdr = (struct msghdr){ .msg_name = &c->address,
							   .msg_namelen = sizeof(c->address),
							   .msg_iov = &iov[count],
							   .msg_iovlen = 1 };
		to[count++] = c;
	}
	n = count ? sendmmsg(service[DATAGRAM_SOURCE], messages, count, MSG_DONTWAIT) : 0;
	n = n < 0 ? 0 : n;
	stream_sent += (unsigned)n * stream.segments;
	while (count > (unsigned)n)
		to[--count]->count -= stream.segments;
}

/* Datagrams to groups leave by the interface of the peer's address, and pass a router. */
static void prepare_for_groups(const char *address)
{
	struct in_addr from;
	int hops = 8;

	if (inet_pton(AF_INET, address, &from) != 1 ||
	    setsockopt(service[DATAGRAM_SOURCE], IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof(from)) ||
	    setsockopt(service[DATAGRAM_SOURCE], IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof(hops)))
		die("IP_MULTICAST_IF");
}

static void segment(uint32_t segments)
{
	int bytes = segments > 1 ? (int)DATAGRAM_BYTES : 0;

	if (setsockopt(service[DATAGRAM_SOURCE], SOL_UDP, UDP_SEGMENT, &bytes, sizeof(bytes)))
		die("UDP_SEGMENT");
}

int main(int argc, char **argv)
{
	struct pollfd fds[DATAGRAM_SERVICES];
	uint32_t segments = 1;
	uint16_t port;

	if (argc != 3)
		return fprintf(stderr, "usage: datagram_peer ADDRESS PORT\nexample: datagram_peer 127.0.0.1 9021\n"), 2;
	stream.segments = 1;
	port = (uint16_t)atoi(argv[2]);
	for (unsigned i = 0; i < DATAGRAM_SERVICES; i++) {
		service[i] = open_service(argv[1], (uint16_t)(port + i));
		fds[i] = (struct pollfd){ .fd = service[i], .events = POLLIN };
	}
	prepare_for_groups(argv[1]);
	puts("ready");
	fflush(stdout);
	for (;;) {
		static const struct timespec pause = { .tv_nsec = 20000 };
		bool sending = is_sending();

		if (sending) {
			if (segments != stream.segments)
				segment(segments = stream.segments);
			send_due();
		}
		if (ppoll(fds, DATAGRAM_SERVICES, sending ? (stream.rate ? &pause : &(struct timespec){ 0 }) : NULL,
			  NULL) < 0)
			die("poll");
		for (unsigned i = 0; i < DATAGRAM_SERVICES; i++)
			if (fds[i].revents)
				take((enum datagram_service)i);
	}
}
