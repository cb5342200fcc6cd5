/* The relay's loop; relay_loop.h has the theory of operation. */
#include "relay_loop.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "link.h"
#include "mux.h"
#include "shm.h"

#define PING_MS 500u
#define DEAD_MS 2000u
#define FRAMES_A_ROUND 64u /* in each direction */
#define LAST_FRAMES 256u   /* limit for a process that has gone */
#define SLOT_WAIT_MS 1     /* no event reports that a transmit slot has come back */
#define ORDERS_A_ROUND 16u
#define EVENTS 64

struct process {
	uint32_t number;
	uint64_t epoch;
	struct xts_queue *shm;     /* to the process */
	struct xts_queue *channel; /* to the proxy */
	uint32_t dropped;
	uint32_t last_frames; /* it has gone, and at most this many more of its frames are looked for. 0: it is alive */
	bool kick;
	bool ending; /* GOODBYE is due */
	int error;
};

struct relay {
	const struct xts_relay_config *config;
	struct xts_queue *trunk;
	struct xts_link link;
	struct xts_mux *mux;
	struct process **processes;
	uint32_t count, first; /* first: the process with which the next round begins */
	int epoll_fd;
	bool agent_gone, slot_missing, kick_again, unkicked;
	uint64_t now_ns, idle_since_ns;
};

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- the agent ---------------------------------------------------------------------------------------------------- */

static void report(struct relay *r, uint32_t what, uint32_t number, int error, uint32_t dropped)
{
	struct xts_relay_report out = { .what = what, .number = number, .error = error, .dropped = dropped };

	if (send(r->config->control_fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
		r->agent_gone = true;
}

static int watch(struct relay *r, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void process_free(struct relay *r, struct process *p)
{
	if (p->shm) {
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, p->shm->wait_fd, NULL);
		xts_queue_close(p->shm);
	}
	xts_queue_close(p->channel);
	free(p);
}

/* Takes over the descriptors. */
static int process_add(struct relay *r, const struct xts_relay_order *order, int memfd, int bell)
{
	struct process *p = r->count < r->config->channels_max ? calloc(1, sizeof *p) : NULL;
	int error = p ? xts_mux_add(&p->channel, r->mux, order->number, XTS_RELAYED_WINDOW) : -ENOMEM;

	if (!error) {
		error = xts_shm_open(&p->shm, XTS_SHM_PROXY, memfd, -1, bell, &order->geometry);
		if (error)
			p->shm = NULL;
	}
	if (error) {
		close(memfd);
		close(bell);
	} else {
		error = watch(r, bell);
	}
	if (error) {
		if (p)
			process_free(r, p);
		return error;
	}
	p->number = order->number;
	p->epoch = order->geometry.epoch;
	r->processes[r->count++] = p;
	return 0;
}

static void process_gone(struct relay *r, uint32_t number)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->processes[i]->number == number && !r->processes[i]->last_frames)
			r->processes[i]->last_frames = LAST_FRAMES;
}

static void obey(struct relay *r, const struct xts_relay_order *order, const int *fds, int count)
{
	int error;

	if (order->what == XTS_RELAY_ADD && count == 2) {
		error = process_add(r, order, fds[0], fds[1]);
		if (error)
			report(r, XTS_RELAY_ENDED, order->number, -error, 0);
		return;
	}
	for (int i = 0; i < count; i++)
		close(fds[i]);
	if (order->what == XTS_RELAY_REMOVE)
		process_gone(r, order->number);
}

/* False: there is no order to read. */
static bool take_order(struct relay *r)
{
	struct xts_relay_order order;
	union {
		char bytes[CMSG_SPACE(sizeof(int) * 2)];
		struct cmsghdr alignment;
	} control;
	struct iovec piece = { .iov_base = &order, .iov_len = sizeof order };
	struct msghdr m = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	struct cmsghdr *c;
	int fds[2], count = 0;
	ssize_t got = recvmsg(r->config->control_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
	}
	if (got != sizeof order) { /* the agent has gone, or it is not the agent */
		r->agent_gone = true;
		return false;
	}
	obey(r, &order, fds, count);
	return true;
}

static bool take_orders(struct relay *r)
{
	uint32_t taken = 0;

	while (taken < ORDERS_A_ROUND && !r->agent_gone && take_order(r))
		taken++;
	return taken || r->agent_gone;
}

/* --- from the proxy ----------------------------------------------------------------------------------------------- */

