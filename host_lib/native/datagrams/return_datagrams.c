/*
 * Datagrams that this process was sent, but that another process may read: they go back to the proxy
 * (RETURN_DATAGRAMS), which sends them to the process that reads next. So a process that polls, and starts another one
 * to read what has come (inetd's "wait"), takes nothing away from it. shared_datagram.c says when.
 *
 * They leave only after the proxy has answered that it sends no more (SHARE): the proxy queues later datagrams behind
 * them. A pending error that no call has returned goes back with them.
 */
#include "core/received_data.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "datagrams/datagrams.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "queues/queue.h"
#include "waiting/mirror.h"
#include "core/wait.h"

#define RETURN_NS (200 * NS_PER_MS) /* the longest wait for this, at fork, exec, close and exit */

static bool is_possible(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	return c && c->link.features & XTS_FEATURE_RETURN_DATAGRAM && s->own.shared && s->proxy_id && !s->lost &&
	       !s->closing;
}

void datagram_return_unread(struct xts_sock *s)
{
	if (is_possible(s) && (s->datagrams->first || s->error))
		outbox_add(s, TODO_GIVE_BACK);
}

/* The first datagram that has arrived completely, or NULL. */
static const struct received_datagram *next(const struct xts_sock *s)
{
	const struct datagrams *q = s->datagrams;

	return q->returned ? q->first : datagram_first(s);
}

/* Writes as many records as fit. The first one has its header already if a part of it has left before. *more: the last
 * one continues in the next message. */
static uint32_t fill(struct xts_sock *s, uint8_t *to, uint32_t room, bool *more)
{
	struct datagrams *q = s->datagrams;
	const struct received_datagram *d;
	uint32_t at = 0;

	*more = false;
	while (!*more && (d = next(s))) {
		uint32_t bytes = (uint32_t)d->control_bytes + d->data_bytes, part;
		struct iovec out = { .iov_base = to };

		if (!q->returned) {
			const struct xts_datagram_record record = {
				.data_bytes = d->data_bytes,
				.segment_bytes = d->segment_bytes,
				.control_bytes = d->control_bytes,
				.endpoint = d->from,
			};

			if (room - at < XTS_DATAGRAM_RECORD_BYTES + d->control_bytes + (d->data_bytes ? 1u : 0u))
				break;
			xts_datagram_record_encode(to + at, &record);
			at += XTS_DATAGRAM_RECORD_BYTES;
		}
		part = bytes - q->returned < room - at ? bytes - q->returned : room - at;
		out.iov_len = room;
		if (part)
			buffer_copy(s, q->returned, &out, at, part);
		at += part;
		q->returned += part;
		*more = q->returned < bytes;
		if (!*more) {
			q->returned = 0;
			datagram_remove(s);
		}
	}
	return at;
}

int datagram_send_returns(struct xts_sock *s)
{
	struct stack *st = s->stack;

	while (next(s) || (s->error && !s->datagrams->first)) {
		uint32_t largest = st->channel->link.largest_message;
		struct xts_return_datagrams m;
		struct xts_tx_slot slot;
		bool more;
		int r = channel_slot(st, &slot), error = 0;

		if (r)
			return r;
		if (slot.capacity < largest)
			largest = slot.capacity;
		m.length = fill(s, slot.data + XTS_RETURN_DATAGRAMS_BYTES, largest - XTS_RETURN_DATAGRAMS_BYTES, &more);
		if (!more) {
			error = s->error;
			s->error = 0;
		}
		xts_head_encode(slot.data, XTS_CMD_RETURN_DATAGRAMS, more ? XTS_FLAG_MORE : 0, (uint16_t)error,
				s->proxy_id);
		xts_return_datagrams_encode(slot.data, &m);
		channel_submit(st, &slot, XTS_RETURN_DATAGRAMS_BYTES + m.length);
	}
	s->todo &= (uint8_t)~TODO_GIVE_BACK;
	if (s->mirror)
		mirror_dirty(s);
	status_data(s);
	return 0;
}

/* --- before other processes read ---------------------------------------------------------------------------------- */

bool datagram_is_returning(const struct xts_sock *s)
{
	return is_possible(s) && (s->datagrams->naming || s->todo & (TODO_SHARE | TODO_GIVE_BACK));
}

/* Waits for s, or with NULL for all of them. */
static void wait_until_returned(struct stack *st, struct xts_sock *s)
{
	uint64_t deadline = now_ns() + RETURN_NS;
	bool busy = true;

	while (busy && st->channel && now_ns() < deadline) {
		struct xts_sock *any = NULL;

		channel_flush(st, true);
		channel_pump(st);
		while (!s && (any = table_next(st, any)) && !(any->datagrams && datagram_is_returning(any)))
			;
		busy = s ? s->open && datagram_is_returning(s) : any != NULL;
		if (busy && wait_a_while(st, NS_PER_MS))
			break;
	}
}

static void begin_to_leave(struct xts_sock *s)
{
	s->datagrams->leaves = s->cold->sharing.leaves = true;
	datagram_withhold(s); /* also says for how long the proxy keeps it */
}

void datagram_leave(struct xts_sock *s)
{
	if (!s->cold->sharing.others_may_have || !is_possible(s))
		return;
	begin_to_leave(s);
	wait_until_returned(s->stack, s);
}

void datagrams_leave(struct stack *st)
{
	struct xts_sock *s = NULL;
	bool any = false;

	while ((s = table_next(st, s))) {
		if (!s->datagrams || !s->open || !s->cold->sharing.others_may_have || !is_possible(s))
			continue;
		begin_to_leave(s);
		any = true;
	}
	if (any)
		wait_until_returned(st, NULL);
}

static void share_all(struct stack *st)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		if (s->datagrams && s->open && s->proxy_id && !s->opening && !s->closing && !s->lost &&
		    s->own.inherited == NOT_INHERITED)
			datagram_share_before_fork(s);
}

void datagrams_before_fork(struct stack *st)
{
	struct xts_sock *s = NULL;
	bool any = false;

	while ((s = table_next(st, s)) && !(s->datagrams && s->open && s->proxy_id))
		;
	if (s)
		channel_pump(st); /* takes datagrams that have arrived, but that no call has looked at */
	s = NULL;
	while ((s = table_next(st, s)))
		any |= s->datagrams && (s->datagrams->first || s->error) && s->open;
	if (!any)
		return;
	share_all(st);
	wait_until_returned(st, NULL);
}

/* --- a call that does not wait ------------------------------------------------------------------------------------ */

/* Credits have just been posted. The datagrams they pay for are on their way before the answer to a request that
 * follows the credits. If a SHARE has to be answered before the credits leave, its answer has to be awaited first. */
int datagram_ask(struct xts_sock *s)
{
	unsigned questions = s->datagrams->naming || s->todo & TODO_SHARE ? 3 : 2;
	int r = 0;

	while (!r && questions-- && s->proxy_id && !s->lost) {
		struct call call = { .type = XTS_CMD_GETSOCKOPT, .level = SOL_SOCKET, .option = SO_TYPE };

		r = call_proxy(s, &call);
	}
	return r == -EBADF ? r : 0;
}

int datagram_seek_error(struct xts_sock *s)
{
	if (s->error || !s->own.shared || !s->datagrams->withheld || s->lost)
		return 0;
	datagram_interest(s, false);
	return datagram_ask(s);
}
