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
 * Three hosts on two workers share listeners and hand connections over. The workers' rounds are run in turns, without
 * threads, which is why it includes worker.c; either may stop and start again while the other goes on.
 */
#include "../../dpu_proxy/native/worker.c"
#include "../../dpu_proxy/native/pushed.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "memory_queue.h"
#include "ulp/config.h"
#include "steps.h"

#define PEERS 8u
#define IDS 16u
#define HOSTS 3u
#define WORKERS 2u
#define KEYS 4u

/* --- the scene ------------------------------------------------------------------------------------------------------- */

struct host {
	struct memory_queue *queue;
	struct channel *channel;
	struct xts_link link;      /* the host's */
	uint32_t ids[IDS];         /* the proxy's identifiers, as the host learned them */
	uint32_t id_count;
};

struct scene {
	struct xts_worker workers[WORKERS];
	struct host hosts[HOSTS];  /* the first on the first worker, the others on the second */
	struct host *host;         /* whose turn it is */
	uint16_t listen_port;
	int peers[PEERS];
};

static int server_fd = -1; /* lives as long as the process */
static uint16_t server_port;

static uint32_t worker_of(const struct scene *s, const struct host *h)
{
	return h == &s->hosts[0] ? 0 : 1;
}

static void host_pump(struct host *h)
{
	uint8_t frame[128];
	size_t bytes;

	while ((bytes = xts_link_control(&h->link, frame, h->channel->worker->now_ns)))
		pipe_put(&h->queue->in, frame, (uint32_t)bytes);
}

static void host_start(struct host *h, uint64_t epoch)
{
	struct xts_link_config config = {
		.role = XTS_LINK_HOST, .frame_window = WINDOW, .largest_message = LARGEST, .epoch = epoch,
		.features = XTS_FEATURE_SHARE | XTS_FEATURE_ULP,
	};

	memcpy(config.local_mac, host_mac, 6);
	memcpy(config.peer_mac, proxy_mac, 6);
	ENSURE(!xts_link_init(&h->link, &config, h->channel->worker->now_ns));
	h->id_count = 0;
	host_pump(h);
}

/* Remembers what a reply tells: all but RECV and PARK_ACK begin with the proxy's identifier. */
static void learn(struct scene *s, const struct xts_head *head, const uint8_t *frame)
{
	if (head->type == XTS_REPLY_RECV || head->type == XTS_REPLY_RECV_PDU || head->type == XTS_REPLY_PARK_ACK)
		return;
	s->host->ids[s->host->id_count++ % IDS] = xts_get32(frame + XTS_HEAD_BYTES);
	if (head->type == XTS_REPLY_LISTEN_ACK && !head->error)
		s->listen_port = xts_get16(frame + XTS_HEAD_BYTES + 8);
}

static void host_receive(struct scene *s, unsigned count)
{
	struct host *h = s->host;
	struct memory_frame f;

	while (count-- && pipe_get(&h->queue->out, &f)) {
		struct xts_head head;

		if (xts_link_receive(&h->link, f.data, f.bytes, f.bytes, h->channel->worker->now_ns, &head) ==
		    XTS_LINK_DELIVER) {
			learn(s, &head, f.data);
			xts_link_recycled(&h->link);
		}
		free(f.data);
	}
	host_pump(h);
}

static struct xts_tenant *tenant; /* of all hosts, so that its limits are in the way soon */

static void tenant_open(void)
{
	struct xts_tenant_config config = {
		.name = "fuzz", .window_bytes = 1u << 17, .window_bytes_max = 1u << 18,
		.limit = { [XTS_USE_CONNECTIONS] = 12, [XTS_USE_LISTENERS] = 4, [XTS_USE_SPILL_BYTES] = 2u << 20,
			   [XTS_USE_ULP_BYTES] = 1u << 16, [XTS_USE_KEPT] = 6, [XTS_USE_KEPT_BYTES] = 1u << 20,
			   [XTS_USE_ORPHANS] = 3,
			   [XTS_USE_ORPHAN_BYTES] = 1u << 18, [XTS_USE_NAMES] = 2, [XTS_USE_HANDSHAKES] = 8, [XTS_USE_DESCRIPTORS] = 100,
			   [XTS_USE_SOCKET_BYTES] = 1u << 30 },
	};

	tenant = xts_tenant_new(&config);
	ENSURE(tenant);
}