static void trunk_delivers(struct relay *r, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	if (head->type == XTS_RELAY_CARRIED && xts_mux_take(r->mux, head, frame) == XTS_MUX_TAKEN)
		return; /* xts_mux_close() or its channel recycles it */
	xts_queue_recycle(r->trunk, frame);
	xts_link_recycled(&r->link);
}

static bool trunk_receive(struct relay *r)
{
	struct xts_rx_frame frame;
	struct xts_head head;
	uint32_t taken = 0;
	int got = 0;

	while (taken < FRAMES_A_ROUND && r->link.state != XTS_LINK_DOWN &&
	       (got = xts_queue_receive(r->trunk, &frame)) > 0) {
		taken++;
		switch (xts_link_receive(&r->link, frame.segment[0].iov_base, frame.segment[0].iov_len, frame.bytes,
					 r->now_ns, &head)) {
		case XTS_LINK_DELIVER:
			trunk_delivers(r, &head, &frame);
			continue;
		case XTS_LINK_OPENED:
			xts_bundle_send(r->trunk, r->link.features & XTS_FEATURE_BUNDLE);
			report(r, XTS_RELAY_UP, 0, 0, 0);
			break;
		default:
			break;
		}
		xts_queue_recycle(r->trunk, &frame);
	}
	if (got < 0)
		xts_link_fail(&r->link, ENETDOWN);
	return taken;
}

static void process_end(struct process *p, int error)
{
	if (p->ending)
		return;
	p->ending = true;
	p->error = error;
}

static void gather(uint8_t *to, const struct xts_rx_frame *frame)
{
	for (uint32_t i = 0; i < frame->segments; i++) {
		memcpy(to, frame->segment[i].iov_base, frame->segment[i].iov_len);
		to += frame->segment[i].iov_len;
	}
}

/* Copies frames that have come for a process into its memory. */
static bool to_process(struct process *p)
{
	struct xts_rx_frame frame;
	struct xts_tx_slot slot;
	bool any = false;

	while (xts_queue_receive(p->channel, &frame) > 0) {
		if (p->ending || p->last_frames) {
			xts_queue_recycle(p->channel, &frame);
			continue;
		}
		if (frame.bytes > p->shm->largest_message || xts_queue_acquire(p->shm, &slot)) {
			xts_queue_recycle(p->channel, &frame);
			process_end(p, EPROTO); /* the process's link allowed a frame that its memory has no room for */
			continue;
		}
		gather(slot.data, &frame);
		xts_queue_submit(p->shm, &slot, frame.bytes);
		xts_queue_recycle(p->channel, &frame);
		p->kick = any = true;
	}
	return any;
}

/* --- to the proxy ------------------------------------------------------------------------------------------------- */

/* May the process send this? The frame is in private memory by now. */
static bool may_pass(const struct process *p, const uint8_t *frame, uint32_t bytes)
{
	struct xts_hello hello;

	if (bytes < XTS_HEAD_BYTES)
		return false;
	switch (frame[XTS_ETH_BYTES]) {
	case XTS_RELAY_CARRIED:
	case XTS_LINK_BUNDLE:
		return false;
	case XTS_LINK_HELLO:
		return !xts_hello_decode(&hello, frame, bytes) && hello.epoch == p->epoch;
	default:
		return true;
	}
}

/* Passes on the next frame of a process. 1; 0: none, or it cannot leave now; -EPIPE: there will be no more. */
static int pass_one(struct relay *r, struct process *p)
{
	struct xts_tx_slot slot;
	struct xts_rx_frame frame;
	int got;

	if (xts_queue_acquire(p->channel, &slot)) {
		r->slot_missing |= xts_link_credits(&r->link) > 0; /* otherwise an acknowledgement wakes us */
		return 0;
	}
	got = xts_queue_receive(p->shm, &frame);
	if (got > 0 && frame.bytes <= p->channel->largest_message) {
		gather(slot.data, &frame);
		if (may_pass(p, slot.data, frame.bytes)) {
			xts_queue_submit(p->channel, &slot, frame.bytes);
			xts_queue_recycle(p->shm, &frame);
			return 1;
		}
	}
	xts_queue_abandon(p->channel, &slot);
	if (got > 0) {
		xts_queue_recycle(p->shm, &frame);
		p->dropped++;
	}
	return got;
}

static bool turn(struct relay *r, struct process *p)
{
	int got;

	if (p->ending)
		return false;
	got = pass_one(r, p);
	if (got < 0)
		process_end(p, 0);
	else if (p->last_frames && (got ? !--p->last_frames : xts_link_credits(&r->link) && !r->slot_missing))
		process_end(p, 0);
	return got > 0;
}

