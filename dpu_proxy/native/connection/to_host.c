/*
 * TCP to host: the messages of a connection, in the turns that its channel gives it.
 *
 * There is one path, with protocols or without. Data is read straight into a transmit slot: from the stack as soon as
 * it has started, in peek mode by a peek, else from TCP. A mark says whether it belongs to a byte stream (RECV) or to a
 * PDU (RECV_PDU).
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "addresses/socket_address.h"
#include "channel/tickets.h"
#include "connection/connection_inside.h"
#include "connection/socket_kind.h"
#include "channel/ledger.h"
#include "processes/share.h"
#include "pushed/pushed_kept.h"

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* The credits to advertise with a message. */
static uint32_t advertise(struct connection *c)
{
	return c->close_reply || c->state == CONNECTION_FAILED ? 0 : xts_credit_advertise(&c->grant);
}

/* Sends a RECV whose payload of length bytes is in the slot already, and advertises all credits that are due. */
static void send_recv(struct connection *c, const struct xts_tx_slot *slot, uint8_t flags, int error, uint32_t length)
{
	struct xts_recv m = { .length = length, .post_credits = advertise(c) };

	xts_head_encode(slot->data, XTS_REPLY_RECV, flags, (uint16_t)error, c->xts_socket);
	xts_recv_encode(slot->data, &m);
	if (flags & XTS_FLAG_CLOSED && c->unwaited)
		channel_submit_quietly(c->channel, slot, XTS_RECV_BYTES + length);
	else
		channel_submit(c->channel, slot, XTS_RECV_BYTES + length);
}

