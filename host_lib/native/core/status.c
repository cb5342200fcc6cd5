/* The status page (status.h): what `xts status` shows about this process. */
#include <linux/filter.h>
#include <stdio.h>
#include <string.h>

#include "attaching/attach.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/link.h"
#include "queues/queue_kinds.h"
#include "attaching/status.h"
#include "ulps/pushed.h"
#include "xts.h"
#include "xts_private.h"

static struct xts_status_page *page(struct stack *st)
{
	return st->channel ? st->channel->attachment.status : NULL;
}

/* The entry of a socket; NULL: there is no page, or the page has no entry for it. */
static struct xts_status_entry *entry_of(const struct xts_sock *s)
{
	struct xts_status_page *p = page(s->stack);
	uint32_t index = table_place(s);

	return p && index < XTS_STATUS_ENTRIES ? &p->entry[index] : NULL;
}

static uint8_t state_of(const struct xts_sock *s)
{
	if (!s->in_use)
		return XTS_STATE_FREE;
	if (s->closing)
		return XTS_STATE_CLOSING;
	if (s->error || s->lost || s->away)
		return XTS_STATE_FAILED;
	return kind_of(s)->status(s);
}

void status_data(struct xts_sock *s)
{
	struct xts_status_entry *e = entry_of(s);

	if (!e)
		return;
	e->recv_queue = s->state == TCP_STATE_LISTEN ? s->cold->accept_count : s->unread;
	e->send_credits = s->credits;
	e->recv_window = s->grant.window;
	e->recv_unadvertised = s->grant.unadvertised;
	e->sent_bytes = s->sent_bytes;
	e->received_bytes = s->received_bytes;
	waits_look(s);
	figures_data(s->stack);
}

static void write_layers(uint8_t *out, const struct xts_sock *s, unsigned direction)
{
	_Static_assert(ULP_DEPTH == XTS_STATUS_ULPS, "layers");
	memset(out, 0, ULP_DEPTH);
	memcpy(out, s->cold->ulps.id[direction], s->cold->ulps.depth[direction]);
}

/* Most connections have none. To write that for each of their states was 6 % of the instructions of connect() and
 * close(). An entry whose socket before had some still says so. */
static bool without_ulps(const struct xts_status_entry *e, const struct xts_sock *s)
{
	const uint8_t *depth = s->cold->ulps.depth;

	return !(depth[ULPS_RECEIVE] | depth[ULPS_SEND] | e->receive_ulps[0] | e->send_ulps[0]);
}

void status_ulps(const struct xts_sock *s)
{
	struct xts_status_entry *e = entry_of(s);

	if (!e || without_ulps(e, s))
		return;
	write_layers(e->receive_ulps, s, ULPS_RECEIVE);
	write_layers(e->send_ulps, s, ULPS_SEND);
	e->tls_version = s->cold->ulps.tls_version;
	e->tls_cipher = s->cold->ulps.tls_cipher;
	e->tls_send = s->cold->ulps.tls_by[ULPS_SEND];
	e->tls_receive = s->cold->ulps.tls_by[ULPS_RECEIVE];
}

void status_state(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct xts_status_entry *e = entry_of(s);
	struct xts_status_page *p = page(st);

	socket_check(s);
	if (p)
		p->sockets = st->sockets;
	if (!e)
		return;
	if (p->used <= table_place(s))
		p->used = table_place(s) + 1;
	e->xts_socket = s->id;
	e->proxy_id = s->proxy_id;
	e->state = state_of(s);
	e->reason = s->own.why_gone;
	e->error = s->error;
	e->local = s->local;
	e->peer = s->peer;
	status_data(s);
	status_ulps(s);
}

static void status_polling(const struct stack *st)
{
	struct xts_status_polling *out = st->channel->attachment.polling;

	if (!out)
		return;
	out->spin_misses = st->spin_misses;
	out->spin_ns = st->spin_ns;
	out->magic = XTS_POLLING_MAGIC;
}

void status_link(struct stack *st)
{
	struct xts_status_page *p = page(st);

	if (!p)
		return;
	p->link_state = st->channel->link.state;
	p->frame_credits = xts_link_credits(&st->channel->link);
	p->sleeps = st->sleeps;
	p->spins = st->spins;
	status_polling(st);
	figures_update(st);
}

void status_clock(const struct channel *c)
{
	struct xts_status_clock *out = c->attachment.clock;
	struct xts_clock_sample s;

	if (!out || !device_clock_compare(&c->clock, &s))
		return;
	out->ahead_ns = s.ahead_ns;
	out->error_ns = s.error_ns;
	out->measured_ns = s.at_ns;
	out->follows_ns = c->clock.follows_ns;
	out->magic = XTS_CLOCK_MAGIC;
}

int xts_state(int number)
{
	struct stack *st;
	struct xts_sock *s;
	int r;

	st = stack_enter_of(number);
	s = table_open(st, number);
	r = s ? state_of(s) : -EBADF;
	stack_leave(st);
	return finish(r);
}

int xts_get_totals(struct xts_totals *out)
{
	*out = (struct xts_totals){ 0 };
	process_start();
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		stack_enter(st);
		channel_pump(st);
		out->sent_bytes += st->sent_bytes;
		out->received_bytes += st->received_bytes;
		out->relayed |= st->channel && st->channel->attachment.reply.relayed;
		stack_leave(st);
	}
	return 0;
}

int xts_get_info(struct xts_info *info)
{
	struct stack *st;
	struct xts_info out = { .size = sizeof out };
	struct channel *c;
	size_t size;

	if (!info || info->size < sizeof info->size)
		return finish(-EINVAL);
	size = info->size < sizeof out ? info->size : sizeof out;
	st = stack_enter_own();
	channel_pump(st);
	c = st->channel;
	out.link_state = XTS_LINK_DOWN;
	out.link_error = st->last_error;
	memcpy(out.attach_error, st->attach_error, sizeof out.attach_error);
	out.sockets = st->sockets;
	out.sleeps = st->sleeps;
	out.spins = st->spins;
	out.malformed = st->bad_messages + st->bad_ids;
	out.not_inherited = st->not_inherited;
	out.sent_bytes = st->sent_bytes;
	out.received_bytes = st->received_bytes;
	out.lock_waits = st->lock_waits;
	out.stack = st->place;
	if (c) {
		snprintf(out.queue_kind, sizeof out.queue_kind, "%s",
			 c->attachment.reply.relayed ? "relay" : xts_queue_kind(c->attachment.reply.kind)->name);
		/* xts_attach() has terminated it */
		memcpy(out.interface, c->attachment.reply.interface, sizeof out.interface);
		out.queue_id = c->attachment.reply.queue_id;
		out.link_state = c->link.state;
		out.frame_window = c->link.frame_window;
		out.frame_credits = xts_link_credits(&c->link);
		out.largest_message = c->link.largest_message;
		out.features = c->link.features;
		out.epoch = c->link.epoch;
		out.sent_frames = c->link.stats.sent_frames;
		out.received_frames = c->link.stats.received_frames;
		out.sent_acks = c->link.stats.sent_acks;
		out.received_acks = c->link.stats.received_acks;
		out.kicks = c->queue->stats.kicks;
		out.sent_packets = c->queue->stats.tx_frames;
		out.received_packets = c->queue->stats.rx_frames;
		out.malformed += c->link.stats.malformed;
	}
	out.size = size;
	memcpy(info, &out, size);
	stack_leave(st);
	if (!c)
		last_error_note(ENOTCONN,
				"this thread's stack is not attached to an offload proxy (yet): make an XTS socket");
	return finish(c ? 0 : -ENOTCONN);
}
