/* TCP to host, through what is pushed: a byte stream goes out as RECV, PDUs as RECV_PDU. pushed.h has the theory of operation. */
#include <errno.h>
#include <string.h>

#include "pushed.h"
#include "stream.h"

static void send_pdu(struct connection *c, const struct xts_tx_slot *slot, const struct ulp_mark *mark, uint32_t length)
{
	struct xts_recv_pdu m = {
		.post_credits = stream_advertise(c),
		.length = length,
		.record_bytes = mark->record_bytes,
		.control_type = mark->control_type,
		.control_bytes = mark->control_bytes,
	};

	m.control_high = xts_get64(mark->control);
	m.control_low = xts_get64(mark->control + 8);
	xts_head_encode(slot->data, XTS_REPLY_RECV_PDU, mark->more ? XTS_FLAG_MORE : 0, 0, c->xts_socket);
	xts_recv_pdu_encode(slot->data, &m);
	channel_submit(c->channel, slot, XTS_RECV_PDU_BYTES + length);
}

static bool tls_wanted(const struct connection *c)
{
	return c->pushed->tls_wanted && c->channel->link.features & XTS_FEATURE_ULP_TLS;
}

bool pushed_has_event(const struct connection *c)
{
	const struct pushed *p = c->pushed;

	return (p->event_wanted || p->tls_wanted) && p->ready && c->state == CONNECTION_ESTABLISHED && !c->announced &&
	       !c->connect_reply && (p->event_wanted || tls_wanted(c));
}

void pushed_note_tls(struct connection *c)
{
	struct ulp_tls_told now = ulp_stack_tls(c->pushed->stack), *was = &c->pushed->tls;

	if (now.version == was->version && now.cipher == was->cipher && now.send == was->send && now.receive == was->receive)
		return;
	*was = now;
	c->pushed->tls_wanted = true;
}

void pushed_send_event(struct connection *c, const struct xts_tx_slot *slot)
{
	struct ulp_mark mark = { .pdu = true, .control_type = XTS_CONTROL_READY };
	const struct ulp_tls_told *tls = &c->pushed->tls;

	if (!tls_wanted(c)) {
		c->pushed->event_wanted = false;
		send_pdu(c, slot, &mark, 0);
		return;
	}
	c->pushed->tls_wanted = false;
	mark.control_type = XTS_CONTROL_TLS;
	mark.control_bytes = 6;
	xts_put16(mark.control, tls->version);
	xts_put16(mark.control + 2, tls->cipher);
	mark.control[4] = tls->send;
	mark.control[5] = tls->receive;
	send_pdu(c, slot, &mark, 0);
}

bool pushed_may_read(const struct connection *c)
{
	const struct pushed *p = c->pushed;

	return !p->owed && (p->started || p->peeking || c->error || !ulp_stack_receives(p->stack));
}

/* What a read found that is no data: true when something was sent. */
static bool nothing_read(struct connection *c, const struct xts_tx_slot *slot, ssize_t n)
{
	if (n == -EAGAIN) {
		c->readable = false;
		if (!c->error)
			return false;
	} else if (n != -ENODATA && !c->error) {
		connection_fail(c, (int)-n);
	}
	stream_send_end(c, slot, c->error);
	return true;
}

/* For at most so many bytes there are credits. */
static uint32_t room_for(const struct connection *c, const struct xts_tx_slot *slot)
{
	uint32_t largest = c->channel->link.largest_message;
	uint32_t room = c->held > XTS_PDU_CREDITS ? c->held - XTS_PDU_CREDITS : 0;

	if (largest > slot->capacity)
		largest = slot->capacity;
	return room < largest - XTS_RECV_PDU_BYTES ? room : largest - XTS_RECV_PDU_BYTES;
}

bool pushed_receive(struct connection *c, const struct xts_tx_slot *slot)
{
	struct pushed *p = c->pushed;
	uint8_t *at = slot->data + (p->pdus ? XTS_RECV_PDU_BYTES : XTS_RECV_BYTES);
	uint32_t room = room_for(c, slot);
	struct ulp_mark mark = { 0 };
	ssize_t n;

	if (!room) { /* credits set it again */
		if (!c->error || ulp_stack_pending(p->stack) || ulp_stack_readable(p->stack)) {
			c->readable = false;
			return false;
		}
		n = -EAGAIN;
	} else if (!p->started && !p->peeking) {
		n = -EAGAIN; /* it has failed before what is pushed could read */
	} else {
		n = p->peeking ? peek_read(c, at, room) : ulp_stack_read(p->stack, at, room, &mark);
	}
	if (n < 0)
		return nothing_read(c, slot, n);
	if (mark.pdu != p->pdus) { /* a guess that is wrong only when it changes: PDUs and streams are seldom mixed */
		p->pdus = mark.pdu;
		memmove(slot->data + (mark.pdu ? XTS_RECV_PDU_BYTES : XTS_RECV_BYTES), at, (size_t)n);
	}
	p->since_pdu = mark.pdu ? 0 : p->since_pdu + (uint64_t)n;
	c->held -= (uint32_t)n + (mark.pdu ? XTS_PDU_CREDITS : 0);
	c->received_bytes += (uint64_t)n;
	c->worker->stats.received_bytes += (uint64_t)n;
	if (mark.pdu)
		send_pdu(c, slot, &mark, (uint32_t)n);
	else
		stream_send_recv(c, slot, 0, 0, (uint32_t)n);
	return true;
}
