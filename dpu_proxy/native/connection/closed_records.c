/* Records of connections that have ended: making them, and keeping them until the supervisor reads them; see closed_records.h. */
#include "connection/closed_records.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "pushed/pushed.h"

struct closed {
	struct closed *next;
	bool handed_over;
	struct xts_closed_stats stats;
};

void closed_begin(struct connection *c, enum xts_closed_begin how, const struct xts_endpoint *peer)
{
	struct worker_state *w = c->worker;

	if (c->closed) /* an earlier attempt to connect has failed */
		closed_end(c, false);
	if (!w->config.closed_sample || ++w->closed.begun < w->config.closed_sample)
		return;
	w->closed.begun = 0;
	c->closed = calloc(1, sizeof *c->closed);
	if (!c->closed) {
		w->stats.closed_lost++;
		return;
	}
	c->closed->stats = (struct xts_closed_stats){ .begin = (uint8_t)how, .begun_ns = w->now_ns };
	if (peer)
		c->closed->stats.peer = *peer;
	else
		socket_peer(c->tcp.fd, &c->closed->stats.peer);
	if (how != XTS_BEGUN_CONNECT)
		closed_connected(c);
}

void closed_connected(struct connection *c)
{
	if (!c->closed)
		return;
	c->closed->stats.connected_ns = c->worker->now_ns;
	socket_local(c->tcp.fd, &c->closed->stats.local);
}

void closed_leaves(struct connection *c)
{
	struct xts_closed_stats *s = c->closed ? &c->closed->stats : NULL;

	if (!s || !c->channel)
		return;
	s->queue_id = c->channel->queue_id;
	s->relayed = c->channel->relayed.number;
	s->pid = c->channel->link.config.pid;
	s->xts_socket = c->xts_socket;
	s->proxy_id = c->proxy_id;
}

static enum xts_closed_end end_of(const struct connection *c, bool reset)
{
	const struct channel *ch = c->channel;

	if (!c->closed->stats.connected_ns)
		return XTS_ENDED_UNCONNECTED;
	if (c->closed->handed_over)
		return XTS_ENDED_HANDED_OVER;
	if (c->tcp.error)
		return XTS_ENDED_FAILED;
	if (c->orphan)
		return reset ? XTS_ENDED_UNDELIVERED : XTS_ENDED_DELIVERED;
	if (ch && (ch->ending || ch->dying || !ch->epoch_live))
		return XTS_ENDED_HOST_GONE;
	return reset ? XTS_ENDED_RESET : XTS_ENDED_CLOSED;
}

static void note_tcp(struct xts_closed_stats *s, int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof info;

	memset(&info, 0, sizeof info);
	if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
		return;
	s->rtt_us = info.tcpi_rtt;
	s->retransmits = info.tcpi_total_retrans;
}

void closed_end(struct connection *c, bool reset)
{
	struct closed_list *l = &c->worker->closed;
	struct closed *record = c->closed;
	struct xts_closed_stats *s;

	if (!record)
		return;
	s = &record->stats;
	closed_leaves(c);
	s->end = (uint8_t)end_of(c, reset);
	s->ended_ns = c->worker->now_ns;
	tcp_side_view(&c->tcp, &s->side);
	note_tcp(s, c->tcp.fd);
	memcpy(s->tenant, c->tenant->name, sizeof s->tenant);
	if (c->tcp.pushed)
		ulp_stack_describe(c->tcp.pushed->stack, false, s->ulps, sizeof s->ulps);
	c->closed = NULL;
	if (l->count >= CLOSED_MAX) {
		c->worker->stats.closed_lost++;
		free(record);
		return;
	}
	if (l->last)
		l->last->next = record;
	else
		l->first = record;
	l->last = record;
	l->count++;
}

void closed_handed_over(struct connection *c)
{
	if (c->closed)
		c->closed->handed_over = true;
	closed_end(c, false);
}

bool closed_take(struct closed_list *l, struct xts_closed_stats *out)
{
	struct closed *record = l->first;

	if (!record)
		return false;
	l->first = record->next;
	if (!l->first)
		l->last = NULL;
	l->count--;
	*out = record->stats;
	free(record);
	return true;
}

void closed_free(struct closed_list *l)
{
	struct xts_closed_stats dropped;

	while (closed_take(l, &dropped))
		;
}
