/*
 * The beginning of a channel: attaching, decorating the queue as the settings ask, HELLO and HELLO_ACK. It blocks,
 * without the lock; other threads do not see the channel until it is up.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "attaching/attach.h"
#include "core/received_data.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/control_page.h"
#include "core/process.h"
#include "core/settings.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "settings/environment.h"
#include "link/link.h"
#include "common/notice.h"
#include "common/own_memory.h"
#include "queues/queue.h"
#include "queues/queue_kinds.h"
#include "waiting/epoll.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"
#include "xts.h"

/* For how long the agent or the proxy may be silent: where hundreds of processes start together it gets no processor
 * for seconds. One that has ended is noticed at once. */
#define ATTACH_TIMEOUT_MS 10000
#define LET_GO_NS (100 * NS_PER_MS)
#define LET_GO_LOOK_NS 200000

/* If a capture cannot be written, the attachment succeeds all the same. */
static void capture(struct channel *c)
{
	struct stack *st = c->stack;
	static bool reported;
	int r = st->settings.pcap[0] ? xts_pcap_wrap(&c->queue, c->queue, st->settings.pcap) : 0;

	c->attachment.queue = c->queue;
	if (r && !reported)
		xts_notice("XTS_PCAP=%s: %s; going on without a capture", st->settings.pcap, strerror(-r));
	reported = reported || r;
}

static int decorate(struct channel *c)
{
	struct stack *st = c->stack;
	struct xts_faults transmit, receive;
	int r;

	c->queue = c->attachment.queue;
	r = xts_packets_wrap(&c->packets, &c->queue);
	if (r)
		return r;
	c->attachment.queue = c->queue;
	if (st->settings.faults[0]) {
		r = faults_parse(st->settings.faults, &transmit, &receive);
		if (!r)
			r = xts_fault_wrap(&c->queue, c->queue, &transmit, &receive);
		if (r)
			return r;
		c->attachment.queue = c->queue;
	}
	capture(c);
	return 0;
}

static int link_start(struct channel *c)
{
	struct stack *st = c->stack;
	const struct xts_attach_reply *reply = &c->attachment.reply;
	struct xts_link_config config = {
		.role = XTS_LINK_HOST,
		.ethertype = reply->ethertype,
		.frame_window = c->queue->frame_window,
		.largest_message = xts_packets_bytes(c->queue),
		.head_bytes = c->queue->head_bytes,
		.features = XTS_FEATURE_SHARE | XTS_FEATURE_SHARE_BOUND | XTS_FEATURE_ULP | XTS_FEATURE_ULP_TLS |
			    XTS_FEATURE_SHRINK | XTS_FEATURE_REFUSAL | XTS_FEATURE_TAKE | XTS_FEATURE_DATAGRAM |
			    XTS_FEATURE_NAMES | XTS_FEATURE_STAMPS | XTS_FEATURE_SHARE_DATAGRAM |
			    XTS_FEATURE_RETURN_DATAGRAM | XTS_FEATURE_CUT_OFF | XTS_FEATURE_FAULT_OF |
			    XTS_FEATURE_RENEW_KEY | XTS_FEATURE_CATCH_UP | XTS_FEATURE_WITHDRAW | XTS_FEATURE_CANCEL |
			    XTS_FEATURE_LISTENING | XTS_FEATURE_MOVE | XTS_FEATURE_MOVE_DATAGRAM |
			    XTS_FEATURE_MOVE_PUSHED | XTS_FEATURE_MOVE_NAMED | XTS_FEATURE_RESUME | XTS_FEATURE_OVER |
			    xts_packets_features(c->queue),
		.epoch = reply->epoch,
		.pid = (uint32_t)getpid(),
		.ping_ms = PING_MS,
		.dead_ms = c->queue->traits & XTS_QUEUE_DEATH_SHOWS || reply->relayed ? OPENING_LOCAL_MS : OPENING_MS,
		.token = reply->token,
		.token_bytes = reply->token_bytes,
		.clock = device_clock_told,
		.clock_context = c,
	};

	if (st->settings.frame_window && st->settings.frame_window < config.frame_window)
		config.frame_window = (uint16_t)st->settings.frame_window;
	memcpy(config.local_mac, c->queue->local_mac, 6);
	memcpy(config.peer_mac, c->queue->peer_mac, 6);
	return xts_link_init(&c->link, &config, now_ns());
}