static void check_offers(const struct connection *l)
{
	uint32_t offers = 0;

	if (l->state != CONNECTION_LISTENER)
		return;
	for (const struct list *n = l->offers.next; n != &l->offers; n = n->next, offers++) {
		const struct connection *c = list_entry(n, struct connection, offers);

		ENSURE(c->listener == l && c->announced && c->channel == l->channel);
	}
	ENSURE(offers == l->offer_count);
}

/* What waits is what the runs say. */
static void check_pushed(const struct connection *c)
{
	const struct pushed *p = c->pushed;
	uint32_t bytes = 0, pdus = 0;

	if (!p)
		return;
	ENSURE(p->connection == c);
	for (uint32_t i = 0; i < p->run_count; i++) {
		const struct run *r = &p->runs[(p->run_first + i) & (p->run_room - 1)];

		bytes += r->bytes;
		pdus += r->mark.pdu;
	}
	ENSURE(bytes == c->spill.bytes && pdus == p->run_pdus);
	ENSURE(!p->ready || p->started);
	ENSURE(!p->handshaking || (p->started && !p->ready));
}

/* What must hold between any two operations. */
static void check(struct worker_state *w)
{
	struct xts_worker_stats stats;
	const struct list *node;
	uint64_t orphan_bytes = 0;
	uint32_t orphans = 0;

	for (node = w->channels.next; node != &w->channels; node = node->next) {
		const struct channel *ch = list_entry(node, struct channel, member);
		uint64_t ulp_bytes = 0;

		ENSURE(ch->reply_count <= WINDOW);
		ENSURE(ch->batch_used == 0);
		for (const struct list *n = ch->connections.next; n != &ch->connections; n = n->next) {
			const struct connection *c = list_entry(n, struct connection, member);

			ENSURE(c->spill.bytes <= c->window);
			ENSURE(c->held <= XTS_CREDITS_MAX);
			ENSURE(c->gathered_first == BATCH_NONE && list_empty(&c->dirty));
			ENSURE(!c->shared || c->state == CONNECTION_LISTENER);
			check_offers(c);
			check_pushed(c);
			ulp_bytes += pushed_memory(c->pushed);
			if (c->window && !ch->ending && !c->error && c->state == CONNECTION_ESTABLISHED) {
				/* The law: granted and not received + unadvertised + buffered is the window. */
				ENSURE(c->grant.window == c->window);
				ENSURE(xts_credit_buffered(&c->grant) ==
				       c->spill.bytes + (c->pushed ? c->pushed->run_pdus * XTS_PDU_CREDITS : 0));
			}
		}
		ENSURE(ch->ulp_bytes == ulp_bytes);
	}
	for (node = w->unowned.next; node != &w->unowned; node = node->next) {
		const struct unowned *u = list_entry(node, struct unowned, member);

		for (const struct list *n = u->orphans.next; n != &u->orphans; n = n->next, orphans++) {
			const struct connection *c = list_entry(n, struct connection, member);

			ENSURE(c->orphan && c->unowned == u && !c->channel && !c->window);
			orphan_bytes += c->spill.bytes;
		}
	}
	ENSURE(w->stats.orphans == orphans && w->stats.spill_bytes - orphan_bytes <= w->stats.window_bytes);
	registry_stats(w, &stats);
	ENSURE(stats.parked_connections <= tenant_used(tenant, XTS_USE_KEPT));
	ENSURE(stats.kept_listeners <= tenant_used(tenant, XTS_USE_NAMES));
	for (unsigned i = 0; i < XTS_RESOURCES; i++)
		ENSURE(i == XTS_USE_CPU_NS || tenant_used(tenant, i) <= tenant_limit(tenant, i));
}

