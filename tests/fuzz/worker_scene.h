/*
 * The scene of fuzz_worker.c: two workers, three hosts with a queue in memory each, TCP peers; and what a host does
 * with what it is sent.
 */
#ifndef XTS_FUZZ_WORKER_SCENE_H
#define XTS_FUZZ_WORKER_SCENE_H

#include "../../dpu_proxy/native/loop/worker.c"
#include "../../dpu_proxy/native/datagrams/datagram_socket.h"
#include "../../dpu_proxy/native/pushed/pushed.h"

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
#define SCENE_FEATURES \
	(XTS_FEATURE_SHARE | XTS_FEATURE_SHARE_BOUND | XTS_FEATURE_ULP | XTS_FEATURE_ULP_TLS | XTS_FEATURE_TAKE | \
	 XTS_FEATURE_DATAGRAM | XTS_FEATURE_STAMPS | XTS_FEATURE_SHARE_DATAGRAM | XTS_FEATURE_NAMES | \
	 XTS_FEATURE_RETURN_DATAGRAM | XTS_FEATURE_RENEW_KEY | XTS_FEATURE_CATCH_UP | XTS_FEATURE_CANCEL | \
	 XTS_FEATURE_WITHDRAW | XTS_FEATURE_MOVE | XTS_FEATURE_MOVE_DATAGRAM | XTS_FEATURE_LISTENING | XTS_FEATURE_OVER)

struct host {
	struct memory_queue *queue;
	struct channel *channel;
	struct xts_link link; /* the host's */
	uint32_t ids[IDS];    /* the proxy's identifiers, as the host learned them */
	uint32_t id_count;
};

struct scene {
	struct xts_worker workers[WORKERS];
	struct host hosts[HOSTS]; /* the first on the first worker, the others on the second */
	struct host *host;        /* whose turn it is */
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
		.role = XTS_LINK_HOST,
		.frame_window = WINDOW,
		.largest_message = LARGEST,
		.epoch = epoch,
		.features = SCENE_FEATURES,
	};

	memcpy(config.local_mac, host_mac, 6);
	memcpy(config.peer_mac, proxy_mac, 6);
	ENSURE(!xts_link_init(&h->link, &config, h->channel->worker->now_ns));
	h->id_count = 0;
	host_pump(h);
}

/* Remembers what a reply tells: most begin with the proxy's identifier. */
static void learn(struct scene *s, const struct xts_head *head, const uint8_t *frame)
{
	if (head->type == XTS_REPLY_RECV || head->type == XTS_REPLY_RECV_PDU || head->type == XTS_REPLY_PARK_ACK ||
	    head->type == XTS_REPLY_RECV_DATAGRAMS || head->type == XTS_REPLY_CONNECT_DATAGRAM_ACK)
		return;
	s->host->ids[s->host->id_count++ % IDS] = xts_get32(frame + XTS_HEAD_BYTES);
	if (head->type == XTS_REPLY_LISTEN_ACK && !head->error)
		s->listen_port = xts_get16(frame + XTS_HEAD_BYTES + 8);
}

/* The same for each message of a frame, which are what the host may be sent. */
static void learn_gathered(struct scene *s, const uint8_t *frame, uint32_t bytes)
{
	struct xts_gathered m;
	struct xts_head head;

	ENSURE(!xts_gathered_decode(&m, frame, bytes) && m.length);
	frame += XTS_GATHERED_BYTES;
	for (uint32_t at = 0, length; at < m.length; at += 2 + length) {
		length = xts_get16(frame + at);
		ENSURE(at + 2 + length <= m.length && !xts_head_decode(&head, frame + at + 2, length));
		ENSURE(xts_type_sequenced(head.type) && xts_type_to_host(head.type) && head.type != XTS_REPLY_GATHERED);
		ENSURE(length >= xts_type_bytes(head.type));
		learn(s, &head, frame + at + 2);
	}
}

static void host_receive(struct scene *s, unsigned count)
{
	struct host *h = s->host;
	struct memory_frame f;

	while (count-- && pipe_get(&h->queue->out, &f)) {
		struct xts_head head;

		if (xts_link_receive(&h->link, f.data, f.bytes, f.bytes, h->channel->worker->now_ns, &head) ==
		    XTS_LINK_DELIVER) {
			if (head.type == XTS_REPLY_GATHERED)
				learn_gathered(s, f.data, f.bytes);
			else
				learn(s, &head, f.data);
			xts_link_recycled(&h->link);
		}
		free(f.data);
	}
	host_pump(h);
}

static struct xts_tenant *tenant; /* of all hosts, so that its limits are in the way soon */

/* paced: what hosts send waits for a rate, in this run. */
static void tenant_open(bool paced)
{
	struct xts_tenant_config config = {
		.name = "fuzz",
		.window_bytes = 1u << 17,
		.window_bytes_max = 1u << 18,
		.limit = { [XTS_USE_CONNECTIONS] = 12,
			   [XTS_USE_LISTENERS] = 4,
			   [XTS_USE_SPILL_BYTES] = 2u << 20,
			   [XTS_USE_ULP_BYTES] = 1u << 16,
			   [XTS_USE_KEPT] = 6,
			   [XTS_USE_KEPT_BYTES] = 1u << 20,
			   [XTS_USE_ORPHANS] = 3,
			   [XTS_USE_ORPHAN_BYTES] = 1u << 18,
			   [XTS_USE_NAMES] = 2,
			   [XTS_USE_LOOKUPS] = 6,
			   [XTS_USE_HANDSHAKES] = 8,
			   [XTS_USE_DESCRIPTORS] = 100,
			   [XTS_USE_SOCKET_BYTES] = 1u << 30 },
	};

	if (!tenant)
		tenant = xts_tenant_new(&config);
	ENSURE(tenant);
	xts_tenant_configure(tenant, &config); /* what was reserved at the rate of another run is forgotten */
	config.pacing_bytes_s = paced ? 20u << 20 : 0;
	config.marks = paced;
	config.dscp = 10;
	xts_tenant_configure(tenant, &config);
}

#endif
