/* SEND, the host's data, credits, FIN and CLOSE: gathered per connection until the batch of frames has been looked at. */
#include "pushed.h"

bool send_take_data(struct channel *ch, struct connection *c, uint32_t entry, uint32_t skip, uint32_t length, uint32_t credits)
{
	struct batch_entry *e = &ch->batch[entry];

	if (c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_FAILED) {
		channel_violation(ch, "data on a socket that is not connected", c->proxy_id);
		return false;
	}
	if (xts_credit_receive(&c->grant, credits) || c->fin_wanted) {
		channel_violation(ch, "data beyond credits or after FIN", c->proxy_id);
		return false;
	}
	if (c->state == CONNECTION_FAILED || c->reset_told)
		return false; /* dropped: the host knows or will soon */
	e->skip = skip;
	e->bytes = length;
	e->next = BATCH_NONE;
	if (c->gathered_last == BATCH_NONE)
		c->gathered_first = entry;
	else
		ch->batch[c->gathered_last].next = entry;
	c->gathered_last = entry;
	if (list_empty(&c->dirty))
		list_append(&ch->dirty, &c->dirty);
	return true;
}

bool send_take_credits(struct channel *ch, struct connection *c, uint32_t post_credits)
{
	if (!post_credits)
		return true;
	if (xts_credit_add(&c->held, post_credits)) {
		channel_violation(ch, "credit overflow", c->proxy_id);
		return false;
	}
	if (!c->receive_tuned && c->state == CONNECTION_ESTABLISHED)
		buffers_read(c, post_credits);
	c->readable |= c->state == CONNECTION_LISTENER || c->held == post_credits || c->pushed;
	connection_wake(c);
	return true;
}

static bool take_stream(struct channel *ch, struct connection *c, uint32_t entry, uint32_t length, bool more)
{
	if (c->pushed && c->pushed->pdu_open) {
		channel_violation(ch, "a byte stream in the middle of a PDU", c->proxy_id);
		return false;
	}
	ch->batch[entry].mark.pdu = false;
	if (!send_take_data(ch, c, entry, XTS_SEND_BYTES, length, length))
		return false;
	c->more = more;
	return true;
}

static void close_from_host(struct channel *ch, struct connection *c, uint8_t flags, uint32_t read_bytes)
{
	/* Data of this batch comes first; the frames themselves are recycled with the batch. */
	if (!list_empty(&c->dirty)) {
		list_remove(&c->dirty);
		connection_flush(c);
	}
	if (c->announced)
		channel_violation(ch, "CLOSE before NEWCONN_ACK", c->proxy_id);
	else
		connection_close(c, flags, read_bytes);
}

bool command_send(struct channel *ch, const struct xts_head *head, uint32_t entry)
{
	const struct xts_rx_frame *frame = &ch->batch[entry].frame;
	struct connection *c = connection_find(ch, head->id);
	struct xts_send m;
	bool kept = false;

	if (xts_send_decode(&m, frame->segment[0].iov_base, frame->bytes)) {
		command_malformed(ch, head);
		return false;
	}
	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return false;
	}
	if (!(head->flags & XTS_FLAG_CLOSE) && !send_take_credits(ch, c, m.post_credits))
		return false;
	if (m.length)
		kept = take_stream(ch, c, entry, m.length, head->flags & XTS_FLAG_MORE);
	if (ch->link.state != XTS_LINK_UP)
		return kept;
	if (head->flags & XTS_FLAG_CLOSE) {
		close_from_host(ch, c, head->flags, m.post_credits);
	} else if (head->flags & XTS_FLAG_FIN && c->state == CONNECTION_ESTABLISHED) {
		c->fin_wanted = true;
		c->more = false;
		if (list_empty(&c->dirty))
			list_append(&ch->dirty, &c->dirty);
	}
	return kept;
}