static void rounds(struct scene *s, unsigned count)
{
	while (count--) {
		for (unsigned i = 0; i < WORKERS; i++) {
			work(&s->workers[i]);
		}
	}
	for (unsigned i = 0; i < WORKERS; i++)
		check(&s->workers[i].state);
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

static uint32_t pick_id(struct scene *s, struct input *in)
{
	uint8_t which = take(in);

	if (which < 200 && s->host->id_count)
		return s->host->ids[which % (s->host->id_count < IDS ? s->host->id_count : IDS)];
	return which < 240 ? 0 : (uint32_t)which << 20 | take(in);
}

static void put_endpoint(uint8_t *p, struct input *in)
{
	struct xts_endpoint e = { .ip_version = 4, .address = { 127, 0, 0, 1 } };
	uint8_t which = take(in);

	e.port = which & 1 ? server_port : which & 2 ? 1 : 0;
	if (which & 64)
		e.ip_version = take(in);
	if (which & 128)
		for (int i = 0; i < 16; i++)
			e.address[i] = take(in);
	xts_endpoint_put(p, &e);
}

/* Pushes that a CONNECT brings along, more or less: how many bytes they take. */
static uint32_t put_along(uint8_t *out, struct input *in)
{
	uint32_t count = take(in) % 4u, bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = 8 + take(in) % 32u;

		xts_put32(out + bytes, SIOC_PUSH_ULP_RX + take(in) % 4u);
		xts_put32(out + bytes + 4, take(in) < 250 ? length : pick_number(in));
		for (uint32_t k = 0; k < length; k++)
			out[bytes + 8 + k] = k == 7 ? take(in) % (XTS_ULP_COUNT + 1u) : k < 7 ? 0 : take(in);
		bytes += 8 + length;
	}
	return bytes;
}

/* SETSOCKOPT or GETSOCKOPT, which have one body: any level and number the kernel has, mostly a value as long as it may be. */
static uint32_t put_option(uint8_t *frame, struct input *in)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6 };
	static const uint32_t lengths[] = { 4, 4, 1, 8, 16, 40, 0, 3 };
	uint8_t how = take(in), option = take(in) % 96, value = take(in);
	uint32_t length = how < 240 ? lengths[how / 4u % 8u] : pick_number(in) % (LARGEST - XTS_SETSOCKOPT_BYTES);
	uint8_t *payload = frame + XTS_SETSOCKOPT_BYTES;
	struct xts_setsockopt m = { .xts_socket = 7, .token = value, .domain = 4, .level = levels[how % 4u],
				    .option = option, .length = length };

	_Static_assert(XTS_SETSOCKOPT_BYTES == XTS_GETSOCKOPT_BYTES, "one body for both");
	xts_setsockopt_encode(frame, &m);
	if (m.level == IPPROTO_TCP && option == TCP_CONGESTION)
		memcpy(payload, value & 1 ? "cubic" : "reno", length < 5 ? length : 4 + (value & 1u));
	else if (length)
		payload[0] = value;
	return XTS_SETSOCKOPT_BYTES + length;
}

/* The fields of a message: numbers, but for addresses and the sizes that have to fit. Returns the frame's length. */
static uint32_t put_body(struct scene *s, uint8_t type, uint8_t *frame, struct input *in)
{
	uint32_t fixed = (uint32_t)xts_type_bytes(type), payload = 0, end = fixed;

	switch (type) {
	case XTS_CMD_CONNECT:
		end = fixed - 28;
		put_endpoint(frame + end, in);
		payload = put_along(frame + fixed, in);
		xts_put32(frame + fixed - 4, payload);
		break;
	case XTS_CMD_BIND:
		end = fixed - 24;
		put_endpoint(frame + end, in);
		break;
	case XTS_CMD_SEND:
	case XTS_CMD_IOCTL:
	case XTS_CMD_GIVE_BACK:
		payload = pick_number(in) % (LARGEST - fixed);
		end = fixed - 4;
		xts_put32(frame + end, payload);
		for (uint32_t i = 0; i < payload && i < 16; i++)
			frame[fixed + i] = take(in);
		break;
	case XTS_CMD_SETSOCKOPT:
	case XTS_CMD_GETSOCKOPT:
		return put_option(frame, in);
	default:
		break;
	}
	for (uint32_t at = XTS_HEAD_BYTES; at < end; at += 4)
		xts_put32(frame + at, pick_number(in));
	if (type == XTS_CMD_SEND_PDU) {
		payload = pick_number(in) % (LARGEST - fixed);
		xts_put32(frame + 28, payload);
		if (take(in) < 128)
			xts_put32(frame + 36, take(in) % 16u); /* control_bytes, of no type */
	}
	if (type == XTS_CMD_CONNECT || (type == XTS_CMD_BIND && take(in) < 250))
		xts_put32(frame + 32, take(in) < 250 ? 4 : 6); /* domain */
	if (type == XTS_CMD_SHARE || type == XTS_CMD_PARK || type == XTS_CMD_CLAIM) {
		xts_put64(frame + 32, take(in) % KEYS);
		if (type != XTS_CMD_CLAIM)
			xts_put32(frame + 40, take(in) & 1 ? 60000 : 0); /* keep_ms */
	}
	if (type != XTS_CMD_SEND && type != XTS_CMD_SEND_PDU && type != XTS_CMD_GIVE_BACK && take(in) < 250)
		xts_put32(frame + XTS_HEAD_BYTES, 7); /* one number for all sockets of this host: calls find theirs */
	(void)s;
	return fixed + payload;
}

