/*
 * What a socket is to the program that has it, as a record: its fields are filled in here, and given to a new socket.
 * The table of records (xts_messages/wire/host_record_table.py) has their bounds, which are looked at before.
 */
#include "processes/socket_record.h"

#include <errno.h>
#include <string.h>

#include "core/channel.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "processes/relatives.h"
#include "ulps/pushed.h"

_Static_assert(sizeof(((struct stack *)0)->endpoint) == sizeof(((struct socket_record *)0)->endpoint), "endpoint");

const struct socket_kind *record_kind(const struct socket_record *b)
{
	return kind_in_state(b->datagrams, b->state);
}

void record_fill(struct socket_record *b, const struct xts_sock *s)
{
	const struct common *c = s->own.common;

	*b = (struct socket_record){
		.number = s->id,
		.relatives = -1,
		.deed_fd = -1,
		.key = s->cold->sharing.key,
		.receive_timeout_ns = s->receive_timeout_ns,
		.send_timeout_ns = s->send_timeout_ns,
		.sent_bytes = s->sent_bytes,
		.received_bytes = s->received_bytes,
		.error = s->error,
		.linger_s = s->linger_s,
		.backlog = s->cold->backlog,
		.window = s->grant.window,
		.window_max = s->window_max,
		.receive_lowat = s->receive_lowat,
		.family = s->family,
		.state = s->state,
		.phase = s->phase,
		.shutdown = s->shutdown,
		.done = s->done,
		.nonblocking = s->nonblocking,
		.close_on_exec = s->close_on_exec,
		.linger = s->linger,
		.seqpacket = s->seqpacket,
		.bound = s->bound,
		.bound_address = s->bound_address,
		.v6only = s->v6only,
		.local = s->local,
		.peer = s->peer,
		.ulps = s->cold->ulps,
	};
	if (c) {
		b->common_read_bytes = atomic_load(&c->read_bytes);
		b->common_sent_bytes = atomic_load(&c->sent_bytes);
		b->passed = atomic_load(&c->passed) != 0;
	}
	if (s->cold->sharing.has_deed)
		b->deed_id = s->cold->sharing.deed_id;
	kind_of(s)->record_fill(b, s);
	memcpy(b->endpoint, s->stack->endpoint, sizeof b->endpoint);
}

void record_for_label(struct socket_record *b, const struct xts_sock *s)
{
	record_fill(b, s);
	memcpy(b->endpoint, s->stack->settings.endpoint, sizeof b->endpoint);
	b->endpoint[sizeof b->endpoint - 1] = 0;
	b->done = 0;
}

/* The lengths of PDUs have to add up to the bytes, only the last may be incomplete, and all have to be within the window.
 */
static bool pdus_are_sound(const struct socket_record *b)
{
	uint64_t bytes = 0, messages = 0;

	for (const struct pdu *p = b->pdus.first; p; p = p->next) {
		bytes += p->bytes;
		messages += p->messages;
		if (!p->whole && !p->stream && p->next)
			return false;
	}
	if (b->state == TCP_STATE_ESTABLISHED && b->unread.bytes + messages * XTS_PDU_CREDITS > b->window)
		return false;
	return !b->pdus.first || bytes == b->unread.bytes;
}

int socket_record_check(const void *made)
{
	const struct socket_record *b = made;
	bool sound = !b->endpoint[sizeof b->endpoint - 1] && pdus_are_sound(b) && record_kind(b)->record_is_sound(b);

	return sound ? 0 : -EBADMSG;
}

void record_apply(const struct socket_record *b, struct xts_sock *s)
{
	s->seqpacket = b->seqpacket;
	s->bound = b->bound;
	s->bound_address = b->bound_address;
	s->v6only = b->v6only;
	s->cold->ulps = b->ulps;
	s->cold->sharing.key = b->key;
	socket_enter(s, b->state, b->phase);
	s->error = b->error;
	s->done = b->done;
	s->shutdown = b->shutdown;
	s->cold->backlog = b->backlog;
	kind_of(s)->record_apply(b, s);
	s->window_max = b->window_max;
	s->sent_bytes = b->sent_bytes;
	s->received_bytes = b->received_bytes;
	s->local = b->local;
	s->peer = b->peer;
	s->open = true;
	s->cold->sharing.number_before = b->number;
	s->nonblocking = b->nonblocking;
	s->close_on_exec = b->close_on_exec;
	s->linger = b->linger;
	s->linger_s = b->linger_s;
	s->receive_lowat = b->receive_lowat;
	s->receive_timeout_ns = b->receive_timeout_ns;
	s->send_timeout_ns = b->send_timeout_ns;
}