/* Exchanges HELLO and HELLO_ACK. Other threads do not see the channel yet. 0; -ENOLINK: the way has ended meanwhile;
 * another -errno. */
static int link_open(struct channel *c)
{
	int r = link_start(c);

	while (!r && c->link.state == XTS_LINK_OPENING) {
		struct pollfd fds[2] = { { .fd = c->queue->wait_fd, .events = POLLIN },
					 { .fd = c->attachment.connection, .events = POLLIN } };
		uint64_t now = now_ns(), deadline;
		struct xts_rx_frame frame;
		struct xts_head head;
		uint8_t copy[HEAD_COPY_BYTES];

		channel_control(c, now);
		xts_queue_tick(c->queue, now);
		if (xts_queue_kick(c->queue) == -ENXIO)
			return -ENOLINK;
		while (c->link.state == XTS_LINK_OPENING && (r = xts_queue_receive(c->queue, &frame)) == 1) {
			uint32_t n = frame.bytes < sizeof copy ? frame.bytes : (uint32_t)sizeof copy;

			memcpy(copy, frame.segment[0].iov_base, n);
			xts_queue_recycle(c->queue, &frame);
			xts_link_receive(&c->link, copy, n, frame.bytes, now, &head);
		}
		if (r < 0)
			return -ENOLINK;
		r = 0;
		if (c->link.state != XTS_LINK_OPENING)
			break;
		deadline = channel_deadline_ns(c);
		if (!xts_queue_arm(c->queue)) {
			poll(fds, 2, deadline > now ? (int)((deadline - now) / NS_PER_MS) + 1 : 0);
			xts_queue_disarm(c->queue);
		}
		if (fds[1].revents && channel_connection_ends_it(c))
			return -ENOLINK;
		xts_link_tick(&c->link, now_ns());
	}
	if (!r && c->link.state == XTS_LINK_DOWN)
		r = -c->link.error;
	if (!r)
		xts_packets_begin(&c->packets, &c->link);
	xts_link_ask_clock(&c->link);
	/* counted from a ping, which is sent after PING_MS of silence */
	c->link.config.dead_ms = c->stack->settings.dead_ms - PING_MS;
	return r;
}

/* Has the proxy itself refused the link, for a reason that this version knows? */
static bool refused(const struct channel *c, int r)
{
	return r && xts_refusal_errno(c->link.refusal) == -r;
}

/* Describes in a sentence why there is no queue; c is in the state in which the failure has left it. */
static void explain(char text[ATTACH_ERROR_BYTES], const struct channel *c, const char *endpoint, int r, bool attached)
{
	const char *reason = c->attachment.reply.reason;
	const char *refusal = refused(c, r) ? xts_refusal_text(c->link.refusal) : NULL;

	if (refusal)
		snprintf(text, ATTACH_ERROR_BYTES, "%.64s gave this process a queue, but %s", endpoint, refusal);
	else if (attached)
		snprintf(text, ATTACH_ERROR_BYTES, "%.128s gave this process a queue, but %s", endpoint,
			 r == -ETIMEDOUT || r == -ENETDOWN || r == -ENOLINK ? "the proxy behind it does not answer" :
									      strerror(-r));
	else if (c->attachment.reply.error > 0 && reason[0])
		snprintf(text, ATTACH_ERROR_BYTES, "%s", reason);
	else if (c->attachment.reply.error <= 0 && (r == -EMFILE || r == -ENFILE))
		snprintf(text, ATTACH_ERROR_BYTES, "no descriptor is left for a queue: %s",
			 r == -EMFILE ? "raise the limit of this process (`ulimit -n`)" :
					"raise the machine's limit (the setting fs.file-max)");
	else if (r == -ENOENT || r == -ECONNREFUSED)
		snprintf(text, ATTACH_ERROR_BYTES,
			 "no offload proxy can be reached at %.128s; is it, or xts-agent, running? See `xts doctor`",
			 endpoint);
	else if (r == -ETIMEDOUT)
		snprintf(text, ATTACH_ERROR_BYTES, "xts-agent or xts-proxy is at %.128s, and %s", endpoint,
			 c->attachment.waited ? "has had too many others to serve for a minute" :
						"has said nothing for ten seconds: it is stopped, or very slow");
	else
		snprintf(text, ATTACH_ERROR_BYTES, "%.128s: %s", endpoint,
			 r == -EPROTO ? "speaks another version" : strerror(-r));
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
}

