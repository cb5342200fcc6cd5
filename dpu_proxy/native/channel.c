/* The channel's rounds: receive, flush, send; and the end of an epoch. channel.h has the theory of operation. */
#include "device_clock.h"
#include "mux.h"
#include "probe.h"
#include "pushed.h"
#include "share.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define BATCH_BYTES (256u * 1024) /* payload gathered before a write: TCP starts sending while the host still copies */
/* eight large messages: the host starts reading while we still send; with fewer, each would cost the host a wake-up */
#define KICK_BYTES (480u * 1024)
/* the same for small messages: redis with 50 connections served 38,000 requests/s without and 42,000 with it */
#define KICK_MESSAGES 8u
#define MESSAGES_PER_TURN 4u /* messages of one connection before the next one has its turn */
#define MESSAGES_PER_ROUND 64u

static int watch_descriptor(struct worker_state *w, int fd, uint32_t events, struct watch *watch)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* The limit of sockets that HELLO_ACK announces to the host. */
static uint32_t sockets_max(const struct xts_tenant *t)
{
	uint64_t sockets = tenant_limit(t, XTS_USE_CONNECTIONS) + tenant_limit(t, XTS_USE_LISTENERS);

	return sockets < UINT32_MAX ? (uint32_t)sockets : UINT32_MAX;
}

/* Fills in the device's time, for an answer that leaves now. */
static void device_time(void *context, struct xts_clock_ack *ack)
{
	const struct worker_state *w = context;
	struct timespec now;

	ack->error_ns = xts_device_clock_error_ns(w->now_ns);
	clock_gettime(CLOCK_REALTIME, &now);
	ack->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int channel_open(struct channel **out, struct worker_state *worker, struct xts_queue *queue, int life_fd,
		 uint32_t queue_id, struct xts_tenant *tenant)
{
	struct xts_link_config config = {
		.role = XTS_LINK_PROXY,
		.ethertype = worker->config.ethertype,
		.frame_window = queue->frame_window,
		.largest_message = queue->largest_message,
		.features = XTS_FEATURE_SHARE | XTS_FEATURE_SHARE_BOUND | XTS_FEATURE_ULP | XTS_FEATURE_ULP_TLS |
			    XTS_FEATURE_SHRINK | XTS_FEATURE_REFUSAL | XTS_FEATURE_TAKE | XTS_FEATURE_DATAGRAM |
			    XTS_FEATURE_STAMPS | XTS_FEATURE_SHARE_DATAGRAM | XTS_FEATURE_COPIES |
			    XTS_FEATURE_RETURN_DATAGRAM | (queue->packets ? XTS_FEATURE_BUNDLE : 0) |
			    (worker->config.names.resolver_count ? XTS_FEATURE_NAMES : 0) |
			    (queue->packets && queue->multi_buffer && worker->config.relayed_max ? XTS_FEATURE_RELAY : 0),
		.sockets_max = sockets_max(tenant),
		.clock = device_time,
		.clock_context = worker,
	};
	struct channel *ch = calloc(1, sizeof *ch);
	int error;

	if (!ch)
		return -ENOMEM;
	ch->descriptors = queue->wait_fd >= 0 ? CHANNEL_DESCRIPTORS : 0;
	if (!tenant_take(tenant, XTS_USE_DESCRIPTORS, ch->descriptors)) {
		free(ch);
		return -ENOBUFS;
	}
	ch->replies = calloc(XTS_FRAME_WINDOW_MAX, sizeof *ch->replies);
	if (life_fd < 0 && worker->trust.key_bytes) {
		config.features |= XTS_FEATURE_TOKEN;
		config.admit = token_admit;
		config.admit_context = ch;
	}
	memcpy(config.local_mac, queue->local_mac, 6);
	memcpy(config.peer_mac, queue->peer_mac, 6);
	error = ch->replies ? xts_link_init(&ch->link, &config, worker->now_ns) : -ENOMEM;
	ch->queue_watch.kind = WATCH_QUEUE;
	ch->life_watch.kind = WATCH_LIFE;
	ch->worker = worker;
	ch->queue = queue;
	ch->queue_id = queue_id;
	ch->life_fd = life_fd;
	list_init(&ch->connections);
	list_init(&ch->ready);
	list_init(&ch->dirty);
	list_init(&ch->unnamed);
	list_init(&ch->noted);
	names_init(&ch->names);
	list_init(&ch->returning);
	if (!error)
		error = account_open(&worker->schedule, &ch->account, &tenant->weight);
	if (!error && queue->wait_fd >= 0)
		error = watch_descriptor(worker, queue->wait_fd, EPOLLIN, &ch->queue_watch);
	if (!error && life_fd >= 0)
		error = watch_descriptor(worker, life_fd, EPOLLIN | EPOLLRDHUP, &ch->life_watch);
	if (!error && queue->packets) {
		/* last, because on failure the queue still belongs to the caller */
		error = xts_bundle_wrap(&ch->queue, queue);
		ch->bundle = error ? NULL : ch->queue;
	}
	if (error) {
		if (ch->account.group)
			account_close(&ch->account);
		(void)epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, queue->wait_fd, NULL);
		(void)epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, life_fd, NULL);
		tenant_give(tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
		free(ch->replies);
		free(ch);
		return error;
	}
	ch->tenant = tenant_hold(tenant);
	ch->number = ++worker->channel_numbers;
	list_append(&worker->channels, &ch->member);
	worker->stats.channels++;
	*out = ch;
	return 0;
}

