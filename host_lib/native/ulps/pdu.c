/*
 * PDUs in the receive buffer.
 *
 * Their bytes are kept in pieces (received_data.c), as those of a stream. In addition a socket has a list of *PDUs*,
 * each with its share of the unread bytes: the list covers all unread bytes, in order, and only its last PDU may still
 * be incomplete. A byte stream without PDUs has no list, and no cost for it. If stream data lies between PDUs (control
 * records of TLS on a stream socket), the list has an entry for that run of bytes, marked as stream data.
 *
 * Credits: each message of a PDU takes XTS_PDU_CREDITS in addition to its bytes. They are returned when its bytes are
 * read.
 *
 * A PDU is delivered when it is complete. One that is longer than the window would stop the flow. So when the waiting
 * bytes reach half of the window, the window grows, and when it has its full size, a part of the PDU is delivered
 * (PROTOCOL.md explains why that suffices; tests/model/pdu.pml).
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/received_data.h"
#include "core/channel.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/transfer.h"
#include "link/credit.h"
#include "common/own_memory.h"
#include "queues/queue.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/mirror.h"

bool pdu_is_open(const struct xts_sock *s)
{
	return s->cold->pdu_last && !s->cold->pdu_last->stream && !s->cold->pdu_last->whole;
}

/* Do so many bytes wait that some of them have to be delivered now? */
static bool is_crowded(const struct xts_sock *s)
{
	return xts_credit_buffered(&s->grant) >= s->grant.window / 2;
}

/* Would that be so even without the packets that the program holds (core/receive_callback.h)? They reduce the window:
 * half of the rest must be in use. */
static bool crowds(const struct xts_sock *s)
{
	uint32_t held = s->callback ? s->callback->held : 0;
	uint32_t rest = s->grant.window > held ? s->grant.window - held : 0;

	return xts_credit_buffered(&s->grant) >= held + rest / 2;
}

bool pdu_is_readable(const struct xts_sock *s)
{
	const struct pdu *p = s->cold->pdu_first;

	if (!p || s->pushing || callback_decides(s))
		return false;
	if (p->stream || p->whole)
		return true;
	/* The second condition: on a connection that has failed, the rest of the PDU will never come. */
	return p->bytes && s->state == TCP_STATE_ESTABLISHED && is_crowded(s) && crowds(s);
}

