/*
 * What happens to a stream: readiness, which follows tcp_poll() of the kernel line by line, and RECV. And the entries
 * of the tables of streams and listeners (core/socket_kind.h) that are short.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "core/channel.h"
#include "core/message.h"
#include "core/outbox.h"
#include "core/received_data.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "processes/next_proxy.h"
#include "processes/socket_record.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "core/wait.h"

static bool is_writable(struct xts_sock *s)
{
	struct stack *st = s->stack;

	if (s->state != TCP_STATE_ESTABLISHED)
		return true;
	if (move_has_room(s))
		return true;
	if (s->cold->ulps.handshaking || s->pushing || s->credits < s->cold->ulps.wanted) {
		s->no_space = true;
		return false;
	}
	if (s->credits >= socket_credits_worth_waiting_for(s) && (channel_can_send(st) && !(s->todo & TODO_DATA)))
		return true;
	s->no_space = true;
	if (s->credits)
		socket_wait_for_link(s);
	return false;
}

uint32_t stream_events(struct xts_sock *s)
{
	uint32_t events = 0;

	if (s->shutdown == SHUTDOWN_MASK || s->state == TCP_STATE_CLOSE)
		events |= EPOLLHUP;
	if (turn_is_elsewhere(s))
		return events; /* whoever has it reports the other events */
	if (s->shutdown & RCV_SHUTDOWN)
		events |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
	if (s->state != TCP_STATE_SYN_SENT) {
		if (s->cold->pdu_first || s->pushing ? pdu_is_readable(s) : s->unread && s->unread >= s->receive_lowat)
			events |= EPOLLIN | EPOLLRDNORM;
		if ((s->shutdown & SEND_SHUTDOWN) || is_writable(s))
			events |= EPOLLOUT | EPOLLWRNORM;
	}
	if (s->error)
		events |= EPOLLERR;
	return events;
}

/* --- RECV --------------------------------------------------------------------------------------------------------- */

/* Data for a socket. True: the frame was taken over. */
static bool receive_data(struct xts_sock *s, struct xts_rx_frame *frame, uint32_t length)
{
	struct stack *st = s->stack;

	if (s->done || s->state != TCP_STATE_ESTABLISHED || (s->todo & TODO_GIVE_BACK) ||
	    xts_credit_receive(&s->grant, length) || (s->cold->pdu_first && !pdu_stream_data(s, length))) {
		channel_violation(st, "data beyond the credits, or behind the end");
		return true;
	}
	s->received_bytes += length;
	st->received_bytes += length;
	if (s->grant.outstanding < s->grant.window / 2)
		s->squeezed = true;
	socket_asked(s, false);
	buffer_append(s, frame, XTS_RECV_BYTES, length);
	return true;
}

bool stream_receive(struct xts_sock *s, const struct xts_head *head, const struct xts_recv *m, struct xts_rx_frame *frame)
{
	struct stack *st = s->stack;
	struct channel *c = st->channel;
	uint32_t events = 0;
	bool taken = false;

	if (s->state != TCP_STATE_ESTABLISHED) {
		channel_violation(st, "data for a socket that is not connected");
		return true;
	}
	if (m->post_credits && !message_credits(s, m->post_credits))
		return true;
	if (m->length) {
		taken = receive_data(s, frame, m->length);
		if (st->channel != c)
			return true;
		if (s->cold->pdu_first || s->unread >= s->receive_lowat)
			events |= EPOLLIN;
		else
			wake(st, &s->readers); /* the call may be satisfied with less than SO_RCVLOWAT */
	}
	if (m->post_credits && s->no_space)
		events |= EPOLLOUT;
	if (head->flags & XTS_FLAG_EOS) {
		if (pdu_is_open(s) && !head->error) {
			channel_violation(st, "an end in the middle of a PDU");
			return true;
		}
		s->done = true;
		s->cold->end_error = head->error;
		s->shutdown |= RCV_SHUTDOWN;
		events |= STATE_CHANGE & ~(uint32_t)EPOLLOUT; /* the room has not grown */
		status_state(s);
	}
	if (head->flags & XTS_FLAG_RESET) {
		socket_fail(s, s->done && (!head->error || head->error == ECONNRESET) ? EPIPE :
			       head->error                                            ? head->error :
											ECONNRESET);
		return taken;
	}
	status_data(s);
	if (events)
		socket_changed(s, events);
	else if (m->post_credits)
		wake(st, &s->writers);
	return taken;
}

/* --- short ones --------------------------------------------------------------------------------------------------- */

/* The messages of one call have no reason to share a lock: each may wait by itself. */
int stream_send_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags)
{
	(void)s;
	(void)messages;
	(void)count;
	(void)flags;
	return -ENOSYS;
}

int stream_recv_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns)
{
	(void)deadline_ns;
	return stream_send_messages(s, messages, count, flags);
}

/* --- options: all of them are common, or the proxy's -------------------------------------------------------------- */

int stream_option_set(struct xts_sock *s, int level, int option, const void **value, socklen_t *length)
{
	(void)s;
	(void)level;
	(void)option;
	(void)value;
	(void)length;
	return 1;
}

int stream_option_get(const struct xts_sock *s, int level, int option, void *value, socklen_t *length)
{
	(void)s;
	(void)level;
	(void)option;
	(void)value;
	(void)length;
	return 1;
}

void stream_hint_was_set(struct xts_sock *s, bool on)
{
	s->cold->tells_inq = on;
}

/* --- PDUs --------------------------------------------------------------------------------------------------------- */

bool stream_packet_is_here(const struct xts_sock *s)
{
	return s->cold->pdu_first && !s->pushing && pdu_is_offered(s, s->cold->pdu_first);
}

uint32_t stream_packet_take(struct xts_sock *s)
{
	return pdu_take(s, s->cold->pdu_first->bytes);
}

/* --- what happens to it ------------------------------------------------------------------------------------------- */

bool stream_flush(struct xts_sock *s)
{
	(void)s;
	return true; /* it goes with SEND */
}

void stream_drop(struct xts_sock *s)
{
	if (s->cold->pdu_first)
		pdu_drop(s);
}

void stream_record_fill(struct socket_record *b, const struct xts_sock *s)
{
	(void)b;
	(void)s;
}

void stream_record_apply(const struct socket_record *b, struct xts_sock *s)
{
	s->grant.window = b->window;
}
