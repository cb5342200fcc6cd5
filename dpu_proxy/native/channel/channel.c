/* A channel and its link: opened for a queue, up and down with the host's process. channel.h has the theory of
 * operation. */
#include "channel/relay.h"
#include "channel/ledger.h"
#include "pushed/pushed.h"
#include "worker/device_clock.h"
#include "common/own_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

static int watch_descriptor(struct worker_state *w, int fd, uint32_t events, struct watch *watch)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

uint32_t channel_sockets_max(const struct xts_tenant *t)
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

/* The features that the proxy offers on a queue. */
static uint64_t features_of(const struct worker_state *worker, const struct xts_queue *queue)
{
	uint64_t features = XTS_FEATURE_SHARE | XTS_FEATURE_SHARE_BOUND | XTS_FEATURE_ULP | XTS_FEATURE_ULP_TLS |
			    XTS_FEATURE_SHRINK | XTS_FEATURE_REFUSAL | XTS_FEATURE_TAKE | XTS_FEATURE_DATAGRAM |
			    XTS_FEATURE_STAMPS | XTS_FEATURE_SHARE_DATAGRAM | XTS_FEATURE_RETURN_DATAGRAM |
			    XTS_FEATURE_CUT_OFF | XTS_FEATURE_FAULT_OF | XTS_FEATURE_RENEW_KEY | XTS_FEATURE_CATCH_UP |
			    XTS_FEATURE_WITHDRAW | XTS_FEATURE_CANCEL | XTS_FEATURE_LISTENING | XTS_FEATURE_OVER;

	if (queue->ops->leave)
		features |= MOVE_FEATURES;
	if (worker->config.names.resolver_count)
		features |= XTS_FEATURE_NAMES;
	features |= xts_packets_features(queue);
	if (queue->traits & XTS_QUEUE_PACKETS && queue->traits & (XTS_QUEUE_FRAGMENTS | XTS_QUEUE_PARTS) &&
	    worker->config.relayed_max)
		features |= XTS_FEATURE_RELAY | (features & XTS_FEATURE_MOVE ? XTS_FEATURE_MOVE_RELAYED : 0);
	return features;
}

/* A queue that another process can go on with, and where that finds it, in the ledger: the innermost, of its kind, and
 * the outermost, if that repeats lost frames. */
struct placing {
	struct xts_queue *outermost, *arq; /* arq: where it is now; NULL: it is not in the ledger */
	/* outer NULL: the innermost has no decorator; there NULL: it is not in the ledger */
	struct xts_queue *outer, *before, *there;
};

static struct xts_queue *place(struct placing *p, struct xts_queue *queue, uint32_t queue_id)
{
	void *memory;

	*p = (struct placing){ .outermost = queue };
	memory = queue->ops->leave && queue->ops->settle && queue->traits & XTS_QUEUE_CLOCK ?
			 ledger_session(queue_id, queue->ops->struct_bytes) :
			 NULL;
	if (memory)
		queue = p->arq = xts_queue_place(queue, memory);
	for (p->before = queue; p->before->inner; p->before = p->before->inner)
		p->outer = p->before;
	memory = queue->ops->leave ? ledger_queue(queue_id, p->before->ops->struct_bytes) : NULL;
	if (!memory)
		return queue;
	p->there = xts_queue_place(p->before, memory);
	if (p->outer)
		p->outer->inner = p->there;
	return p->outer ? queue : p->there;
}

/* The queue is the caller's again. */
static void take_back(struct placing *p)
{
	if (p->there && p->outer)
		p->outer->inner = p->before;
}

/* It is the channel's: of what was placed only the structs are left. */
static void placed(struct placing *p)
{
	if (p->there)
		xts_release(p->before);
	if (p->arq)
		xts_release(p->outermost);
}

int channel_open(struct channel **out, struct worker_state *worker, struct xts_queue *adopted, int life_fd,
		 uint32_t queue_id, struct xts_tenant *tenant)
{
	struct placing placing;
	struct xts_queue *queue = place(&placing, adopted, queue_id);
	struct xts_link_config config = {
		.role = XTS_LINK_PROXY,
		.ethertype = worker->config.ethertype,
		.frame_window = queue->frame_window,
		.largest_message = xts_packets_bytes(queue),
		.head_bytes = queue->head_bytes,
		.features = features_of(worker, queue),
		.sockets_max = channel_sockets_max(tenant),
		.clock = device_time,
		.clock_context = worker,
	};
	struct channel *ch = calloc(1, sizeof *ch);
	int error;

	if (placing.there)
		config.features |= XTS_FEATURE_RESUME |
				   (config.features & XTS_FEATURE_RELAY ? XTS_FEATURE_RESUME_RELAYED : 0);
	if (!ch) {
		take_back(&placing);
		return -ENOMEM;
	}
	ch->descriptors = queue->wait_fd >= 0 ? CHANNEL_DESCRIPTORS : 0;
	if (!tenant_take(tenant, XTS_USE_DESCRIPTORS, ch->descriptors)) {
		take_back(&placing);
		free(ch);
		return -ENOBUFS;
	}
	ch->replies = calloc(XTS_FRAME_WINDOW_MAX, sizeof *ch->replies);
	/* Who has attached here is known: its attach connection is its own. */
	if (!(life_fd >= 0 && queue->traits & XTS_QUEUE_DEATH_SHOWS) && worker->trust.key_bytes) {
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
	ch->queue = ch->own_queue = queue;
	ch->queue_id = queue_id;
	ch->life_fd = life_fd;
	list_init(&ch->connections);
	list_init(&ch->ready);
	list_init(&ch->gather.asked);
	list_init(&ch->noted);
	list_init(&ch->names.lookups);
	list_init(&ch->names.noted);
	list_init(&ch->names.answered);
	list_init(&ch->returning);
	if (!error)
		error = account_open(&worker->schedule, &ch->account, &tenant->weight);
	if (!error && queue->wait_fd >= 0)
		error = watch_descriptor(worker, queue->wait_fd, EPOLLIN, &ch->queue_watch);
	if (!error && life_fd >= 0)
		error = watch_descriptor(worker, life_fd, EPOLLRDHUP, &ch->life_watch); /* what is sent is not for it */
	if (!error) /* last, because on failure the queue still belongs to the caller */
		error = xts_packets_wrap(&ch->packets, &ch->queue);
	if (error) {
		if (ch->account.group)
			account_close(&ch->account);
		(void)epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, queue->wait_fd, NULL);
		(void)epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, life_fd, NULL);
		tenant_give(tenant, XTS_USE_DESCRIPTORS, ch->descriptors);
		take_back(&placing);
		free(ch->replies);
		free(ch);
		return error;
	}
	placed(&placing);
	ch->tenant = tenant_hold(tenant);
	ch->owner = (struct xts_owner){ XTS_UID_UNKNOWN, XTS_FIRST_PORT_UNKNOWN };
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
	xts_link_violated(&ch->link, what);
}
