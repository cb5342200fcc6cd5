/*
 * libFuzzer target: the proxy's worker, fed frames through a queue in memory, with TCP peers on loopback.
 *
 * The input is a program of one-byte operations with their arguments: messages with fields of the input's choosing under
 * a proper link, raw frames, new epochs, and what TCP peers do. Frames lie in memory of exactly their length, so that
 * AddressSanitizer sees a step beyond. Whatever the program does: limits hold after every operation, each frame is
 * recycled once, and when all is closed nothing is left.
 *
 * Protocols are pushed, with parameters that mostly fit, onto anything at any time; PDUs come in parts, bytes are given back.
 *
 * Datagram sockets send to a peer at the server's port, which answers. Names are asked of the same peer.
 *
 * Three hosts on two workers share listeners and hand connections over. The workers' rounds are run in turns, without
 * threads, which is why it includes worker.c (worker_scene.h); either may stop and start again while the other goes on.
 */
#include "connection/connection_walk.h"
#include "worker_life.h"
#include "worker_names.h"

/* --- TCP peers ---------------------------------------------------------------------------------------------------- */

static void peer_close(int *fd, bool reset)
{
	struct linger now = { .l_onoff = 1 };

	if (*fd < 0)
		return;
	if (reset)
		setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(*fd);
	*fd = -1;
}