static void send_pdu(struct connection *c, const struct xts_tx_slot *slot, const struct ulp_mark *mark, uint32_t length)
{
	struct xts_recv_pdu m = {
		.post_credits = advertise(c),
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

static void send_connect_ack(struct connection *c, const struct xts_tx_slot *slot)
{
	struct xts_connect_ack m = { .proxy_id = c->proxy_id };

	c->connect_reply = false;
	ticket_connect_answered(c);
	socket_local(c->tcp.fd, &m.local);
	if (!c->tcp.error) {
		m.post_credits = c->grant.outstanding;
		socket_peer(c->tcp.fd, &m.peer);
	}
	xts_head_encode(slot->data, XTS_REPLY_CONNECT_ACK, 0, (uint16_t)c->tcp.error, c->xts_socket);
	xts_connect_ack_encode(slot->data, &m);
	channel_submit(c->channel, slot, XTS_CONNECT_ACK_BYTES);
	c->tcp.error = 0;
}

/* Sends the end of the stream: EOS, with end_error if it was cut off; or RESET when the connection has failed. Reading
 * finds the FIN before a RST that has come behind it, of which the event may have been seen already. */
static void send_end(struct connection *c, const struct xts_tx_slot *slot, int end_error)
{
	int error;

	c->readable = false;
	if (c->tcp.error) {
		c->reset_sent = true;
		send_recv(c, slot, XTS_FLAG_RESET, c->tcp.error, 0);
		if (c->state == CONNECTION_ESTABLISHED)
			connection_enter(c, CONNECTION_FAILED);
	} else {
		c->eos_sent = true;
		send_recv(c, slot, XTS_FLAG_EOS, end_error, 0);
		error = connection_socket_error(c->tcp.fd);
		if (error)
			connection_fail(c, error);
	}
}

/* Sends the last message about the connection. Its identifier is free afterwards. */
static void send_closed(struct connection *c, const struct xts_tx_slot *slot)
{
	ticket_close_answered(c);
	send_recv(c, slot, XTS_FLAG_CLOSED, c->state == CONNECTION_CLOSING ? c->tcp.error : 0, 0);
	if (c->state == CONNECTION_CLOSING)
		connection_orphan(c);
	else
		connection_free(c, false);
}

static bool send_last(struct connection *c)
{
	struct xts_tx_slot slot;

	if (!channel_slot(c->channel, &slot))
		return true;
	send_closed(c, &slot);
	return false;
}

/* --- events of protocols ------------------------------------------------------------------------------------------ */

static bool tls_wanted(const struct connection *c)
{
	return c->tcp.pushed->tls_wanted && c->channel->link.features & XTS_FEATURE_ULP_TLS;
}

static bool has_event(const struct connection *c)
{
	const struct pushed *p = c->tcp.pushed;

	return p && (p->event_wanted || p->tls_wanted) && p->ready && c->state == CONNECTION_ESTABLISHED &&
	       !c->announced && !c->connect_reply && (p->event_wanted || tls_wanted(c));
}

void pushed_note_tls(struct connection *c)
{
	struct ulp_tls_state now = ulp_stack_tls(c->tcp.pushed->stack), *was = &c->tcp.pushed->tls;

	if (now.version == was->version && now.cipher == was->cipher && now.send == was->send &&
	    now.receive == was->receive)
		return;
	*was = now;
	c->tcp.pushed->tls_wanted = true;
}

static void send_event(struct connection *c, const struct xts_tx_slot *slot)
{
	struct ulp_mark mark = { .pdu = true, .control_type = XTS_CONTROL_READY };
	const struct ulp_tls_state *tls = &c->tcp.pushed->tls;

	pushed_sent_empty(c);
	if (!tls_wanted(c)) {
		c->tcp.pushed->event_wanted = false;
		send_pdu(c, slot, &mark, 0);
		return;
	}
	c->tcp.pushed->tls_wanted = false;
	mark.control_type = XTS_CONTROL_TLS;
	mark.control_bytes = 6;
	xts_put16(mark.control, tls->version);
	xts_put16(mark.control + 2, tls->cipher);
	mark.control[4] = tls->send;
	mark.control[5] = tls->receive;
	send_pdu(c, slot, &mark, 0);
}

/* --- data --------------------------------------------------------------------------------------------------------- */

/* The protocols that are read instead of TCP; NULL: TCP is read. */
static struct pushed *reader_of(const struct connection *c)
{
	struct pushed *p = c->tcp.pushed;

	return p && (p->started || p->peeking || ulp_stack_receives(p->stack)) ? p : NULL;
}

/* May the connection be read now? Not while its data has to wait for pushed protocols. */
static bool may_read(const struct connection *c)
{
	const struct pushed *p = c->tcp.pushed;

	if (c->state != CONNECTION_ESTABLISHED || !c->readable || c->announced || c->reset_sent ||
	    (c->eos_sent && !c->tcp.error))
		return false;
	return !p || (!p->give_back_left && (p->started || p->peeking || c->tcp.error || !ulp_stack_receives(p->stack)));
}

/* For how many bytes there are credits, and room in the slot. Data read from protocols may
 * be a PDU, which costs more. */
static uint32_t room_for(const struct connection *c, const struct xts_tx_slot *slot, const struct pushed *reader)
{
	uint32_t head = reader ? XTS_RECV_PDU_BYTES : XTS_RECV_BYTES, cost = reader ? XTS_PDU_CREDITS : 0;
	uint32_t largest = c->channel->link.largest_message < slot->capacity ? c->channel->link.largest_message :
									       slot->capacity;
	uint32_t room = c->held > cost ? c->held - cost : 0;

	return room < largest - head ? room : largest - head;
}

/* As ulp_stack_read(), for TCP itself; a short read means that the socket is empty. */
static ssize_t read_tcp(struct connection *c, void *out, uint32_t room)
{
	ssize_t n;

	do {
		n = recv(c->tcp.fd, out, room, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n > 0 && (uint32_t)n < room && !c->read_to_end && !c->tcp.error)
		c->readable = false;
	return n > 0 ? n : n ? -errno : -ENODATA;
}

static ssize_t read_some(struct connection *c, struct pushed *reader, void *out, uint32_t room, struct ulp_mark *mark)
{
	if (c->tcp.returned.last)
		return returned_read(&c->tcp.returned, c->tenant, out, room, mark);
	if (!reader) {
		ledger_reads(c, out);
		return read_tcp(c, out, room);
	}
	if (reader->peeking)
		return peek_read(c, out, room);
	if (!reader->started)
		return -EAGAIN; /* it failed before its protocols could read */
	ledger_reads(c, out);
	ulp_stack_shows(reader->stack, c->channel->queue->traits & XTS_QUEUE_PEER_MEMORY);
	return ulp_stack_read(reader->stack, out, room, mark);
}

/* Checks for the end of the stream when there are no credits. Returns as a read, or 1 when there are bytes, which have
 * to wait for credits. */
static ssize_t look_for_end(const struct connection *c, const struct pushed *reader)
{
	uint8_t byte;
	ssize_t n;

	if (c->tcp.returned.last)
		return 1;
	if (reader)
		return !c->tcp.error || ulp_stack_pending(reader->stack) || ulp_stack_readable(reader->stack) ? 1 :
														-EAGAIN;
	if (!c->read_to_end && !c->tcp.error)
		return -EAGAIN;
	n = recv(c->tcp.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n > 0 ? n : n ? -errno : -ENODATA;
}

/* The peer's stream has ended where a protocol does not end, and the host knows that it may send all the same. */
static bool is_cut_off(const struct connection *c)
{
	return c->tcp.pushed && ulp_stack_is_cut(c->tcp.pushed->stack) &&
	       c->channel->link.features & XTS_FEATURE_CUT_OFF;
}

/* Handles a read that found no data. True: something was sent. */
static bool nothing_read(struct connection *c, const struct xts_tx_slot *slot, ssize_t n)
{
	int end_error = 0;

	if (n == -EAGAIN) {
		c->readable = false;
		if (!c->tcp.error)
			return false;
	} else if (n != -ENODATA && !c->tcp.error) {
		if (is_cut_off(c))
			end_error = (int)-n;
		else
			connection_fail(c, (int)-n);
	}
	send_end(c, slot, end_error);
	return true;
}

/* Reads once and sends what came. True: a message was sent, in the slot. */
static bool receive(struct connection *c, const struct xts_tx_slot *slot)
{
	struct pushed *p = c->tcp.pushed, *reader = reader_of(c);
	bool guess = reader && reader->pdus; /* wrong only when the kind changes: PDUs and streams are seldom mixed */
	uint8_t *at = slot->data + (guess ? XTS_RECV_PDU_BYTES : XTS_RECV_BYTES);
	uint32_t room = room_for(c, slot, reader);
	struct ulp_mark mark;
	ssize_t n;

	mark.pdu = false;
	if (reader)
		memset(&mark, 0, sizeof mark);
	n = room ? read_some(c, reader, at, room, &mark) : look_for_end(c, reader);
	/* For TCP this is not known: it had more data than there were credits for. */
	if (!room && (n == 1 || (n == -EAGAIN && !reader && !c->tcp.error)))
		waiting_for(c, XTS_WAIT_RECEIVING, XTS_WAIT_POST_CREDITS);
	if (n < 0)
		return nothing_read(c, slot, n);
	if (!room) {
		c->readable = false; /* new credits set it again */
		return false;
	}
	mark.pdu = mark.pdu && reader; /* bytes that were returned have their own mark */
	if (mark.pdu != guess) {
		reader->pdus = mark.pdu;
		memmove(slot->data + (mark.pdu ? XTS_RECV_PDU_BYTES : XTS_RECV_BYTES), at, (size_t)n);
	}
	if (p)
		p->since_pdu = mark.pdu ? 0 : p->since_pdu + (uint64_t)n;
	c->held -= (uint32_t)n + (mark.pdu ? XTS_PDU_CREDITS : 0);
	c->tcp.received_bytes += (uint64_t)n;
	c->worker->stats.received_bytes += (uint64_t)n;
	if (p && !n)
		pushed_sent_empty(c);
	if (mark.pdu)
		send_pdu(c, slot, &mark, (uint32_t)n);
	else
		send_recv(c, slot, 0, 0, (uint32_t)n);
	return true;
}

/* --- a turn ------------------------------------------------------------------------------------------------------- */

static bool send_some(struct connection *c, uint32_t budget)
{
	struct xts_tx_slot slot;

	while (budget) {
		bool event = has_event(c), yield = held_has_news(c);

		if (c->close_reply) /* what was read has ended a close that waited */
			return send_last(c);
		if (!c->connect_reply && !event && !yield && !may_read(c) && (c->announced || !xts_credit_due(&c->grant)))
			return false;
		if (!channel_slot(c->channel, &slot))
			return true;
		budget--;
		if (c->connect_reply) {
			send_connect_ack(c, &slot);
		} else if (event) {
			send_event(c, &slot);
		} else if (yield) {
			held_send_yield(c, &slot);
		} else if (may_read(c) && receive(c, &slot)) {
			continue;
		} else if (xts_credit_due(&c->grant) && c->state == CONNECTION_ESTABLISHED) {
			send_recv(c, &slot, 0, 0, 0);
		} else {
			channel_abandon(c->channel, &slot);
			return false;
		}
	}
	return true;
}

bool stream_send(struct connection *c, uint32_t budget)
{
	bool more;

	if (!c->tcp.pushed)
		return send_some(c, budget);
	ulp_stack_turn(c->tcp.pushed->stack);
	more = send_some(c, budget);
	pushed_keep(c);
	return more;
}

bool connection_send(struct connection *c, uint32_t budget)
{
	waiting_served(c);
	if (c->close_reply)
		return send_last(c);
	if (c->shares && !share_tell(c))
		return true;
	return kind_of(c)->send(c, budget);
}