/* Passes on one frame of each process in turn, until none has any or no more may leave. */
static bool from_processes(struct relay *r)
{
	uint32_t taken = 0, idle = 0;

	for (uint32_t i = r->first; r->count && idle < r->count && taken < FRAMES_A_ROUND && xts_link_credits(&r->link);
	     i++) {
		if (turn(r, r->processes[i % r->count])) {
			taken++;
			idle = 0;
		} else {
			idle++;
		}
		r->first = (i + 1) % r->count;
	}
	return taken;
}

/* Sends GOODBYE for a process that has ended. False: there is no room for it now. */
static bool say_goodbye(struct relay *r, struct process *p)
{
	struct xts_goodbye goodbye = { .epoch = p->epoch };
	struct xts_tx_slot slot;

	if (xts_queue_acquire(p->channel, &slot)) {
		r->slot_missing = true;
		return false;
	}
	memset(slot.data, 0, XTS_GOODBYE_BYTES);
	memcpy(slot.data, r->trunk->peer_mac, 6);
	memcpy(slot.data + 6, r->trunk->local_mac, 6);
	xts_put16(slot.data + 12, r->link.config.ethertype);
	xts_head_encode(slot.data, XTS_LINK_GOODBYE, 0, (uint16_t)p->error, 0);
	xts_goodbye_encode(slot.data, &goodbye);
	xts_queue_submit(p->channel, &slot, XTS_GOODBYE_BYTES);
	return true;
}

static void reap(struct relay *r)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->count; i++) {
		struct process *p = r->processes[i];

		if (!p->ending || !say_goodbye(r, p)) {
			r->processes[kept++] = p;
			continue;
		}
		report(r, XTS_RELAY_ENDED, p->number, p->error, p->dropped);
		process_free(r, p);
	}
	r->count = kept;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

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
	if (xts_mux_kick_due(r->mux) || r->unkicked || r->kick_again) {
		int error = xts_queue_kick(r->trunk);

		r->kick_again = error == -EAGAIN;
		r->unkicked = false;
		if (error && error != -EAGAIN)
			xts_link_fail(&r->link, -error);
	}
	for (uint32_t i = 0; i < r->count; i++) {
		struct process *p = r->processes[i];

		if (p->kick && xts_queue_kick(p->shm) == -ENXIO)
			process_end(p, EPROTO);
		p->kick = false;
	}
}

static bool work(struct relay *r)
{
	bool any;

	r->now_ns = clock_ns();
	r->slot_missing = false;
	any = take_orders(r);
	any |= trunk_receive(r);
	for (uint32_t i = 0; i < r->count; i++)
		any |= to_process(r->processes[i]);
	any |= from_processes(r);
	reap(r);
	(void)xts_link_tick(&r->link, r->now_ns);
	trunk_control(r);
	kick(r);
	return any;
}

static int sleep_ms(const struct relay *r)
{
	uint64_t deadline_ns = xts_link_deadline_ns(&r->link);

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
	if (quiet || !xts_link_credits(&r->link))
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
		.largest_message = r->trunk->largest_message,
		.features = XTS_FEATURE_RELAY | XTS_FEATURE_BUNDLE,
		.required = XTS_FEATURE_RELAY,
		.epoch = c->epoch,
		.pid = (uint32_t)getpid(),
		.ping_ms = PING_MS,
		.dead_ms = DEAD_MS,
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
	int error = xts_bundle_wrap(&r->trunk, c->trunk);

	if (error) {
		r->trunk = c->trunk;
		return error;
	}
	r->processes = calloc(c->channels_max ? c->channels_max : 1, sizeof(struct process *));
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!r->processes || r->epoll_fd < 0)
		return r->processes ? -EMFILE : -ENOMEM;
	error = link_open(r);
	if (!error)
		error = xts_mux_open(&r->mux, r->trunk, &r->link);
	if (!error)
		error = watch(r, r->trunk->wait_fd);
	return error ? error : watch(r, c->control_fd);
}

static void relay_close(struct relay *r)
{
	xts_mux_close(r->mux);
	while (r->count)
		process_free(r, r->processes[--r->count]);
	free(r->processes);
	if (r->epoll_fd >= 0)
		close(r->epoll_fd);
	xts_queue_close(r->trunk);
}

int xts_relay_run(const struct xts_relay_config *config)
{
	struct relay r = { .config = config, .epoll_fd = -1 };
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
	report(&r, XTS_RELAY_DOWN, 0, -error, 0);
	relay_close(&r);
	return error;
}
