/* The relay's rounds: orders, frames each way, the trunk's link, sleep. relay_loop.h has the theory of operation. */
#include "relay/relay_inside.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "relay/mux.h"

#define PING_MS 500u
#define OPENING_MS 2000u /* to wait for the answer to HELLO */
#define SLOT_WAIT_MS 1   /* no event says that a transmit slot has come back */
#define EVENTS 64

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void reap(struct relay *r)
{
	uint32_t kept = 0;

	if (r->move.acked)
		return; /* GOODBYE leaves in the next epoch */
	for (uint32_t i = 0; i < r->count; i++) {
		struct process *p = r->processes[i];

		if (!p->ending || !relay_say_goodbye(r, p)) {
			r->processes[kept++] = p;
			continue;
		}
		relay_report(r, XTS_RELAY_ENDED, p->number, p->error, p->dropped);
		relay_process_free(r, p);
	}
	r->count = kept;
}

static void trunk_control(struct relay *r)
{
	struct xts_tx_slot slot;
	uint32_t bytes;

	while (xts_link_control_due(&r->link)) {
		if (xts_queue_acquire(r->trunk, &slot)) {
			r->slot_missing = true;
			return;
		}
		bytes = (uint32_t)xts_link_control(&r->link, slot.data, r->now_ns);
		if (!bytes) {
			xts_queue_abandon(r->trunk, &slot);
			return;
		}
		xts_queue_submit(r->trunk, &slot, bytes);
		r->unkicked = true;
	}
}

static void kick(struct relay *r)
{
	if (xts_queue_deadline_ns(r->trunk) <= r->now_ns)
		r->unkicked = true;
	xts_queue_tick(r->trunk, r->now_ns);
	if (xts_mux_kick_due(r->mux) || r->unkicked || r->kick_again) {
		int error = xts_queue_kick(r->trunk);

		r->kick_again = error == -EAGAIN || error == -ENETDOWN; /* the interface may be up again in a moment */
		r->unkicked = false;
		if (error && !r->kick_again)
			xts_link_fail(&r->link, -error);
	}
	for (uint32_t i = 0; i < r->count; i++) {
		struct process *p = r->processes[i];

		if (p->kick && xts_queue_kick(p->shm) == -ENXIO)
			relay_process_end(p, EPROTO);
		p->kick = false;
	}
}

static bool work(struct relay *r)
{
	bool any;

	r->now_ns = clock_ns();
	r->slot_missing = false;
	any = relay_take_orders(r);
	any |= relay_trunk_receive(r);
	for (uint32_t i = 0; i < r->count; i++)
		any |= relay_to_process(r->processes[i]);
	relay_move_turn(r);
	any |= relay_from_processes(r);
	reap(r);
	relay_words_turn(r);
	(void)xts_link_tick(&r->link, r->now_ns);
	trunk_control(r);
	kick(r);
	return any;
}

static int sleep_ms(const struct relay *r)
{
	uint64_t deadline_ns = xts_link_deadline_ns(&r->link), of_queue_ns = xts_queue_deadline_ns(r->trunk);

	if (of_queue_ns < deadline_ns)
		deadline_ns = of_queue_ns;
	if (relay_words_at_ns(r) < deadline_ns)
		deadline_ns = relay_words_at_ns(r);
	if (r->slot_missing || r->kick_again)
		return SLOT_WAIT_MS;
	if (deadline_ns == UINT64_MAX)
		return -1;
	return deadline_ns <= r->now_ns ? 0 : (int)((deadline_ns - r->now_ns) / 1000000u) + 1;
}

static void idle(struct relay *r)
{
	struct epoll_event events[EVENTS];
	bool quiet;

	if (!r->idle_since_ns) {
		r->idle_since_ns = r->now_ns;
		return;
	}
	if (r->now_ns - r->idle_since_ns < (uint64_t)r->config->spin_us * 1000) {
		sched_yield();
		return;
	}
	quiet = !xts_queue_arm(r->trunk);
	for (uint32_t i = 0; i < r->count; i++)
		quiet &= !xts_queue_arm(r->processes[i]->shm) || r->processes[i]->ending;
	/* Without credits, processes may have frames that cannot leave: then only the trunk wakes us. */
	if (quiet || !xts_link_credits(&r->link) || r->move.acked)
		(void)epoll_wait(r->epoll_fd, events, EVENTS, sleep_ms(r));
	xts_queue_disarm(r->trunk);
	for (uint32_t i = 0; i < r->count; i++)
		xts_queue_disarm(r->processes[i]->shm);
	r->idle_since_ns = 0;
}

static int link_open(struct relay *r)
{
	const struct xts_relay_config *c = r->config;
	struct xts_link_config config = {
		.role = XTS_LINK_HOST,
		.ethertype = c->ethertype,
		.frame_window = r->trunk->frame_window,
		.largest_message = xts_packets_bytes(r->trunk),
		.head_bytes = r->trunk->head_bytes,
		.features = XTS_FEATURE_RELAY | XTS_FEATURE_MOVE_RELAYED | XTS_FEATURE_RESUME_RELAYED |
			    XTS_FEATURE_OVER | xts_packets_features(r->trunk),
		.required = XTS_FEATURE_RELAY,
		.epoch = c->epoch,
		.pid = (uint32_t)getpid(),
		.ping_ms = PING_MS,
		.dead_ms = OPENING_MS,
		.token = c->token,
		.token_bytes = c->token_bytes,
	};
	int error;

	memcpy(config.local_mac, r->trunk->local_mac, 6);
	memcpy(config.peer_mac, r->trunk->peer_mac, 6);
	error = xts_link_init(&r->link, &config, clock_ns());
	if (!error)
		xts_link_watch(&r->link, true, clock_ns());
	return error;
}

static int relay_open(struct relay *r)
{
	const struct xts_relay_config *c = r->config;
	int error;

	r->trunk = c->trunk;
	error = xts_packets_wrap(&r->packets, &r->trunk);
	if (error)
		return error;
	r->processes = calloc(c->channels_max ? c->channels_max : 1, sizeof(struct process *));
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!r->processes || r->epoll_fd < 0)
		return r->processes ? -EMFILE : -ENOMEM;
	error = link_open(r);
	if (!error)
		error = xts_mux_open(&r->mux, r->trunk, &r->link);
	if (!error)
		error = relay_watch(r, r->trunk->wait_fd);
	return error ? error : relay_watch(r, r->control_fd);
}

static void relay_close(struct relay *r)
{
	xts_mux_close(r->mux);
	while (r->count)
		relay_process_free(r, r->processes[--r->count]);
	free(r->processes);
	if (r->epoll_fd >= 0)
		close(r->epoll_fd);
	if (r->control_fd >= 0)
		close(r->control_fd);
	xts_queue_close(r->trunk);
}

int xts_relay_run(const struct xts_relay_config *config)
{
	struct relay r = { .config = config, .epoll_fd = -1, .control_fd = config->control_fd, .next = 1 };
	int error = relay_open(&r);

	while (!error && !r.agent_gone && r.link.state != XTS_LINK_DOWN) {
		if (work(&r))
			r.idle_since_ns = 0;
		else if (!r.agent_gone && r.link.state != XTS_LINK_DOWN)
			idle(&r);
	}
	if (!error) {
		if (r.agent_gone)
			xts_link_goodbye(&r.link, 0);
		error = r.agent_gone ? 0 : -r.link.error;
		trunk_control(&r);
		kick(&r);
	}
	relay_report(&r, XTS_RELAY_DOWN, 0, -error, 0);
	relay_close(&r);
	return error;
}