static void op_message(struct scene *s, struct input *in)
{
	static const uint8_t types[] = {
		XTS_CMD_SEND, XTS_CMD_SEND, XTS_CMD_CONNECT, XTS_CMD_LISTEN, XTS_CMD_NEWCONN_ACK, XTS_CMD_BIND,
		XTS_CMD_SETSOCKOPT, XTS_CMD_GETSOCKOPT, XTS_CMD_IOCTL, XTS_CMD_SHARE, XTS_CMD_SHARE, XTS_CMD_PARK,
		XTS_CMD_CLAIM, XTS_CMD_SEND_PDU, XTS_CMD_GIVE_BACK,
	};
	struct host *h = s->host;
	uint8_t frame[LARGEST] = { 0 };
	uint8_t type = types[take(in) % sizeof types], flags = take(in);
	uint32_t id = pick_id(s, in), bytes;
	uint16_t error = type == XTS_CMD_NEWCONN_ACK && flags & 1 ? EAGAIN : flags == 0x77;

	if (!xts_link_credits(&h->link))
		return;
	xts_head_encode(frame, type, flags & 0x80 ? flags : flags & 0x07, error, id);
	bytes = put_body(s, type, frame, in);
	xts_link_seal(&h->link, frame);
	pipe_put(&h->queue->in, frame, bytes);
}

/* As much data as the frame window takes, over and over: more than TCP does, as long as the peer does not read. */
static void op_burst(struct scene *s, struct input *in)
{
	uint32_t id = pick_id(s, in), times = take(in) % 64u;
	uint8_t frame[LARGEST] = { 0 };
	struct xts_send m = { .length = LARGEST - XTS_SEND_BYTES };
	struct host *h = s->host;
	struct connection *c = connection_find(h->channel, id);

	while (times-- && c && c->state == CONNECTION_ESTABLISHED && c->grant.outstanding >= m.length + 4 * LARGEST) {
		if (xts_link_credits(&h->link)) {
			xts_head_encode(frame, XTS_CMD_SEND, 0, 0, id);
			xts_send_encode(frame, &m);
			xts_link_seal(&h->link, frame);
			pipe_put(&h->queue->in, frame, sizeof frame);
		}
		rounds(s, 1);
		host_receive(s, 4);
		c = connection_find(h->channel, id);
	}
}

static void op_raw(struct scene *s, struct input *in)
{
	uint8_t frame[256] = { 0 }, how = take(in);
	uint32_t bytes = take(in);

	memcpy(frame, proxy_mac, 6);
	memcpy(frame + 6, host_mac, 6);
	xts_put16(frame + 12, XTS_ETHERTYPE);
	for (uint32_t i = 14; i < bytes; i++)
		frame[i] = take(in);
	if (how & 1)
		frame[15] = s->host->link.sent++;
	if (how & 2)
		frame[16] = s->host->link.recycled;
	pipe_put(&s->host->queue->in, frame, bytes);
}

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
	case 0: case 1:
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
	case 4: (void)!recv(*fd, buffer, sizeof buffer, MSG_DONTWAIT); break;
	case 5: (void)shutdown(*fd, SHUT_WR); break;
	case 6: peer_close(fd, true); break;
	default: peer_close(fd, false);
	}
}

