/* What the supervisor reads from a worker: it is taken between two rounds, a listing in several parts
 * (run_in_worker.c). */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "addresses/socket_address.h"
#include "connection/connection_walk.h"
#include "connection/tcp_figures.h"
#include "connection/paced.h"
#include "connection/socket_kind.h"
#include "loop/worker_inside.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "worker/common_lock.h"
#include "tenants/mark.h"

static bool run_stats(struct worker_state *w, void *argument)
{
	struct xts_worker_stats *out = argument;

	*out = w->stats;
	out->common_locks = common_locks;
	registry_stats(w, out);
	return false;
}

int xts_worker_stats(struct xts_worker *worker, struct xts_worker_stats *out)
{
	return worker_ask(worker, run_stats, out);
}

struct listing {
	void *out;
	uint32_t max, found;
	struct walk at;
};

static void list_channel(struct listing *l, const struct channel *ch)
{
	struct xts_channel_stats *out = l->out;

	if (l->found++ >= l->max)
		return;
	out += l->found - 1;
	*out = (struct xts_channel_stats){
		.queue_id = ch->queue_id,
		.relayed = ch->relayed.number,
		.link_state = ch->link.state,
		.link_error = ch->link.error,
		.pid = ch->link.config.pid,
		.epoch = ch->link.epoch,
		.connections = ch->connection_count,
		.listeners = ch->listener_count,
		.frame_credits = xts_link_credits(&ch->link),
		.window_bytes = ch->window_bytes,
		.spill_bytes = ch->spill_bytes,
		.ulp_bytes = ch->ulp_bytes,
		.link = ch->link.stats,
		.queue = ch->queue->stats,
	};
	memcpy(out->tenant, ch->tenant->name, sizeof out->tenant);
}

static bool run_channels(struct worker_state *w, void *argument)
{
	struct listing *l = argument;
	const struct channel *ch;

	walk_goes_on(&l->at, w);
	while ((ch = walk_channel(&l->at, w))) {
		list_channel(l, ch);
		walk_leaves_channel(&l->at);
		if (worker_turn_is_over(w))
			return true;
	}
	return false;
}

int xts_worker_channels(struct xts_worker *worker, struct xts_channel_stats *out, uint32_t max)
{
	struct listing l = { .out = out, .max = max };
	int error;

	error = worker_ask(worker, run_channels, &l);
	return error ? error : (int)l.found;
}

static void list_connection(struct listing *l, const struct channel *ch, const struct connection *c)
{
	struct xts_connection_stats *out = l->out;

	if (l->found++ >= l->max)
		return;
	out += l->found - 1;
	*out = (struct xts_connection_stats){
		.epoch = ch->link.epoch,
		.queue_id = ch->queue_id,
		.xts_socket = c->xts_socket,
		.proxy_id = c->proxy_id,
		.state = c->state,
		.send_credits = c->held,
		.window_bytes = c->window,
		.unadvertised = c->grant.unadvertised,
	};
	tcp_side_view(&c->tcp, &out->side);
	waiting_copy(c, &out->waits);
	if (c->tcp.pushed) {
		out->peeking = c->tcp.pushed->peeking;
		ulp_stack_describe(c->tcp.pushed->stack, true, out->receive_ulps, sizeof out->receive_ulps);
		ulp_stack_describe(c->tcp.pushed->stack, false, out->send_ulps, sizeof out->send_ulps);
		ulp_stack_carrier(c->tcp.pushed->stack, true, out->receive_carrier, sizeof out->receive_carrier);
		ulp_stack_carrier(c->tcp.pushed->stack, false, out->send_carrier, sizeof out->send_carrier);
	}
	if (c->tcp.fd < 0)
		return;
	socket_local(c->tcp.fd, &out->local);
	socket_peer(c->tcp.fd, &out->peer);
	out->pacing_bytes_s = paced_asked(c->tcp.fd);
	out->traffic_class = mark_of(c->tcp.fd, c->tcp.ip_version);
	kind_of(c)->describe(c, out);
}

static bool run_connections(struct worker_state *w, void *argument)
{
	struct listing *l = argument;
	const struct connection *c;

	walk_goes_on(&l->at, w);
	while ((c = walk_connection(&l->at, w))) {
		list_connection(l, c->channel, c);
		l->at.index++;
		if (worker_turn_is_over(w))
			return true;
	}
	return false;
}

int xts_worker_connections(struct xts_worker *worker, struct xts_connection_stats *out, uint32_t max)
{
	struct listing l = { .out = out, .max = max };
	int error;

	error = worker_ask(worker, run_connections, &l);
	return error ? error : (int)l.found;
}

/* --- the connection log ------------------------------------------------------------------------------------------- */

struct closed_listing {
	struct xts_closed_stats *out;
	uint32_t max, found;
};

static bool run_closed(struct worker_state *w, void *argument)
{
	struct closed_listing *l = argument;

	while (l->found < l->max && closed_take(&w->closed, &l->out[l->found])) {
		l->found++;
		if (worker_turn_is_over(w))
			return true;
	}
	return false;
}

int xts_worker_closed(struct xts_worker *worker, struct xts_closed_stats *out, uint32_t max)
{
	struct closed_listing l = { .out = out, .max = max };
	int error = worker_ask(worker, run_closed, &l);

	return error && !l.found ? error : (int)l.found;
}