/* The errno for the application. EUSERS if no queue was free, whatever errno the server has returned for that. */
static int attach_result(const struct channel *c, int r)
{
	if (refused(c, r) && r == -EUSERS)
		return r;
	if (c->attachment.reply.error > 0 && (r == -EAGAIN || r == -ESHUTDOWN || r == -EUSERS || r == -ENOSPC))
		return -EUSERS;
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EACCES || r == -EPERM ? r : -ENETDOWN;
}

/* 0, or -errno: error has a description, and *result the errno for the application. */
static int channel_open(struct stack *st, struct channel **out, char error[ATTACH_ERROR_BYTES], int *result)
{
	struct channel *c = calloc(1, sizeof *c);
	struct xts_attach_request request = { .frame_window_max = st->settings.frame_window };
	const char *endpoint = st->settings.endpoint;
	bool attached;
	int r;

	if (!c)
		return *result = -ENOMEM;
	xts_memory_is_parents = false;
	c->stack = st;
	if (strncmp(st->settings.queue, "shm:", 4) == 0)
		endpoint = st->settings.queue + 4;
	r = xts_attach(&c->attachment, endpoint, &request, ATTACH_TIMEOUT_MS);
	attached = !r;
	if (!r) {
		r = decorate(c);
		if (!r)
			r = link_open(c);
		if (!r)
			r = buffer_pool_make(c);
	}
	if (r) {
		explain(error, c, endpoint, r, attached);
		*result = attach_result(c, r);
		if (attached)
			xts_detach(&c->attachment);
		free(c);
		return r;
	}
	*out = c;
	return 0;
}

static void note_settings(int r)
{
	char fault[ATTACH_ERROR_BYTES];

	if (xts_environment_first_fault(fault, sizeof fault))
		last_error_note(-r, "%s", fault);
	else
		last_error_note(-r, "the settings given to xts_configure() or by XTS_FAULTS are not allowed");
}

/* The last queue may be the one to get. While a thread is still about to leave it, the agent takes it for in use, and
 * puts this process behind a relay. It has been woken, but may have to wait for a CPU. */
static void let_go(struct stack *st)
{
	const struct timespec pause = { .tv_nsec = LET_GO_LOOK_NS };
	uint64_t until_ns = now_ns() + LET_GO_NS;

	channel_reap(st);
	while (st->dead && now_ns() < until_ns) {
		pthread_mutex_unlock(&st->lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&st->lock);
		channel_reap(st);
	}
}

int channel_attach(struct stack *st)
{
	char error[ATTACH_ERROR_BYTES] = "";
	struct channel *c = NULL;
	int r, result = 0;

	let_go(st);
	while (st->attaching)
		wait_for(st, &st->attach_waiters, FOREVER, false);
	if (st->channel)
		return 0;
	if (!st->started) {
		process_settings(&st->settings);
		if (st->endpoint[0])
			strcpy(st->settings.endpoint, st->endpoint);
		r = settings_complete(&st->settings);
		if (r) {
			note_settings(r);
			return r;
		}
		st->started = true;
	}
	bell_reserve(st);
	st->attaching = true;
	pthread_mutex_unlock(&st->lock);
	r = channel_open(st, &c, error, &result);
	if (r == -ENOLINK) /* its way was to a proxy that is no more, and ended by that; there may be another one */
		r = channel_open(st, &c, error, &result);
	if (r == -ENOLINK)
		r = -ENETDOWN;
	pthread_mutex_lock(&st->lock);
	st->attaching = false;
	wake(st, &st->attach_waiters);
	st->last_error = -r;
	if (r && strcmp(st->attach_error, error) != 0) /* the next attempts will fail for the same reason */
		xts_log(XTS_LOG_DEBUG, "not attached to %s: %s", st->settings.endpoint, error);
	memcpy(st->attach_error, error, sizeof error);
	if (r) {
		last_error_note(-result, "%s", error);
		return result;
	}
	st->channel = c;
	progress_reserve(st);
	xts_control_start();
	xts_log(XTS_LOG_DEBUG, "attached to %s: %s queue %u, %u frames each way, messages of at most %u bytes",
		st->settings.endpoint, xts_queue_kind(c->attachment.reply.kind)->title, c->attachment.reply.queue_id,
		c->link.frame_window, c->link.largest_message);
	epoll_channel_opened(st);
	again_attached(st);
	progress_look(st);
	status_link(st);
	if (st->waiters)
		wake_all(st); /* threads that had no channel to lead */
	return 0;
}