/* --- set-up ---------------------------------------------------------------------------------------------------------- */

static void server_open(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int smallest = 1; /* the kernel makes 2304 bytes of it */

	server_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ENSURE(!setsockopt(server_fd, SOL_SOCKET, SO_RCVBUF, &smallest, sizeof smallest));
	ENSURE(server_fd >= 0 && !bind(server_fd, (struct sockaddr *)&address, sizeof address) && !listen(server_fd, 64));
	ENSURE(!getsockname(server_fd, (struct sockaddr *)&address, &length));
	server_port = ntohs(address.sin_port);
}

/* Connects reach this process's server only. */
static void worker_init(struct xts_worker *worker)
{
	static struct xts_policy_rule rules[2];
	struct worker_state *w = &worker->state;
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = &worker->command_watch };

	rules[0] = (struct xts_policy_rule){
		.allow = true, .action = XTS_POLICY_CONNECT, .ip_version = 4, .prefix_bits = 32, .address = { 127, 0, 0, 1 },
		.port_first = server_port, .port_last = server_port, .queue_last = UINT32_MAX,
	};
	rules[1] = (struct xts_policy_rule){
		.allow = true, .action = XTS_POLICY_LISTEN, .ip_version = 4, .prefix_bits = 8, .address = { 127, 0, 0, 1 },
		.port_last = UINT16_MAX, .queue_last = UINT32_MAX,
	};
	state_init(w);
	w->command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w->config = (struct xts_worker_config){
		.cpu = -1, .clock_ns = worker_monotonic_ns, .rules = rules, .rule_count = 2,
	};
	w->config.ulp = xts_ulp_config_new(NULL);
	ENSURE(w->config.ulp && w->epoll_fd >= 0 && !log_open(&w->log));
	worker->command_watch.kind = WATCH_COMMAND;
	worker_requests_open(worker);
	ENSURE(!epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->command_fd, &event));
}

static void host_attach(struct scene *s, struct host *h)
{
	h->queue = memory_open(false);
	ENSURE(!channel_open(&h->channel, &s->workers[worker_of(s, h)].state, &h->queue->queue, -1, 0, tenant));
	host_start(h, 1);
}

static void worker_open(struct scene *s, uint32_t index)
{
	worker_init(&s->workers[index]);
	for (unsigned i = 0; i < HOSTS; i++)
		if (worker_of(s, &s->hosts[i]) == index)
			host_attach(s, &s->hosts[i]);
}

/* All is closed: nothing is left of it. */
static void worker_close(struct scene *s, uint32_t index)
{
	struct worker_state *w = &s->workers[index].state;
	struct xts_worker_stats stats;

	for (unsigned i = 0; i < HOSTS; i++)
		ENSURE(worker_of(s, &s->hosts[i]) != index || s->hosts[i].queue->lent == 0);
	close_everything(w, 0);
	ENSURE(w->stats.connections == 0 && w->stats.listeners == 0 && w->stats.channels == 0);
	ENSURE(w->stats.spill_bytes == 0 && w->stats.window_bytes == 0 && w->stats.channels_up == 0);
	ENSURE(w->stats.ulp_bytes == 0 && w->stats.orphans == 0);
	registry_stats(w, &stats);
	ENSURE(w->stats.shared_listeners == 0 && stats.kept_listeners == 0 && stats.parked_connections == 0);
	ENSURE(!w->husks && list_empty(&w->kept) && list_empty(&w->expired) && timers_next_ns(&w->timers) == UINT64_MAX && !w->stats.ulp_handshakes);
	xts_ulp_config_release(w->config.ulp);
	close(w->epoll_fd);
	close(w->command_fd);
	log_close(&w->log);
	ENSURE(list_empty(&w->unowned) && list_empty(&w->cut));
	ENSURE(list_empty(&w->schedule.accounts) && list_empty(&w->schedule.groups));
	memset(&s->workers[index], 0, sizeof s->workers[index]);
}

static void worker_restart(struct scene *s, uint32_t index)
{
	worker_close(s, index);
	worker_open(s, index);
}

