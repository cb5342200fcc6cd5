/*
 * Multicast: a group that the peer sends to at a given rate, received by as many sockets as there are members; and what
 * it costs to be a member of other groups, to which nothing is sent. The operations are datagrams, each counted for
 * each socket that has got it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "datagram_client.h"

#define GROUPS_A_SOCKET 20u /* as many as Linux allows: net.ipv4.igmp_max_memberships */
#define IDLE_PORT (DATAGRAM_GROUP_PORT + 1)

static void join(int s, const struct options *o, struct in_addr group)
{
	struct ip_mreq m = { .imr_multiaddr = group };

	if (inet_pton(AF_INET, o->interface, &m.imr_interface) != 1)
		errno = EINVAL;
	else if (!net_api.setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)))
		return;
	die("IP_ADD_MEMBERSHIP");
}

static int bound(uint16_t port)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(port) };
	int s = net_api.socket(AF_INET, SOCK_DGRAM, 0), on = 1;

	if (s < 0 || net_api.setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    net_api.bind(s, (struct sockaddr *)&local, sizeof(local)))
		die("bind");
	return s;
}

/* Members of groups that nobody sends to. They are there until the program ends. */
static void join_idle_groups(const struct options *o)
{
	int s = -1;

	for (uint32_t i = 0; i < o->groups; i++) {
		if (i % GROUPS_A_SOCKET == 0)
			s = bound(IDLE_PORT);
		join(s, o, (struct in_addr){ htonl(0xef630000u + i) }); /* 239.99.0.0 */
	}
}

static void receive_what_is_there(int s, struct received *r)
{
	uint8_t data[DATAGRAM_BYTES + 1];
	ssize_t n;

	while ((n = net_api.recv(s, data, sizeof(data), MSG_DONTWAIT)) >= 0)
		datagrams_account(r, data, (size_t)n);
	if (errno != EAGAIN)
		die("recv");
}

static void receive(void *set, const int *s, struct received *r)
{
	struct epoll_event events[SOCKETS_MAX];
	int n = net_api.set_wait(set, events, SOCKETS_MAX, ANSWER_MS);

	for (int i = 0; i < n; i++)
		receive_what_is_there(s[events[i].data.u32], &r[events[i].data.u32]);
}

static void print(const struct options *o, const struct window *w, const struct received *from, const struct received *to)
{
	uint64_t count = 0, lost = 0;

	for (uint32_t i = 0; i < o->connections; i++) {
		count += to[i].count - from[i].count;
		lost += to[i].next - to[i].count - (from[i].next - from[i].count);
	}
	printf("{\"operations\": %" PRIu64 ", \"lost\": %" PRIu64 ", ", count, lost);
	sample_print(&w->from, &w->to);
	printf(", \"checked\": \"the number of each\"}\n");
}

void datagrams_group(const struct options *o)
{
	struct datagram_command m = {
		.code = COMMAND_START, .rate = o->rate, .segments = 1, .round = datagrams_round(), .group = 1
	};
	struct received r[SOCKETS_MAX] = { 0 }, before[SOCKETS_MAX] = { 0 };
	int s[SOCKETS_MAX], phase, control = datagrams_open(o, DATAGRAM_SOURCE, 0);
	void *set = net_api.set_create();
	struct in_addr group;
	struct window w;

	(void)inet_pton(AF_INET, DATAGRAM_GROUP, &group);
	join_idle_groups(o);
	for (uint32_t i = 0; i < o->connections; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };

		s[i] = bound(DATAGRAM_GROUP_PORT);
		join(s[i], o, group);
		if (net_api.set_ctl(set, EPOLL_CTL_ADD, s[i], &event))
			die("epoll_ctl");
	}
	datagrams_timeout(control, ANSWER_MS);
	datagrams_ask(control, m);
	window_open(&w, o);
	while ((phase = window_step(&w, now_ns())) != 2) {
		if (phase == 1)
			memcpy(before, r, sizeof(before));
		receive(set, s, r);
	}
	m.code = COMMAND_STOP;
	datagrams_ask(control, m);
	print(o, &w, before, r);
	net_api.set_destroy(set);
	for (uint32_t i = 0; i < o->connections; i++)
		net_api.close(s[i]);
	net_api.close(control);
}
