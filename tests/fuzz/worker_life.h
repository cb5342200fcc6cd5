/*
 * The beginning and the end of workers, and of the server they may connect to. What an end must leave behind: nothing.
 */
#ifndef XTS_FUZZ_WORKER_LIFE_H
#define XTS_FUZZ_WORKER_LIFE_H

#include "worker_checks.h"

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
		.allow = true,
		.action = XTS_POLICY_CONNECT,
		.ip_version = 4,
		.prefix_bits = 32,
		.address = { 127, 0, 0, 1 },
		.port_first = server_port,
		.port_last = server_port,
		.queue_last = UINT32_MAX,
	};
	rules[1] = (struct xts_policy_rule){
		.allow = true,
		.action = XTS_POLICY_LISTEN,
		.ip_version = 4,
		.prefix_bits = 8,
		.address = { 127, 0, 0, 1 },
		.port_last = UINT16_MAX,
		.queue_last = UINT32_MAX,
	};
	state_init(w);
	w->command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w->config = (struct xts_worker_config){
		.cpu = -1,
		.clock_ns = worker_monotonic_ns,
		.rules = rules,
		.rule_count = 2,
		.names = { .default_allow = true,
			   .resolver_count = 1,
			   .resolvers = { { .port = server_port, .ip_version = 4, .address = { 127, 0, 0, 1 } } },
			   .timeout_ms = 500,
			   .attempts = 2 },
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

	for (unsigned i = 0; i < HOSTS; i++) {
		const struct host *h = &s->hosts[i];

		/* A message that its turns had no time for may still have its frame. */
		ENSURE(worker_of(s, h) != index || h->queue->lent == h->channel->continuation.has_frame);
	}
	close_everything(w, 0);
	ENSURE(w->stats.connections == 0 && w->stats.listeners == 0 && w->stats.channels == 0);
	ENSURE(w->stats.spill_bytes == 0 && w->stats.window_bytes == 0 && w->stats.channels_up == 0);
	ENSURE(w->stats.ulp_bytes == 0 && w->stats.orphans == 0);
	registry_stats(w, &stats);
	ENSURE(w->stats.shared_listeners == 0 && stats.kept_listeners == 0 && stats.parked_connections == 0);
	ENSURE(!w->stale && list_empty(&w->kept));
	ENSURE(timers_next_ns(&w->timers) == UINT64_MAX && !w->stats.ulp_handshakes);
	xts_ulp_config_release(w->config.ulp);
	close(w->epoll_fd);
	close(w->command_fd);
	free_scratch(w);
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

#endif
