/*
 * A worker of the proxy as the other end of a pair (tests/beds/pair.py), with a queue in memory and the test's clock.
 * Its rounds are made one at a time, which is why this includes worker.c. Its TCP is the kernel's, on the loopback
 * device.
 */
#include "../../../dpu_proxy/native/loop/worker.c"

#include "memory_queue.h"
#include "ulp/config.h"

static struct xts_worker worker;
static struct xts_tenant *tenant;
static struct memory_queue *queue;
static struct channel *channel;
static uint64_t clock_now_ns;

static uint64_t pair_clock_ns(void)
{
	return clock_now_ns;
}

void pair_worker_start(uint64_t now_ns)
{
	struct xts_tenant_config costs = { .name = "pair",
					   .weight = 1,
					   .window_bytes = 1u << 16,
					   .window_bytes_max = 1u << 16,
					   .orphan_timeout_ms = 205000 };
	static const struct xts_policy_rule loopback[2] = {
		{ .allow = true,
		  .action = XTS_POLICY_CONNECT,
		  .ip_version = 4,
		  .prefix_bits = 8,
		  .address = { 127 },
		  .port_last = UINT16_MAX,
		  .queue_last = UINT32_MAX },
		{ .allow = true,
		  .action = XTS_POLICY_LISTEN,
		  .ip_version = 4,
		  .prefix_bits = 8,
		  .address = { 127 },
		  .port_last = UINT16_MAX,
		  .queue_last = UINT32_MAX },
	};
	struct worker_state *w = &worker.state;
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = &worker.command_watch };

	clock_now_ns = now_ns;
	memset(&worker, 0, sizeof worker);
	state_init(w);
	w->now_ns = now_ns;
	w->command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w->config = (struct xts_worker_config){ .cpu = -1, .clock_ns = pair_clock_ns, .rules = loopback, .rule_count = 2 };
	w->config.ulp = xts_ulp_config_new(NULL);
	for (unsigned i = 0; i < XTS_RESOURCES; i++)
		costs.limit[i] = 1u << 30;
	tenant = xts_tenant_new(&costs);
	ENSURE(tenant && w->config.ulp && w->epoll_fd >= 0 && !log_open(&w->log));
	worker.command_watch.kind = WATCH_COMMAND;
	worker_requests_open(&worker);
	ENSURE(!epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->command_fd, &event));
}

void pair_worker_attach(void)
{
	queue = memory_open(false);
	ENSURE(!channel_open(&channel, &worker.state, &queue->queue, -1, 0, tenant));
}

/* The host's process has gone. */
void pair_worker_detach(void)
{
	channel_free(channel, false);
	free_dead(&worker.state);
	channel = NULL;
	queue = NULL;
}

void pair_worker_time(uint64_t now_ns)
{
	clock_now_ns = now_ns;
}

/* A round; true when anything was done. */
bool pair_worker_round(void)
{
	bool any = work(&worker);

	if (worker.state.now_ns >= worker.state.keep_deadline_ns)
		registry_expire(&worker.state);
	return any;
}

/* How long it would sleep now, in ms; -1: for ever. */
int pair_worker_sleeps_ms(void)
{
	int timeout_ms;
	bool quiet = worker_arm_all(&worker.state, &timeout_ms);

	worker_disarm_all(&worker.state);
	return quiet ? timeout_ms : 0;
}

uint32_t pair_worker_take(uint8_t *frame)
{
	struct memory_frame f;

	if (!queue || !pipe_get(&queue->out, &f))
		return 0;
	memcpy(frame, f.data, f.bytes);
	free(f.data);
	return f.bytes;
}

void pair_worker_put(const uint8_t *frame, uint32_t bytes)
{
	if (queue)
		pipe_put(&queue->in, frame, bytes);
}

uint32_t pair_worker_connections(void)
{
	return (uint32_t)worker.state.stats.connections;
}

void pair_worker_stop(void)
{
	struct worker_state *w = &worker.state;

	close_everything(w, 0);
	channel = NULL;
	queue = NULL;
	ENSURE(!w->stats.connections && !w->stats.listeners && !w->stats.channels && !w->stats.orphans);
	xts_ulp_config_release(w->config.ulp);
	close(w->epoll_fd);
	close(w->command_fd);
	log_close(&w->log);
	xts_tenant_release(tenant);
}
