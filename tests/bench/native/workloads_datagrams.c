/*
 * Datagrams of 64 bytes over UDP: ping-pong, streams both ways, and the rate up to which none is lost. The peer is
 * datagram_peer.c.
 *
 * The library's default buffers are used. A stream that is sent is as fast as the program can: the peer's count says
 * how many of its datagrams arrived.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "datagram_client.h"

#define BATCH_MAX 64u
#define TRIES 50 /* of a command */
#define STEP_S 0.15
#define RATE_MIN 10000u
#define RATE_MAX 4000000u

static uint8_t data[BATCH_MAX][DATAGRAM_BYTES * SEGMENTS];
static struct iovec iov[BATCH_MAX];
static struct mmsghdr messages[BATCH_MAX];

/* --- sockets and commands ----------------------------------------------------------------------------------------- */

int datagrams_open(const struct options *o, enum datagram_service service, int flags)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)(o->port + service)) };
	int s = net_api.socket(AF_INET, SOCK_DGRAM | flags, 0);

	if (s < 0)
		die("socket");
	if (inet_pton(AF_INET, o->address, &to.sin_addr) != 1 || !net_api.sendmmsg || o->connections > SOCKETS_MAX ||
	    o->batch > BATCH_MAX || o->segments > SEGMENTS) {
		errno = EINVAL;
		die(o->address);
	}
	if (net_api.connect(s, (struct sockaddr *)&to, sizeof(to)))
		die("connect");
	return s;
}

void datagrams_timeout(int s, int ms)
{
	struct timeval t = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	if (net_api.setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)))
		die("SO_RCVTIMEO");
}

static void set_udp(int s, int option, int value)
{
	if (net_api.setsockopt(s, IPPROTO_UDP, option, &value, sizeof(value)))
		die("an option of UDP");
}

uint64_t datagrams_ask(int s, struct datagram_command m)
{
	for (int i = 0; i < TRIES; i++) {
		struct datagram_command answer;
		uint64_t deadline = now_ns() + ANSWER_MS * 1000000ull;

		if (net_api.send(s, &m, sizeof(m), 0) != (ssize_t)sizeof(m) && errno != ECONNREFUSED)
			die("send");
		while (now_ns() < deadline) {
			ssize_t n = net_api.recv(s, &answer, sizeof(answer), 0);

			if (n < 0 && errno != EAGAIN)
				die("recv");
			if (n == (ssize_t)sizeof(answer) && answer.code == m.code && answer.round == m.round)
				return answer.count;
		}
	}
	errno = ETIMEDOUT;
	die("the peer's answer");
}

uint32_t datagrams_round(void)
{
	return (uint32_t)(now_ns() / 1000);
}

/* --- ping-pong ---------------------------------------------------------------------------------------------------- */

/* A response longer than the request would be cut unnoticed if there were no room for more. */
static void receive_one(int s, void *out, size_t bytes)
{
	uint8_t response[DATAGRAM_BYTES + 1];

	if (net_api.recv(s, response, sizeof(response), 0) != (ssize_t)bytes)
		die("recv"); /* also where the datagram was lost */
	memcpy(out, response, bytes);
}