static void op_peer(struct scene *s, struct input *in)
{
	static uint8_t buffer[65536];
	uint8_t which = take(in), some = 0;
	int *fd = &s->peers[which % PEERS];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	switch (which / PEERS % 8) {
	case 0:
	case 1:
		peer_close(fd, true);
		*fd = accept4(server_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		break;
	case 2:
		if (!s->listen_port)
			break;
		peer_close(fd, true);
		*fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		to.sin_port = htons(s->listen_port);
		(void)!connect(*fd, (struct sockaddr *)&to, sizeof to);
		break;
	case 3:
		some = take(in);
		for (unsigned i = 3; i < 64; i += 4)
			buffer[i] = some; /* for LENGTH_PREFIXED PDUs of this length */
		(void)!send(*fd, buffer, pick_number(in) % sizeof buffer, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 4:
		(void)!recv(*fd, buffer, sizeof buffer, MSG_DONTWAIT);
		break;
	case 5:
		(void)shutdown(*fd, SHUT_WR);
		break;
	case 6:
		peer_close(fd, true);
		break;
	default:
		peer_close(fd, false);
	}
}

/* --- running a program -------------------------------------------------------------------------------------------- */

/* A well-formed message, carried out and answered. */
static void say_with(struct scene *s, uint8_t *frame, uint8_t type, uint8_t flags, uint32_t id, uint16_t error,
		     uint32_t bytes)
{
	if (!xts_link_credits(&s->host->link))
		return;
	xts_head_encode(frame, type, flags, error, id);
	xts_link_seal(&s->host->link, frame);
	pipe_put(&s->host->queue->in, frame, bytes);
	rounds(s, 1);
	host_receive(s, WINDOW);
}

static void say(struct scene *s, uint8_t *frame, uint8_t type, uint32_t id, uint16_t error, uint32_t bytes)
{
	say_with(s, frame, type, 0, id, error, bytes);
}

/* A push that is well-formed up to its attributes, which mostly are, too. */
static void op_push(struct scene *s, struct input *in, uint32_t id)
{
	uint8_t frame[LARGEST] = { 0 }, *p = frame + XTS_IOCTL_BYTES, choice = take(in), count = take(in) % 4u;
	struct xts_ioctl m = { .xts_socket = 7, .domain = 4, .request = SIOC_PUSH_ULP_RX + choice % 3u, .length = 8 };
	const struct connection *c = connection_find(s->host->channel, id);

	xts_put32(p, c ? (uint32_t)c->tcp.received_bytes - (choice & 0x40 ? take(in) : 0) : 0);
	xts_put16(p + 4, !(choice & 0x80));
	xts_put16(p + 6, take(in) % (XTS_ULP_COUNT + 1u));
	while (count--) {
		uint16_t bytes = (uint16_t[]){ 0, 1, 2, 4, 8 }[take(in) % 5u];

		xts_put16(p + m.length, take(in) % 16u);
		xts_put16(p + m.length + 2, bytes);
		for (uint16_t i = 0; i < bytes; i++)
			p[m.length + 4 + i] = i + 1 == bytes ? take(in) : 0;
		m.length += 4u + bytes;
	}
	xts_ioctl_encode(frame, &m);
	say(s, frame, XTS_CMD_IOCTL, id, 0, XTS_IOCTL_BYTES + m.length);
}

static void op_send_pdu(struct scene *s, struct input *in, uint32_t id)
{
	uint8_t frame[LARGEST] = { 0 }, choice = take(in);
	struct xts_send_pdu m = { .length = pick_number(in) % (LARGEST - XTS_SEND_PDU_BYTES) };
	const struct connection *c = connection_find(s->host->channel, id);

	if (!c || c->state != CONNECTION_ESTABLISHED || c->grant.outstanding < m.length + XTS_PDU_CREDITS)
		return;
	if (c->tcp.pushed && c->tcp.pushed->pdu_open)
		m.record_bytes = c->tcp.pushed->pdu_bytes;
	else if (choice & 2)
		m.record_bytes = m.length + (choice & 1 ? choice : 0);
	xts_send_pdu_encode(frame, &m);
	say_with(s, frame, XTS_CMD_SEND_PDU, choice & 1 ? XTS_FLAG_MORE : 0, id, 0, XTS_SEND_PDU_BYTES + m.length);
}

static void op_give_back(struct scene *s, struct input *in, uint32_t id)
{
	uint8_t frame[LARGEST] = { 0 };
	uint32_t most = 1 + pick_number(in) % (LARGEST - XTS_GIVE_BACK_BYTES - 1);
	const struct connection *c = connection_find(s->host->channel, id);
	uint32_t left = c && c->tcp.pushed ? c->tcp.pushed->give_back_left : 0;
	struct xts_give_back m = { .length = left < most ? left : most };

	if (!m.length)
		return;
	xts_give_back_encode(frame, &m);
	say(s, frame, XTS_CMD_GIVE_BACK, id, 0, XTS_GIVE_BACK_BYTES + m.length);
}

static void op_ioctl(struct scene *s, uint32_t request, uint32_t id, uint32_t length, uint32_t value)
{
	uint8_t frame[LARGEST] = { 0 };
	struct xts_ioctl m = { .xts_socket = 7, .domain = 4, .request = request, .length = length };

	xts_ioctl_encode(frame, &m);
	xts_put32(frame + XTS_IOCTL_BYTES, value);
	say(s, frame, XTS_CMD_IOCTL, id, 0, XTS_IOCTL_BYTES + length);
}

static void op_ulp(struct scene *s, struct input *in, uint8_t which)
{
	struct worker_state *w = &s->workers[worker_of(s, s->host)].state;
	uint32_t id = pick_id(s, in);
	const struct connection *c = connection_find(s->host->channel, id);

	switch (which) {
	case 0:
		op_push(s, in, id);
		break;
	case 1:
		op_send_pdu(s, in, id);
		break;
	case 2:
		op_give_back(s, in, id);
		break;
	case 3:
		op_ioctl(s, SIOC_PEEK_MODE, id, 1, (uint32_t)(take(in) % 3u) << 24);
		break;
	case 4:
		op_ioctl(s, SIOC_END_PEEK_MODE, id, 4,
			 c && c->tcp.received_bytes ? take(in) % (uint32_t)c->tcp.received_bytes : 0);
		break;
	case 5:
		w->now_ns += UINT64_C(11000000000);
		(void)timers_run(&w->timers, w->now_ns, UINT32_MAX);
		(void)round_carry_out(w);
		w->now_ns = worker_monotonic_ns();
		free_dead(w);
		break;
	default:
		op_ioctl(s, SIOC_ULP_LIST + take(in) % 3u, id, 8, pick_number(in));
		break;
	}
}

/* What it takes several messages without a mistake to reach: shared listeners, offers, connections that change hands. */
static void op_hand_over(struct scene *s, struct input *in, uint8_t which)
{
	struct xts_connect connect = { .xts_socket = 7,
				       .post_credits = 1u << 16,
				       .domain = 4,
				       .peer = { .port = server_port, .ip_version = 4, .address = { 127, 0, 0, 1 } } };
	struct xts_bind bind = { .xts_socket = 7, .domain = 4, .local = { .ip_version = 4, .address = { 127, 0, 0, 1 } } };
	uint8_t frame[LARGEST] = { 0 }, choice = take(in);
	uint32_t id = pick_id(s, in);
	uint64_t key = choice % KEYS;
	uint32_t keep_ms = choice & 0x10 ? 60000 : 0;

	switch (which) {
	case 0:
		xts_connect_encode(frame, &connect);
		say(s, frame, XTS_CMD_CONNECT, choice & 0x20 ? id : 0, 0, XTS_CONNECT_BYTES);
		break;
	case 1:
		bind.local.port = choice & 1 ? s->listen_port : 0;
		xts_bind_encode(frame, &bind);
		say(s, frame, XTS_CMD_BIND, 0, 0, XTS_BIND_BYTES);
		break;
	case 2:
		xts_listen_encode(frame, &(struct xts_listen){
						 .xts_socket = 7, .domain = 4, .backlog = 8, .post_credits = choice });
		say(s, frame, XTS_CMD_LISTEN, id, 0, XTS_LISTEN_BYTES);
		break;
	case 3:
		xts_share_encode(frame, &(struct xts_share){ .xts_socket = 7, .key = key, .keep_ms = keep_ms });
		say(s, frame, XTS_CMD_SHARE, id, 0, XTS_SHARE_BYTES);
		break;
	case 4:
		xts_send_encode(frame, &(struct xts_send){ .post_credits = choice });
		say(s, frame, XTS_CMD_SEND, id, 0, XTS_SEND_BYTES);
		break;
	case 5:
		xts_newconn_ack_encode(frame, &(struct xts_newconn_ack){ .xts_socket = 7, .post_credits = 1u << 16 });
		say(s, frame, XTS_CMD_NEWCONN_ACK, id, choice & 1 ? EAGAIN : 0, XTS_NEWCONN_ACK_BYTES);
		break;
	case 6:
		xts_park_encode(frame, &(struct xts_park){ .xts_socket = 7, .key = key, .keep_ms = keep_ms });
		say(s, frame, XTS_CMD_PARK, id, 0, XTS_PARK_BYTES);
		break;
	default:
		xts_claim_encode(frame, &(struct xts_claim){ .xts_socket = 7, .key = key, .post_credits = 1u << 16 });
		say(s, frame, XTS_CMD_CLAIM, 0, 0, XTS_CLAIM_BYTES);
	}
}

/* Time passes for what nobody holds. */
static void op_expire(struct worker_state *w)
{
	w->now_ns += UINT64_C(61000000000);
	registry_expire(w);
	w->now_ns = worker_monotonic_ns();
	free_dead(w);
}

static void op_timers(struct worker_state *w)
{
	w->now_ns += UINT64_C(1000000000);
	(void)timers_run(&w->timers, w->now_ns, 64);
	w->now_ns = worker_monotonic_ns();
	free_dead(w);
}

static void op_drain(struct worker_state *w)
{
	struct walk at = { 0 };

	while (worker_drain(w, &at))
		;
}

static void op_other(struct scene *s, struct input *in, uint8_t which)
{
	struct worker_state *w = &s->workers[worker_of(s, s->host)].state;

	switch (which) {
	case 7:
		host_start(s->host, 2u + take(in));
		break;
	case 8:
		op_timers(w);
		break;
	case 9:
		op_expire(w);
		break;
	case 10:
		op_drain(w);
		break;
	case 11:
		worker_restart(s, worker_of(s, s->host));
		break;
	case 15:
		op_datagram(s, in);
		break;
	case 17:
		op_take(s, in);
		break;
	case 18:
		op_name(s, in);
		break;
	case 12:
	case 13:
	case 14:
		s->host = &s->hosts[which - 12];
		break;
	default:
		if (which < 7)
			op_ulp(s, in, which);
		else if (which >= 24)
			op_hand_over(s, in, which - 24);
		else if (which >= 16)
			op_burst(s, in);
		else
			rounds(s, 1);
	}
}

static void step(struct scene *s, struct input *in)
{
	uint8_t op = take(in);

	switch (op % 8) {
	case 0:
	case 1:
		op_message(s, in);
		break;
	case 2:
		op_peer(s, in);
		break;
	case 3:
		rounds(s, 1);
		host_receive(s, 1 + op / 8);
		break;
	case 4:
		rounds(s, 1 + op / 64);
		break;
	case 5:
		if (op >= 192)
			(void)xts_link_catch_up(&s->host->link);
		host_receive(s, 1 + op / 8);
		break;
	case 6:
		op_raw(s, in);
		break;
	default:
		op_other(s, in, op / 8);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct scene scene;
	struct input in = { data, bytes };
	int left;

	if (server_fd < 0) {
		server_open();
		datagram_peer_open();
	}
	tenant_open(bytes & 1);
	memset(&scene, 0, sizeof scene);
	for (unsigned i = 0; i < PEERS; i++)
		scene.peers[i] = -1;
	for (unsigned i = 0; i < WORKERS; i++)
		worker_open(&scene, i);
	rounds(&scene, 1);
	for (unsigned i = HOSTS; i--;) {
		scene.host = &scene.hosts[i];
		host_receive(&scene, 1);
		ENSURE(scene.host->link.state == XTS_LINK_UP && scene.host->link.features == SCENE_FEATURES);
	}
	while (in.bytes) {
		step_begins(&in, data);
		step(&scene, &in);
	}
	steps_ran(data, bytes);
	rounds(&scene, 2);
	for (unsigned i = 0; i < PEERS; i++)
		peer_close(&scene.peers[i], true);
	for (unsigned i = 0; i < WORKERS; i++)
		worker_close(&scene, i);
	nothing_is_kept();
	while ((left = accept4(server_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		peer_close(&left, true);
	return 0;
}