uint32_t pdu_credits(const struct xts_sock *s)
{
	uint32_t messages = 0;

	for (const struct pdu *p = s->cold->pdu_first; p; p = p->next)
		messages += p->messages;
	return messages * XTS_PDU_CREDITS;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

static struct pdu *add(struct xts_sock *s)
{
	struct pdu *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	if (s->cold->pdu_last)
		s->cold->pdu_last->next = p;
	else
		s->cold->pdu_first = p;
	s->cold->pdu_last = p;
	return p;
}

static void drop_first(struct xts_sock *s)
{
	struct pdu *p = s->cold->pdu_first;

	s->cold->pdu_first = p->next;
	if (!s->cold->pdu_first)
		s->cold->pdu_last = NULL;
	xts_release(p);
}

void pdu_drop(struct xts_sock *s)
{
	while (s->cold->pdu_first)
		drop_first(s);
}

/* --- in records (processes/socket_record.h) ----------------------------------------------------------------------- */

static bool list_next(const void *member, uintptr_t *at, void *element)
{
	const struct pdu_chain *c = member;
	const struct pdu *p = *at ? ((const struct pdu *)*at)->next : c->first;

	*at = (uintptr_t)p;
	if (p)
		memcpy(element, p, sizeof *p);
	return p;
}

static void list_begin(void *member)
{
	*(struct pdu_chain *)member = (struct pdu_chain){ 0 };
}

static int list_append(void *member, const void *element)
{
	struct pdu_chain *c = member;
	struct pdu *p = malloc(sizeof *p);

	if (!p)
		return -ENOMEM;
	memcpy(p, element, sizeof *p);
	p->next = NULL;
	if (c->last)
		c->last->next = p;
	else
		c->first = p;
	c->last = p;
	return 0;
}

static void list_drop(void *member)
{
	struct pdu_chain *c = member;

	while (c->first) {
		struct pdu *p = c->first;

		c->first = p->next;
		free(p);
	}
	c->last = NULL;
}

const struct xts_record_list pdu_list = { list_next, list_begin, list_append, list_drop };

bool pdu_stream_data(struct xts_sock *s, uint32_t bytes)
{
	if (pdu_is_open(s))
		return false;
	if (!s->cold->pdu_last->stream && !add(s)) {
		channel_fail(s->stack, ENOMEM);
		return true;
	}
	s->cold->pdu_last->stream = true;
	s->cold->pdu_last->bytes += bytes;
	return true;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

void pdu_make_room(struct xts_sock *s)
{
	const struct pdu *p = s->cold->pdu_first;

	if (!p || p->stream || p->whole || s->state != TCP_STATE_ESTABLISHED || s->lost || s->closing)
		return;
	while (s->grant.window < s->window_max && is_crowded(s)) {
		uint32_t growth = s->window_max - s->grant.window;

		xts_credit_grow(&s->grant, growth < s->grant.window ? growth : s->grant.window);
		outbox_add(s, TODO_ADVERT);
	}
}

static void describe(struct pdu *p, const struct xts_recv_pdu *m)
{
	uint64_t control[2] = { htobe64(m->control_high), htobe64(m->control_low) };

	p->control_type = m->control_type;
	p->control_bytes = (uint8_t)m->control_bytes;
	memcpy(p->control, control, sizeof control);
}

/* The PDU that this message belongs to; NULL: no memory, or it cannot belong to the incomplete one. */
static struct pdu *find_or_add(struct xts_sock *s, const struct xts_recv_pdu *m)
{
	struct pdu *p = s->cold->pdu_last;

	if (pdu_is_open(s) && (p->messages || p->bytes || p->read))
		return p;
	if (pdu_is_open(s)) { /* the data received so far has been dropped */
		describe(p, m);
		return p;
	}
	if (!p && s->unread) {
		p = add(s);
		if (!p)
			return NULL;
		p->stream = true;
		p->bytes = s->unread;
	}
	p = add(s);
	if (!p)
		return NULL;
	p->read = s->cold->sharing.pdu_read;
	s->cold->sharing.pdu_read = 0;
	describe(p, m);
	return p;
}

/* True: the frame no longer belongs to the caller. */
static bool append(struct xts_sock *s, struct pdu *p, const struct xts_recv_pdu *m, bool more, struct xts_rx_frame *frame)
{
	struct stack *st = s->stack;
	bool costs = m->length || !more || !p->messages;
	uint64_t length = (uint64_t)p->read + p->bytes + m->length;
	uint32_t record = m->record_bytes ? m->record_bytes : p->record_bytes;

	if (length > UINT32_MAX || (record && (more ? length > record : length != record))) {
		channel_violation(st, "a PDU of another length than its record");
		return true;
	}
	p->record_bytes = record;
	p->bytes += m->length;
	p->whole = !more;
	if (costs) {
		p->messages++;
	} else {
		xts_credit_free(&s->grant, XTS_PDU_CREDITS); /* the message leaves nothing in the buffer */
		if (xts_credit_due(&s->grant))
			outbox_add(s, TODO_ADVERT);
	}
	s->received_bytes += m->length;
	st->received_bytes += m->length;
	if (s->grant.outstanding < s->grant.window / 2)
		s->squeezed = true;
	socket_asked(s, false);
	if (!m->length)
		return false;
	buffer_append(s, frame, XTS_RECV_PDU_BYTES, m->length);
	return true;
}

/* How the connection is encrypted, for `xts status`. */
static void receive_tls(struct xts_sock *s, const struct xts_recv_pdu *m)
{
	s->cold->ulps.tls_version = (uint16_t)(m->control_high >> 48);
	s->cold->ulps.tls_cipher = (uint16_t)(m->control_high >> 32);
	s->cold->ulps.tls_by[ULPS_SEND] = (uint8_t)(m->control_high >> 24);
	s->cold->ulps.tls_by[ULPS_RECEIVE] = (uint8_t)(m->control_high >> 16);
	status_ulps(s);
}

static void receive_event(struct xts_sock *s, const struct xts_recv_pdu *m)
{
	struct stack *st = s->stack;

	if (m->control_type == XTS_CONTROL_TLS && !m->length && m->control_bytes == 6 &&
	    st->channel->link.features & XTS_FEATURE_ULP_TLS) {
		receive_tls(s, m);
		return;
	}
	if (m->control_type != XTS_CONTROL_READY || m->length) {
		channel_violation(st, "an unknown event of a pushed protocol");
		return;
	}
	s->cold->ulps.handshaking = false;
	socket_asked(s, false);
	status_data(s);
	socket_changed(s, EPOLLOUT);
}

bool message_recv_pdu(struct stack *st, const struct xts_head *head, const struct xts_recv_pdu *m,
		      struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);
	struct channel *c = st->channel;
	struct pdu *p;
	bool taken;

	if (!s || s->closing)
		return false; /* it crossed our CLOSE */
	if (s->state != TCP_STATE_ESTABLISHED || !(c->link.features & XTS_FEATURE_ULP)) {
		channel_violation(st, "a PDU for a socket that has no pushed protocols, or is not connected");
		return true;
	}
	if (m->post_credits && !message_credits(s, m->post_credits))
		return true;
	if (m->control_type >= XTS_CONTROL_EVENTS) {
		receive_event(s, m);
		if (st->channel == c && m->post_credits)
			socket_changed(s, EPOLLOUT);
		return st->channel != c;
	}
	if (s->done || (s->todo & TODO_GIVE_BACK) || xts_credit_receive(&s->grant, m->length + XTS_PDU_CREDITS)) {
		channel_violation(st, "a PDU beyond the credits, or behind the end");
		return true;
	}
	p = find_or_add(s, m);
	if (!p) {
		channel_fail(st, ENOMEM);
		return true;
	}
	taken = append(s, p, m, head->flags & XTS_FLAG_MORE, frame);
	if (st->channel != c)
		return true;
	if (p->whole && callback_has_function(s))
		pdu_offer(s);
	pdu_make_room(s);
	status_data(s);
	if (pdu_is_readable(s))
		socket_changed(s, EPOLLIN | (m->post_credits && s->no_space ? EPOLLOUT : 0u));
	else if (m->post_credits)
		socket_changed(s, EPOLLOUT);
	return taken;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

uint32_t pdu_take(struct xts_sock *s, uint32_t bytes)
{
	struct pdu *p = s->cold->pdu_first;
	uint32_t messages = bytes == p->bytes ? p->messages : (uint32_t)((uint64_t)p->messages * bytes / p->bytes);

	p->messages -= messages;
	p->bytes -= bytes;
	p->read += bytes;
	if (!p->bytes && (p->whole || p->stream)) {
		drop_first(s);
		callback_next(s);
	}
	if (s->cold->pdu_first && s->cold->pdu_first == s->cold->pdu_last && s->cold->pdu_first->stream)
		drop_first(s); /* only a byte stream again */
	buffer_consume(s, bytes);
	recv_was_read(s, bytes);
	return bytes + messages * XTS_PDU_CREDITS;
}

void pdu_give_back(struct xts_sock *s, uint32_t credits)
{
	recv_give_back(s, credits);
	pdu_make_room(s);
}

/* These bytes of the first PDU have been read. */
void pdu_consume(struct xts_sock *s, uint32_t bytes)
{
	pdu_give_back(s, pdu_take(s, bytes));
	if (s->mirror)
		mirror_dirty(s);
}
