/* SEND and SEND_PDU: the host's data, credits, FIN and CLOSE, gathered per connection until the whole batch of frames
 * has been decoded. */
#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "common/probe.h"
#include "pushed/pushed.h"
#include "worker/histogram.h"

/* Adds the data of a batch entry to the connection's chain, for this many credits; false when it is not kept. */
static bool take_data(struct channel *ch, struct connection *c, struct batch_entry *e, uint32_t skip, uint32_t length,
		      uint32_t credits)
{
	uint8_t entry = (uint8_t)(e - ch->batch);

	c->tcp.accepted_bytes += length;
	XTS_PROBE3(worker_took, ch->link.epoch, c->proxy_id, c->tcp.accepted_bytes);
	if (c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_FAILED) {
		channel_violation(ch, "data on a socket that is not connected", c->proxy_id);
		return false;
	}
	if (xts_credit_receive(&c->grant, credits) || (c->tcp.fin_wanted && !c->fin_of_another)) {
		channel_violation(ch, "data beyond credits or after FIN", c->proxy_id);
		return false;
	}
	if (c->tcp.fin_wanted)
		connection_fail(c, EPIPE); /* this host may not know of it, and its other sockets shall not suffer */
	if (c->state == CONNECTION_FAILED || c->reset_sent || c->tcp.fin_wanted)
		return false; /* dropped: the host knows of the end, or will soon */
	e->skip = skip;
	e->bytes = length;
	e->next = BATCH_NONE;
	if (c->gathered_last == BATCH_NONE) {
		c->gathered_first = entry;
		if (c->since_ns)
			histogram_add(&c->worker->stats.request_gap, c->worker->now_ns - c->since_ns);
		c->since_ns = c->worker->now_ns;
	} else {
		ch->batch[c->gathered_last].next = entry;
	}
	c->gathered_last = entry;
	ledger_took(c);
	channel_dirty(ch, c);
	return true;
}

bool connection_take_credits(struct connection *c, uint32_t post_credits)
{
	if (!post_credits)
		return true;
	waiting_for(c, XTS_WAIT_RECEIVING, XTS_WAIT_NONE);
	if (xts_credit_add(&c->held, post_credits)) {
		channel_violation(c->channel, "credit overflow", c->proxy_id);
		return false;
	}
	if (!c->receive_tuned && c->state == CONNECTION_ESTABLISHED)
		buffers_read(c, post_credits);
	kind_of(c)->credits_came(c, post_credits);
	connection_wake(c);
	return true;
}

static bool take_stream(struct channel *ch, struct connection *c, struct batch_entry *e, uint32_t length, bool more)
{
	if (c->tcp.pushed && c->tcp.pushed->pdu_open) {
		channel_violation(ch, "a byte stream in the middle of a PDU", c->proxy_id);
		return false;
	}
	e->mark.pdu = false;
	if (!take_data(ch, c, e, XTS_SEND_BYTES, length, length))
		return false;
	c->tcp.more = more;
	return true;
}

static void close_from_host(struct channel *ch, struct connection *c, uint8_t flags, uint32_t read_bytes)
{
	/* Data of this batch comes first; the frames themselves are recycled with the batch. */
	if (c->dirty) {
		channel_clean(ch, c);
		connection_flush(c);
	}
	if (c->announced)
		channel_violation(ch, "CLOSE before NEWCONN_ACK", c->proxy_id);
	else
		connection_close(c, flags, read_bytes);
}

enum command_result command_send(struct channel *ch, const struct xts_head *head, const struct xts_send *m,
				 struct batch_entry *e)
{
	struct connection *c = connection_find(ch, head->id);
	bool kept = false;

	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return COMMAND_DONE;
	}
	if (!(head->flags & XTS_FLAG_CLOSE) && !connection_take_credits(c, m->post_credits))
		return COMMAND_DONE;
	if (!kind_of(c)->streams && (m->length || head->flags & XTS_FLAG_FIN)) {
		channel_violation(ch, "a byte stream on a datagram socket", head->id);
		return COMMAND_DONE;
	}
	if (m->length)
		kept = take_stream(ch, c, e, m->length, head->flags & XTS_FLAG_MORE);
	if (ch->link.state != XTS_LINK_UP)
		return kept ? COMMAND_KEPT : COMMAND_DONE;
	if (head->flags & XTS_FLAG_CLOSE) {
		close_from_host(ch, c, head->flags, m->post_credits);
	} else if (head->flags & XTS_FLAG_FIN && c->state == CONNECTION_ESTABLISHED) {
		c->tcp.fin_wanted = true;
		c->tcp.more = false;
		ledger_took(c);
		channel_dirty(ch, c);
	}
	return kept ? COMMAND_KEPT : COMMAND_DONE;
}

/* --- SEND_PDU ----------------------------------------------------------------------------------------------------- */

const char *pushed_check_pdu(struct pushed *p, const struct xts_send_pdu *m, bool more)
{
	if (m->control_type >= XTS_CONTROL_EVENTS)
		return "an event from the host";
	if (!p->pdu_open) {
		p->pdu_bytes = p->pdu_left = m->record_bytes;
	} else if (p->pdu_bytes != m->record_bytes) {
		return "a PDU whose length changes";
	}
	p->pdu_open = more;
	if (p->pdu_bytes && (m->length > p->pdu_left || (!more && m->length != p->pdu_left)))
		return "a PDU whose length is not the one announced";
	p->pdu_left -= p->pdu_bytes ? m->length : 0;
	return NULL;
}

void pushed_mark_of(struct ulp_mark *mark, const struct xts_send_pdu *m, bool more)
{
	*mark = (struct ulp_mark){
		.pdu = true,
		.more = more,
		.control_bytes = (uint8_t)m->control_bytes,
		.control_type = m->control_type,
		.record_bytes = m->record_bytes,
	};
	xts_put64(mark->control, m->control_high);
	xts_put64(mark->control + 8, m->control_low);
}

enum command_result command_send_pdu(struct channel *ch, const struct xts_head *head, const struct xts_send_pdu *m,
				     struct batch_entry *e)
{
	struct connection *c = connection_find(ch, head->id);
	bool more = head->flags & XTS_FLAG_MORE;
	const char *wrong;

	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return COMMAND_DONE;
	}
	if (!connection_take_credits(c, m->post_credits))
		return COMMAND_DONE;
	if (c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_FAILED) {
		channel_violation(ch, "a PDU on a socket that is not connected", head->id);
		return COMMAND_DONE;
	}
	if (pushed_make(c)) {
		connection_fail(c, ENOBUFS);
		return COMMAND_DONE;
	}
	wrong = pushed_check_pdu(c->tcp.pushed, m, more);
	if (wrong) {
		channel_violation(ch, wrong, head->id);
		return COMMAND_DONE;
	}
	pushed_mark_of(&e->mark, m, more);
	return take_data(ch, c, e, XTS_SEND_PDU_BYTES, m->length, m->length + XTS_PDU_CREDITS) ? COMMAND_KEPT :
												 COMMAND_DONE;
}