/* After the last worker: neither keys nor connections without a channel, and the tenant's account is balanced. */
static void nothing_is_kept(void)
{
	registry_lock();
	for (uint64_t key = 0; key < KEYS; key++)
		ENSURE(!registry_find(tenant, key, KEYED_LISTENER) && !registry_find(tenant, key, KEYED_PARKED));
	registry_unlock();
	for (unsigned i = 0; i < XTS_RESOURCES; i++)
		ENSURE(i == XTS_USE_CPU_NS || !tenant_used(tenant, i));
}

/* --- running a program ----------------------------------------------------------------------------------------------- */

/* A well-formed message, carried out and answered. */
static void say_with(struct scene *s, uint8_t *frame, uint8_t type, uint8_t flags, uint32_t id, uint16_t error, uint32_t bytes)
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

	xts_put32(p, c ? (uint32_t)c->received_bytes - (choice & 0x40 ? take(in) : 0) : 0);
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
	if (c->pushed && c->pushed->pdu_open)
		m.record_bytes = c->pushed->pdu_bytes;
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
	uint32_t owed = c && c->pushed ? c->pushed->owed : 0;
	struct xts_give_back m = { .length = owed < most ? owed : most };

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
	case 0: op_push(s, in, id); break;
	case 1: op_send_pdu(s, in, id); break;
	case 2: op_give_back(s, in, id); break;
	case 3: op_ioctl(s, SIOC_PEEK_MODE, id, 1, (uint32_t)(take(in) % 3u) << 24); break;
	case 4: op_ioctl(s, SIOC_END_PEEK_MODE, id, 4, c && c->received_bytes ? take(in) % (uint32_t)c->received_bytes : 0); break;
	case 5:
		w->now_ns += UINT64_C(11000000000);
		(void)timers_run(&w->timers, w->now_ns, UINT32_MAX);
		(void)turns_carry_out(w);
		w->now_ns = worker_monotonic_ns();
		free_dead(w);
		break;
	default: op_ioctl(s, SIOC_ULP_LIST + take(in) % 3u, id, 8, pick_number(in)); break;
	}
}

/* What it takes several messages without a mistake to reach: shared listeners, offers, connections that change hands. */
static void op_hand_over(struct scene *s, struct input *in, uint8_t which)
{
	struct xts_connect connect = { .xts_socket = 7, .post_credits = 1u << 16, .domain = 4,
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
		xts_listen_encode(frame, &(struct xts_listen){ .xts_socket = 7, .domain = 4, .backlog = 8, .post_credits = choice });
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
	registry_expire(w, false);
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

static void op_other(struct scene *s, struct input *in, uint8_t which)
{
	struct worker_state *w = &s->workers[worker_of(s, s->host)].state;

	switch (which) {
	case 7: host_start(s->host, 2u + take(in)); break;
	case 8: op_timers(w); break;
	case 9: op_expire(w); break;
	case 10: worker_drain(w); break;
	case 11: worker_restart(s, worker_of(s, s->host)); break;
	case 12: case 13: case 14: s->host = &s->hosts[which - 12]; break;
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
	case 0: case 1: op_message(s, in); break;
	case 2: op_peer(s, in); break;
	case 3: rounds(s, 1); host_receive(s, 1 + op / 8); break;
	case 4: rounds(s, 1 + op / 64); break;
	case 5: host_receive(s, 1 + op / 8); break;
	case 6: op_raw(s, in); break;
	default: op_other(s, in, op / 8);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct scene scene;
	struct input in = { data, bytes };
	int left;

	if (server_fd < 0)
		server_open();
	if (!tenant)
		tenant_open();
	memset(&scene, 0, sizeof scene);
	for (unsigned i = 0; i < PEERS; i++)
		scene.peers[i] = -1;
	for (unsigned i = 0; i < WORKERS; i++)
		worker_open(&scene, i);
	rounds(&scene, 1);
	for (unsigned i = HOSTS; i--;) {
		scene.host = &scene.hosts[i];
		host_receive(&scene, 1);
		ENSURE(scene.host->link.state == XTS_LINK_UP && scene.host->link.features == (XTS_FEATURE_SHARE | XTS_FEATURE_ULP));
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