void channel_log(const struct channel *ch, const char *format, ...)
{
	struct log *log = &ch->worker->log;
	char text[LOG_LINE_BYTES];
	va_list arguments;
	uint32_t suppressed;

	if (!tenant_may_log(ch->tenant, ch->worker->now_ns, &suppressed))
		return;
	if (suppressed)
		log_line(log, "tenant %s: %u lines suppressed", ch->tenant->name, suppressed);
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	log_line(log, "tenant %s: queue %u: %s", ch->tenant->name, ch->queue_id, text);
}

void channel_violation(struct channel *ch, const char *what, uint32_t id)
{
	ch->worker->stats.bad_messages++;
	channel_log(ch, "p%08x: host broke the protocol: %s", id, what);
	xts_link_fail(&ch->link, EPROTO);
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

void channel_flush(struct channel *ch)
{
	while (!list_empty(&ch->dirty)) {
		struct connection *c = list_entry(list_pop(&ch->dirty), struct connection, dirty);

		connection_flush(c);
		connection_check(c);
	}
	for (uint32_t i = 0; i < ch->batch_used; i++) {
		xts_queue_recycle(ch->queue, &ch->batch[i].frame);
		xts_link_recycled(&ch->link);
	}
	ch->batch_used = 0;
	ch->batch_bytes = 0;
}

/* From now on the tenant of the process that has opened the link is charged. What earlier processes left stays charged
 * to their tenant. */
static void take_over_costs(struct channel *ch)
{
	struct xts_tenant *tenant = ch->link.config.admit ? token_tenant(ch) : NULL;

	if (!tenant || tenant == ch->tenant)
		return;
	/* without a limit, as they are open already */
	tenant_take_anyway(tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
	tenant_give(ch->tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
	account_move(&ch->worker->schedule, &ch->account, &tenant->weight);
	xts_tenant_release(ch->tenant);
	ch->tenant = tenant_hold(tenant);
	ch->link.config.sockets_max = sockets_max(tenant);
}

static void link_opened(struct channel *ch)
{
	channel_end_epoch(ch, false); /* the process ended without GOODBYE */
	take_over_costs(ch);
	ch->epoch_live = true;
	if (ch->bundle)
		xts_bundle_send(ch->bundle, ch->link.features & XTS_FEATURE_BUNDLE);
	ch->worker->stats.channels_up++;
	ch->worker->stats.hellos++;
	channel_log(ch, "open, %s %u, window %u frames of %u bytes",
		    ch->link.features & XTS_FEATURE_RELAY ? "a relay, process" : "process", ch->link.config.pid,
		    ch->link.frame_window, ch->link.largest_message);
	if (ch->link.features & XTS_FEATURE_RELAY && relay_open(ch)) {
		xts_link_fail(&ch->link, ENOMEM);
		channel_end_epoch(ch, true);
	}
}

/* The link went down: by GOODBYE, or by a violation of the link's or our protocol. */
static void link_closed(struct channel *ch)
{
	struct worker_state *w = ch->worker;

	if (ch->bundle)
		xts_bundle_send(ch->bundle, false);
	if (!ch->epoch_live)
		return;
	if (ch->link.error == ESHUTDOWN)
		w->stats.goodbyes++;
	else
		w->stats.link_failures++;
	channel_log(ch, "closed, %s", ch->link.error == ESHUTDOWN ? "the process has ended" : strerror(ch->link.error));
	channel_end_epoch(ch, ch->link.error != ESHUTDOWN);
}

/* Handles a message in the batch's next entry. True: the entry is kept until the flush. */
static bool deliver(struct channel *ch, const struct xts_head *head, struct batch_entry *e)
{
	struct iovec *first = &e->frame.segment[0];
	uint64_t epoch = ch->link.epoch;
	enum command_result result;

	if (head->type != XTS_CMD_SEND && head->type != XTS_CMD_SEND_PDU && head->type != XTS_CMD_SEND_DATAGRAMS)
		channel_flush(ch); /* data sent before a call takes effect first; e stays valid */
	ch->refusal = XTS_REFUSED_NONE;
	result = command_dispatch(ch, ch->link.features, head, first->iov_base, e->frame.bytes, e);
	if (result == COMMAND_MALFORMED)
		channel_violation(ch, xts_type_name(head->type), head->id);
	/* wipes keys that may have been pushed */
	if ((head->type == XTS_CMD_IOCTL || head->type == XTS_CMD_CONNECT) && result != COMMAND_UNFINISHED)
		explicit_bzero(first->iov_base, first->iov_len);
	if (result == COMMAND_KEPT)
		ch->batch_bytes += e->bytes;
	else if (result != COMMAND_REPLIES && result != COMMAND_UNFINISHED && ch->link.epoch == epoch)
		xts_link_recycled(&ch->link);
	return result == COMMAND_KEPT;
}

/* Carries out a message in the batch's next entry. True: the entry is kept until the flush. */
static bool carry_out(struct channel *ch, const struct xts_head *head, struct batch_entry *e)
{
	bool kept = deliver(ch, head, e);

	channel_check(ch, head->id);
	return kept;
}

/* The batch's next entry has been handled. */
static void settle(struct channel *ch, const struct batch_entry *e, bool kept)
{
	if (kept)
		ch->batch_used++;
	else if (!ch->unfinished.there)
		xts_queue_recycle(ch->queue, &e->frame);
	if (ch->link.state != XTS_LINK_UP)
		link_closed(ch);
}

/* Takes the next frame: -EPIPE, or one of these. */
enum taken { TAKEN_NONE, TAKEN_CHEAP, TAKEN_CALL };

static int receive_one(struct channel *ch)
{
	struct batch_entry *e = &ch->batch[ch->batch_used];
	struct xts_head head;
	int got = xts_queue_receive(ch->queue, &e->frame);
	bool kept = false;

	if (got <= 0)
		return got;
	got = TAKEN_CHEAP;
	switch (xts_link_receive(&ch->link, e->frame.segment[0].iov_base, e->frame.segment[0].iov_len, e->frame.bytes,
				 ch->worker->now_ns, &head)) {
	case XTS_LINK_DELIVER:
		if (head.type == XTS_RELAY_CARRIED && relay_take(ch, &head, &e->frame))
			return TAKEN_CHEAP; /* a relayed frame: the channel that it is carried to recycles it */
		kept = carry_out(ch, &head, e);
		if (!kept)
			got = TAKEN_CALL;
		break;
	case XTS_LINK_OPENED:
		link_opened(ch);
		got = TAKEN_CALL;
		break;
	default:
		break;
	}
	settle(ch, e, kept);
	return got;
}

/* Takes as many frames as a turn has time for, judging by what they have cost lately; *last: the last result of
 * receive_one(). */
static uint32_t receive_batch(struct channel *ch, int *last)
{
	struct worker_state *w = ch->worker;
	uint64_t left_ns = w->turn_end_ns - w->now_ns;
	uint32_t taken = 0, max = schedule_fits(ch->account.frame_ns, list_empty(&ch->ready) ? left_ns : left_ns / 2,
						CHANNEL_BATCH);

	while (taken < max && !ch->ending && !ch->refusing && !ch->binding && !ch->unfinished.there &&
	       ch->batch_used < CHANNEL_BATCH && ch->batch_bytes < BATCH_BYTES) {
		*last = receive_one(ch);
		if (*last <= 0)
			break;
		taken++;
		if (*last == TAKEN_CALL && worker_turn_is_over(w))
			break;
	}
	return taken;
}

/* The channel's process is gone. What it has sent before is still received, in a few more rounds at most, in case it
 * lives and goes on sending. */
static void last_words(struct channel *ch, bool received)
{
	if (!ch->last_rounds || ch->dying || (received && --ch->last_rounds))
		return;
	ch->dying = true;
	ch->worker->stats.goodbyes++;
	channel_log(ch, "the process is gone");
}

/* Goes on with a message that waited until something was made (slow_push.c). */
static void begin_again(struct channel *ch)
{
	struct batch_entry *e = &ch->batch[ch->batch_used];
	struct xts_head head = ch->unfinished.head;

	e->frame = ch->unfinished.frame;
	ch->unfinished.there = false;
	settle(ch, e, carry_out(ch, &head, e));
	ch->unfinished.again = false;
}

/* Goes on with a message that the last turn had no time for. */
static void go_on(struct channel *ch)
{
	if (ch->unfinished.again) {
		begin_again(ch);
		return;
	}
	if (datagrams_read_on(ch)) {
		ch->unfinished.there = false;
		xts_link_recycled(&ch->link);
		xts_queue_recycle(ch->queue, &ch->unfinished.frame);
	}
	if (ch->link.state != XTS_LINK_UP)
		link_closed(ch);
}

bool channel_receive(struct channel *ch)
{
	uint64_t begun_ns = ch->worker->now_ns;
	int last = TAKEN_NONE;
	uint32_t taken;

	if (ch->ending) {
		channel_end_some(ch);
		return true;
	}
	if (ch->refusing) { /* the host's next messages have to find the address free */
		connection_close_listener(ch->refusing);
		return true;
	}
	if (ch->binding) {
		command_bind_goes_on(ch);
		return true;
	}
	if (ch->unfinished.preparation) {
		prepare_help(ch);
		return false;
	}
	if (ch->unfinished.there) {
		go_on(ch);
		return true;
	}
	taken = receive_batch(ch, &last);
	if (taken)
		XTS_PROBE2(worker_frames, ch->queue_id, taken);
	if (last < 0 && !ch->dying) {
		/* A process that exits closes its end of the queue and its attach connection in either order, so it has
		 * most likely exited. If it lives and broke the queue, it loses nothing more by this. */
		channel_log(ch, "the host's end of the queue is gone");
		xts_link_fail(&ch->link, ESHUTDOWN);
		link_closed(ch);
		ch->dying = ch->life_fd >= 0;
	}
	ch->dying |= relay_has_ended(ch);
	if (ch->batch_used || !list_empty(&ch->dirty))
		channel_flush(ch);
	if (taken) {
		(void)worker_turn_is_over(ch->worker); /* reads the clock */
		schedule_learn(&ch->account.frame_ns, taken, ch->worker->now_ns - begun_ns);
	}
	last_words(ch, taken);
	return taken || ch->dying;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

bool channel_slot(struct channel *ch, struct xts_tx_slot *slot)
{
	if (!xts_link_credits(&ch->link))
		return false;
	if (!xts_queue_acquire(ch->queue, slot))
		return true;
	ch->slot_missing = true;
	return false;
}

static void kick(struct channel *ch)
{
	XTS_PROBE3(worker_replies, ch->queue_id, (uint32_t)(uint8_t)(ch->link.sent - ch->link.acked),
		   (uint32_t)ch->link.frame_window);
	ch->kick_again = xts_queue_kick(ch->queue) == -EAGAIN;
	ch->unkicked_bytes = ch->unkicked_messages = 0;
	ch->quiet_frames = 0;
	ch->rung_ack = ch->link.acked_to_peer;
}

/* Have the quiet frames waited long enough for others to go with, or does somebody need them? The host needs the frame
 * credits that they return; we need ours when we run out. */
static bool quiet_no_more(const struct channel *ch)
{
	uint8_t acks = (uint8_t)(ch->link.acked_to_peer - ch->rung_ack);

	if (!ch->quiet_frames)
		return false;
	return ch->quiet_frames >= CHANNEL_QUIET_FRAMES || acks >= ch->link.frame_window / 4 ||
	       !xts_link_credits(&ch->link) || ch->slot_missing ||
	       ch->worker->now_ns - ch->quiet_ns >= CHANNEL_QUIET_MS * UINT64_C(1000000);
}

void channel_submit(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes)
{
	xts_link_seal(&ch->link, slot->data);
	xts_queue_submit(ch->queue, slot, bytes);
	if (!ch->unkicked_bytes)
		ch->unkicked_ns = ch->worker->now_ns;
	ch->unkicked_bytes += bytes;
	ch->unkicked_messages++;
	if (ch->unkicked_bytes >= KICK_BYTES || ch->unkicked_messages >= KICK_MESSAGES)
		kick(ch);
}

void channel_submit_quietly(struct channel *ch, const struct xts_tx_slot *slot, uint32_t bytes)
{
	xts_link_seal(&ch->link, slot->data);
	xts_queue_submit(ch->queue, slot, bytes);
	if (!ch->quiet_frames++)
		ch->quiet_ns = ch->worker->now_ns;
}

static bool send_replies(struct channel *ch)
{
	struct xts_tx_slot slot;
	bool any = false;

	while (ch->reply_count && channel_slot(ch, &slot)) {
		const struct reply *r = &ch->replies[ch->reply_first];

		memcpy(slot.data + XTS_ETH_BYTES, r->frame + XTS_ETH_BYTES, r->bytes - XTS_ETH_BYTES);
		xts_link_recycled(&ch->link);
		ch->reply_first = (ch->reply_first + 1) % XTS_FRAME_WINDOW_MAX;
		ch->reply_count--;
		channel_submit(ch, &slot, r->bytes);
		any = true;
	}
	return any;
}

static bool send_control(struct channel *ch)
{
	struct xts_tx_slot slot;
	bool any = false;

	while (xts_link_control_due(&ch->link)) {
		uint32_t bytes;

		if (xts_queue_acquire(ch->queue, &slot)) {
			ch->slot_missing = true;
			break;
		}
		bytes = (uint32_t)xts_link_control(&ch->link, slot.data, ch->worker->now_ns);
		if (!bytes) {
			xts_queue_abandon(ch->queue, &slot);
			break;
		}
		xts_queue_submit(ch->queue, &slot, bytes);
		ch->unkicked_bytes += bytes;
		any = true;
	}
	return any;
}

/* Gives every ready connection its turn, while there are frame credits. */
static bool send_ready(struct channel *ch)
{
	uint64_t before = ch->link.stats.sent_frames;
	uint32_t turns = 0;

	if (xts_link_credits(&ch->link))
		waiting_frames_missing(ch, false);
	while (!list_empty(&ch->ready) && xts_link_credits(&ch->link) && turns++ < MESSAGES_PER_ROUND) {
		struct connection *c = list_entry(list_pop(&ch->ready), struct connection, ready);

		if (connection_send(c, MESSAGES_PER_TURN))
			connection_wake(c);
		connection_check(c);
		if (ch->slot_missing || ch->link.stats.sent_frames - before >= MESSAGES_PER_ROUND)
			break;
		if (!list_empty(&ch->ready) && worker_turn_is_over(ch->worker)) {
			ch->cut_short = true;
			break;
		}
	}
	if (ch->slot_missing || !xts_link_credits(&ch->link))
		waiting_frames_missing(ch, !list_empty(&ch->ready));
	return ch->cut_short || ch->link.stats.sent_frames != before;
}

/* The turn was over before everything was sent: the rest follows within a round, and a kick for each turn would cost
 * more than the turns do. */
static bool more_comes_soon(const struct channel *ch)
{
	return ch->cut_short && ch->worker->now_ns - ch->unkicked_ns < SCHEDULE_ROUND_NS;
}

bool channel_send(struct channel *ch)
{
	bool any = false;

	ch->slot_missing = ch->cut_short = false;
	if (ch->link.state == XTS_LINK_UP && !ch->ending) {
		if (!ch->link.traffic)
			any |= send_control(ch); /* HELLO_ACK comes before anything else */
		any |= send_replies(ch);
		any |= names_send(ch);
		if (!ch->reply_count)
			any |= send_ready(ch); /* a reply comes before what follows from it */
	}
	any |= send_control(ch);
	if ((ch->unkicked_bytes && !more_comes_soon(ch)) || ch->kick_again || quiet_no_more(ch) ||
	    (ch->relayed.mux && xts_mux_kick_due(ch->relayed.mux)))
		kick(ch);
	return any;
}