void datagrams_request(const struct options *o)
{
	int s = datagrams_open(o, DATAGRAM_ECHO, 0);

	datagrams_timeout(s, 1000);
	round_trips_on(o, s, DATAGRAM_BYTES, receive_one);
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static void prepare_messages(size_t bytes)
{
	for (unsigned i = 0; i < BATCH_MAX; i++) {
		iov[i] = (struct iovec){ data[i], bytes };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
	}
}

/* A batch, or one datagram or train. Datagrams sent. */
static uint64_t send_some(const struct options *o, int s, uint64_t number)
{
	size_t bytes = DATAGRAM_BYTES * o->segments;
	int n;

	memcpy(data[0], &number, sizeof(number));
	if (o->batch == 1) {
		if (net_api.send(s, data[0], bytes, 0) != (ssize_t)bytes)
			die("send");
		return o->segments;
	}
	n = net_api.sendmmsg(s, messages, o->batch, 0);
	if (n < 0)
		die("sendmmsg");
	return (uint64_t)n * o->segments;
}

void datagrams_send(const struct options *o)
{
	const struct datagram_command count = { .code = COMMAND_COUNT };
	uint64_t sent = 0, before = 0, all = 0, arrived = 0;
	int s[SOCKETS_MAX], phase;
	struct window w;
	uint32_t turn = 0;

	prepare_messages(DATAGRAM_BYTES * o->segments);
	for (uint32_t i = 0; i < o->connections; i++) {
		s[i] = datagrams_open(o, DATAGRAM_SINK, 0);
		datagrams_timeout(s[i], ANSWER_MS);
		before += datagrams_ask(s[i], count);
		if (o->segments > 1)
			set_udp(s[i], UDP_SEGMENT, DATAGRAM_BYTES);
	}
	window_open(&w, o);
	while ((phase = window_step(&w, now_ns())) != 2) {
		if (phase == 1)
			sent = 0;
		for (unsigned i = 0; i < 16; i++) {
			uint64_t n = send_some(o, s[turn++ % o->connections], all);

			sent += n;
			all += n;
		}
	}
	for (uint32_t i = 0; i < o->connections; i++) {
		if (o->segments > 1)
			set_udp(s[i], UDP_SEGMENT, 0);
		arrived += datagrams_ask(s[i], count);
		net_api.close(s[i]);
	}
	printf("{\"operations\": %" PRIu64 ", \"delivered\": %.0f, ", sent,
	       (double)sent * ((double)(arrived - before) / (double)all));
	sample_print(&w.from, &w.to);
	printf(", \"checked\": \"datagrams counted by the peer\"}\n");
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

bool datagrams_account(struct received *r, const uint8_t *at, size_t bytes)
{
	uint64_t number;

	memcpy(&number, at, sizeof(number));
	if (bytes % DATAGRAM_BYTES || !bytes)
		return false; /* an answer */
	if (number < r->next)
		die_wrong("a datagram that comes again, or late, number", number);
	r->count += bytes / DATAGRAM_BYTES;
	r->next = number + bytes / DATAGRAM_BYTES;
	return true;
}

/* Datagrams received by one call; -1: EAGAIN. */
static long receive_some(const struct options *o, int s, struct received *r, int flags)
{
	uint64_t before = r->count;
	int n;

	if (o->batch == 1) {
		ssize_t bytes = net_api.recv(s, data[0], sizeof(data[0]), flags);

		if (bytes < 0 && errno == EAGAIN)
			return -1;
		if (bytes < 0)
			die("recv");
		datagrams_account(r, data[0], (size_t)bytes);
		return (long)(r->count - before);
	}
	n = net_api.recvmmsg(s, messages, o->batch, flags | MSG_WAITFORONE);
	if (n < 0 && errno == EAGAIN)
		return -1;
	if (n < 0)
		die("recvmmsg");
	for (int i = 0; i < n; i++)
		datagrams_account(r, data[i], messages[i].msg_len);
	return (long)(r->count - before);
}

static void receive_round(const struct options *o, int *s, struct received *r, void *set)
{
	struct epoll_event events[SOCKETS_MAX];
	int n;

	if (o->connections == 1) {
		(void)receive_some(o, s[0], r, 0);
		return;
	}
	n = net_api.set_wait(set, events, (int)o->connections, ANSWER_MS);
	for (int i = 0; i < n; i++)
		while (receive_some(o, s[events[i].data.u32], &r[events[i].data.u32], MSG_DONTWAIT) >= 0)
			if (o->batch > 1)
				break; /* the others have had less */
}

void datagrams_receive(const struct options *o)
{
	struct datagram_command m = {
		.code = COMMAND_START, .rate = o->rate, .segments = o->segments, .round = datagrams_round()
	};
	struct received r[SOCKETS_MAX] = { 0 };
	uint64_t before = 0, lost_before = 0, count, lost;
	void *set = net_api.set_create();
	int s[SOCKETS_MAX], phase;
	struct window w;

	prepare_messages(sizeof(data[0]));
	for (uint32_t i = 0; i < o->connections; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };

		s[i] = datagrams_open(o, DATAGRAM_SOURCE, 0);
		datagrams_timeout(s[i], ANSWER_MS);
		if (net_api.set_ctl(set, EPOLL_CTL_ADD, s[i], &event))
			die("epoll_ctl");
		if (o->segments > 1)
			set_udp(s[i], UDP_GRO, 1);
	}
	for (uint32_t i = 0; i < o->connections; i++)
		if (net_api.send(s[i], &m, sizeof(m), 0) != (ssize_t)sizeof(m))
			die("send");
	window_open(&w, o);
	for (;;) {
		phase = window_step(&w, now_ns());
		if (phase) {
			count = lost = 0;
			for (uint32_t i = 0; i < o->connections; i++) {
				count += r[i].count;
				lost += r[i].next - r[i].count;
			}
			if (phase == 2)
				break;
			before = count;
			lost_before = lost;
		}
		receive_round(o, s, r, set);
	}
	m.code = COMMAND_STOP;
	datagrams_ask(s[0], m);
	printf("{\"operations\": %" PRIu64 ", \"lost\": %" PRIu64 ", ", count - before, lost - lost_before);
	sample_print(&w.from, &w.to);
	printf(", \"checked\": \"the number of each\"}\n");
	net_api.set_destroy(set);
	for (uint32_t i = 0; i < o->connections; i++)
		net_api.close(s[i]);
}

/* --- without loss ------------------------------------------------------------------------------------------------- */

/* Datagrams a second at which all have come, of those that were to come in STEP_S; 0: some have not. It is less than
 * was asked for where the peer is no faster. */
static uint32_t all_come(const struct options *o, int s, uint32_t rate, uint64_t *received)
{
	struct datagram_command m = { .code = COMMAND_START, .rate = rate, .segments = 1, .round = datagrams_round() };
	struct received r = { 0 };
	struct options batched = *o;
	uint64_t begun = 0, wanted = (uint64_t)(rate * STEP_S);

	m.total = (uint32_t)wanted;
	batched.batch = BATCH_MAX;
	if (net_api.send(s, &m, sizeof(m), 0) != (ssize_t)sizeof(m))
		die("send");
	while (r.next < wanted) {
		if (receive_some(&batched, s, &r, 0) >= 0) {
			if (!begun)
				begun = now_ns();
			continue;
		}
		m.code = r.next ? COMMAND_COUNT : COMMAND_START; /* it may be START that was lost */
		if (datagrams_ask(s, m) == wanted)
			break; /* the last were lost */
	}
	*received += r.count;
	if (r.count != wanted)
		return 0;
	return (uint32_t)((double)wanted / ((double)(now_ns() - begun) / 1e9));
}

void datagrams_lossless(const struct options *o)
{
	uint32_t good = 0, bad = 0, rate = RATE_MIN, reached;
	int s = datagrams_open(o, DATAGRAM_SOURCE, 0);
	uint64_t received = 0;
	struct sample from, to;

	prepare_messages(sizeof(data[0]));
	datagrams_timeout(s, ANSWER_MS);
	sample_take(&from);
	while ((!bad || bad - good > good / 16) && rate < RATE_MAX) {
		reached = all_come(o, s, rate, &received);
		if (!reached) /* another program may have had the core */
			reached = all_come(o, s, rate, &received);
		if (!reached)
			bad = rate;
		else if (reached > good)
			good = reached < rate ? reached : rate;
		if ((bad && !good) || (reached && reached < rate - rate / 8))
			break; /* the peer sends no faster */
		rate = bad ? good + (bad - good) / 2 : rate + rate / 2;
	}
	sample_take(&to);
	printf("{\"operations\": %" PRIu64 ", \"lossless_rate\": %u, ", received, good);
	sample_print(&from, &to);
	printf(", \"checked\": \"the number of each\"}\n");
	net_api.close(s);
}
