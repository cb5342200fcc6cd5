/*
 * The receive queue of a datagram socket: see datagrams.h.
 *
 * The account must never keep the largest datagram from coming when the queue is empty. So the unadvertised credits are
 * limited to the window less that datagram (credit.h has the law).
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/received_data.h"
#include "core/channel.h"
#include "datagrams/datagrams.h"
#include "core/error.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "common/own_memory.h"
#include "processes/inherit.h"
#include "queues/queue.h"
#include "waiting/mirror.h"
#include "core/wait.h"

#define SPARE_DATAGRAMS 128u

int datagram_make(struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	if (c && !(c->link.features & XTS_FEATURE_DATAGRAM)) {
		last_error_note(EPROTONOSUPPORT, "the offload proxy is of a version that has no datagram sockets");
		return -EPROTONOSUPPORT;
	}
	s->datagrams = calloc(1, sizeof *s->datagrams);
	if (!s->datagrams)
		return -ENOMEM;
	s->datagrams->window = XTS_DATAGRAM_WINDOW_DEFAULT;
	status_state(s);
	return 0;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

static struct received_datagram *add(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;
	struct received_datagram *d = s->stack->spare_datagrams;

	if (d) {
		s->stack->spare_datagrams = d->next;
		s->stack->spare_datagram_count--;
	} else {
		d = malloc(sizeof *d);
		if (!d)
			return NULL;
	}
	d->next = NULL;
	if (q->last)
		q->last->next = d;
	else
		q->first = d;
	q->last = d;
	return d;
}

static void drop_first(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;
	struct received_datagram *d = q->first;

	q->first = d->next;
	if (!q->first)
		q->last = NULL;
	if (s->stack->spare_datagram_count == SPARE_DATAGRAMS) {
		xts_release(d);
		return;
	}
	d->next = s->stack->spare_datagrams;
	s->stack->spare_datagrams = d;
	s->stack->spare_datagram_count++;
}

void datagram_drop(struct xts_sock *s)
{
	while (s->datagrams->first)
		drop_first(s);
	s->datagrams->missing = s->datagrams->offer.missing = 0;
	datagram_drop_errors(s);
}

void datagram_free(struct xts_sock *s)
{
	struct channel *c = s->stack->channel;

	if (c && c->making.of == s)
		datagram_message_submit(c);
	datagram_drop(s);
	xts_release(s->datagrams->cork.data);
	xts_release(s->datagrams->filter);
	datagram_offer_end(s);
	xts_release(s->datagrams);
	s->datagrams = NULL;
}

const struct received_datagram *datagram_first(const struct xts_sock *s)
{
	const struct datagrams *q = s->datagrams;

	return (q->first == q->last && q->missing && !q->coming) || q->returned ? NULL : q->first;
}

void datagram_forget(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;

	datagram_drop(s);
	xts_release(q->cork.data);
	q->cork.data = NULL;
	q->opens = q->withheld = q->sought = q->leaves = false;
	q->naming = 0;
	q->returned = 0;
	q->wanted = q->flushed = q->dropped = 0;
	q->rest = false;
	s->error = q->send_error = 0;
}

/* --- the account -------------------------------------------------------------------------------------------------- */

void datagram_limit(struct xts_credit_grant *g)
{
	uint32_t room = g->window > DATAGRAM_CREDITS_MAX ? g->window - DATAGRAM_CREDITS_MAX : 0;

	g->limit = room < g->window / 4 ? room : g->window / 4;
}

/* The credits of what has been received and not read: a socket that is made again has kept it. */
static uint32_t held_credits(const struct datagrams *q)
{
	uint32_t held = 0;

	for (const struct received_datagram *d = q->first; d; d = d->next)
		held += (uint32_t)d->data_bytes + d->control_credits + XTS_DATAGRAM_CREDITS;
	for (const struct queued_error *e = q->first_error; e; e = e->next)
		held += e->credits;
	return held;
}

void datagram_grant(struct xts_sock *s)
{
	uint32_t window = s->datagrams->window, held = held_credits(s->datagrams);

	xts_credit_grant_init(&s->grant, window > held ? window : held);
	s->grant.outstanding -= held;
	if (window < s->grant.window)
		xts_credit_shrink(&s->grant, window);
	datagram_limit(&s->grant);
}

uint32_t datagram_advertise(struct xts_sock *s)
{
	return s->datagrams->withheld ? 0 : xts_credit_advertise(&s->grant);
}

/* Sets the window for SO_RCVBUF of this many bytes; the device's kernel buffers datagrams in addition. */
void datagram_set_window(struct xts_sock *s, uint32_t bytes)
{
	uint32_t most = s->stack->settings.window_bytes_max;

	if (most < XTS_DATAGRAM_WINDOW_DEFAULT)
		most = XTS_DATAGRAM_WINDOW_DEFAULT;
	if (bytes > most)
		bytes = most;
	if (bytes < XTS_DATAGRAM_WINDOW_MIN)
		bytes = XTS_DATAGRAM_WINDOW_MIN;
	s->datagrams->window = bytes;
	if (!s->grant.window)
		return; /* OPEN_DATAGRAM grants it */
	if (bytes < s->grant.window) {
		xts_credit_shrink(&s->grant, bytes);
	} else {
		xts_credit_grow(&s->grant, bytes - s->grant.window);
		if (!s->datagrams->withheld)
			outbox_add(s, TODO_ADVERT);
	}
	datagram_limit(&s->grant);
}

void datagram_give_back(struct xts_sock *s, uint32_t credits)
{
	if (s->lost || s->closing || !s->grant.window)
		return;
	xts_credit_free(&s->grant, credits);
	datagram_limit(&s->grant);
	if (xts_credit_due(&s->grant) && !s->datagrams->withheld)
		outbox_add(s, TODO_ADVERT);
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

bool datagram_enqueue(struct xts_sock *s, struct xts_datagram *d, uint32_t control_credits)
{
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
	struct received_datagram *r = add(s);
	struct iovec controls;

	if (!r) {
		channel_fail(s->stack, ENOMEM);
		return false;
	}
	if (control_credits)
		xts_datagram_write(head, sizeof head, d); /* only the items that this version knows */
	r->from = d->record.endpoint;
	r->dropped = s->datagrams->dropped;
	r->data_bytes = d->record.data_bytes;
	r->segment_bytes = d->record.segment_bytes;
	r->control_bytes = d->record.control_bytes;
	r->control_credits = (uint16_t)control_credits;
	controls = (struct iovec){ .iov_base = head + XTS_DATAGRAM_RECORD_BYTES, .iov_len = r->control_bytes };
	if (!r->control_bytes || buffer_append_copy(s, &controls, 1))
		return true;
	channel_fail(s->stack, ENOMEM);
	return false;
}

/* A header: from now on the datagram is in the list, with its control items. False: the channel has ended. */
static bool begin(struct xts_sock *s, struct xts_datagram *d)
{
	if (d->controls & 1u << XTS_DATAGRAM_ERROR)
		return datagram_begin_error(s, d);
	s->datagrams->missing = d->record.data_bytes;
	return datagram_enqueue(s, d, d->record.control_bytes);
}

/* Appends the data of the last datagram, as far as this message has it. 1: the frame was taken over; 0: it was not;
 * -1: the channel has ended. */
static int append(struct xts_sock *s, struct xts_datagram_cursor *cursor, struct xts_rx_frame *frame, uint32_t end)
{
	struct datagrams *q = s->datagrams;
	struct stack *st = s->stack;
	uint32_t bytes = q->missing < cursor->left ? q->missing : cursor->left, count = XTS_SEGMENTS_MAX;
	uint32_t offset = end - cursor->left;
	struct iovec iov[XTS_SEGMENTS_MAX];

	if (!bytes)
		return 0;
	if (q->coming) {
		datagram_append_to_error(q, cursor, bytes);
		return 0;
	}
	q->missing -= bytes;
	s->received_bytes += bytes;
	st->received_bytes += bytes;
	if (bytes == cursor->left) { /* the rest of the frame is only this data, so the frame may be held */
		struct channel *c = st->channel;

		cursor->left = 0;
		buffer_append(s, frame, offset, bytes);
		return st->channel == c ? 1 : -1;
	}
	xts_datagram_data(cursor, bytes, iov, &count);
	if (buffer_append_copy(s, iov, count))
		return 0;
	channel_fail(st, ENOMEM);
	return -1;
}

/* Handles the next record: for the program's callback, or into the list, with the data that the message has of it,
 * which ends at `end` of the frame. Results as those of append(). */
static int take_record(struct xts_sock *s, struct xts_datagram *d, struct xts_datagram_cursor *cursor,
		       struct xts_rx_frame *frame, uint32_t end)
{
	if (xts_credit_receive(&s->grant, xts_datagram_credits(&d->record))) {
		channel_violation(s->stack, "a datagram beyond the credits");
		return -1;
	}
	if (callback_has_function(s) && !(d->controls & 1u << XTS_DATAGRAM_ERROR))
		return datagram_offer(s, d, cursor) ? 0 : -1;
	return begin(s, d) ? append(s, cursor, frame, end) : -1;
}

/* Reads the records of a message. Results as those of append(). */
static int receive(struct xts_sock *s, const struct xts_recv_datagrams *m, bool more, struct xts_rx_frame *frame)
{
	uint32_t end = XTS_RECV_DATAGRAMS_BYTES + m->length;
	struct xts_datagram_cursor cursor;
	struct xts_datagram d;
	int r, taken = 0;

	xts_datagram_begin(&cursor, frame, XTS_RECV_DATAGRAMS_BYTES, m->length);
	if (s->datagrams->missing)
		taken = append(s, &cursor, frame, end);
	else if (s->datagrams->offer.missing && !datagram_offer_rest(s, &cursor))
		return -1;
	while (!taken && cursor.left) {
		r = xts_datagram_next(&cursor, &d);
		if (r < 0) {
			channel_violation(s->stack, "a malformed datagram");
			return -1;
		}
		taken = take_record(s, &d, &cursor, frame, end);
	}
	/* Only the last record may continue in the next message, and then the message has to say so. */
	if (taken >= 0 && more != (s->datagrams->missing || s->datagrams->offer.missing)) {
		channel_violation(s->stack, "a datagram of another length than announced");
		return -1;
	}
	return taken;
}

void datagram_changed(struct xts_sock *s, uint32_t events, uint32_t post_credits)
{
	if (post_credits && s->no_space)
		events |= EPOLLOUT;
	status_data(s);
	if (events)
		socket_changed(s, events);
	else if (post_credits)
		wake(s->stack, &s->writers);
}

/* An error of the device's socket. Without a peer and IP_RECVERR it has no pending errors of its own: a datagram of
 * ours could not be sent. Returns the events. */
static uint32_t note_error(struct xts_sock *s, int error)
{
	if (!s->datagrams->connected && !s->datagrams->queues_errors) {
		s->datagrams->send_error = error;
		return 0;
	}
	s->error = error;
	status_state(s);
	return EPOLLERR;
}

bool message_recv_datagrams(struct stack *st, const struct xts_head *head, const struct xts_recv_datagrams *m,
			    struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);
	uint32_t events = 0;
	int taken = 0;

	if (!s || s->closing)
		return false; /* it crossed our CLOSE */
	if (!s->datagrams || (head->error && m->length)) {
		channel_violation(st, "datagrams for another kind of socket, or with an error");
		return true;
	}
	if (m->post_credits && !message_credits(s, m->post_credits))
		return true;
	s->datagrams->dropped = m->dropped;
	socket_asked(s, false);
	if (m->length) {
		taken = receive(s, m, head->flags & XTS_FLAG_MORE, frame);
		if (taken < 0)
			return true;
		if (datagram_first(s))
			events |= EPOLLIN;
		if (datagram_first_error(s))
			events |= EPOLLERR;
	}
	if (head->error)
		events |= note_error(s, head->error);
	datagram_changed(s, events, m->post_credits);
	return taken > 0;
}

/* RECV for a datagram socket: post credits, or the proxy has ended the socket. */
bool datagram_told(struct xts_sock *s, const struct xts_head *head, const struct xts_recv *m, struct xts_rx_frame *frame)
{
	uint32_t events = 0;

	(void)frame;
	if (m->length || head->flags & XTS_FLAG_EOS) {
		channel_violation(s->stack, "a byte stream for a datagram socket");
		return true;
	}
	if (m->post_credits && !message_credits(s, m->post_credits))
		return true;
	if (head->flags & XTS_FLAG_RESET) {
		s->error = head->error ? head->error : ENETDOWN;
		status_state(s);
		events |= EPOLLERR;
	}
	datagram_changed(s, events, m->post_credits);
	return false;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

void datagram_read_controls(struct xts_sock *s, struct xts_datagram *out)
{
	const struct received_datagram *d = s->datagrams->first;
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
	struct iovec controls = { .iov_base = head + XTS_DATAGRAM_RECORD_BYTES, .iov_len = d->control_bytes };
	const struct xts_datagram_record record = {
		.data_bytes = d->data_bytes,
		.segment_bytes = d->segment_bytes,
		.control_bytes = d->control_bytes,
		.endpoint = d->from,
	};

	xts_datagram_record_encode(head, &record);
	buffer_copy(s, 0, &controls, 0, d->control_bytes);
	if (xts_datagram_read(out, head, XTS_DATAGRAM_RECORD_BYTES + d->control_bytes) < 0)
		memset(out, 0, sizeof *out); /* impossible, since this library has written it */
}

/* Removes the first datagram and returns its credits. */
static uint32_t remove_first(struct xts_sock *s)
{
	const struct received_datagram *d = s->datagrams->first;
	uint32_t credits = (uint32_t)d->data_bytes + d->control_credits + XTS_DATAGRAM_CREDITS;

	buffer_consume(s, (uint32_t)d->data_bytes + d->control_bytes);
	drop_first(s);
	callback_next(s);
	return credits;
}

uint32_t datagram_take(struct xts_sock *s)
{
	s->read_bytes += s->datagrams->first->data_bytes;
	return remove_first(s);
}

void datagram_remove(struct xts_sock *s)
{
	datagram_give_back(s, remove_first(s));
	if (s->mirror && !datagram_first(s))
		mirror_dirty(s);
}

void datagram_consume(struct xts_sock *s)
{
	s->read_bytes += s->datagrams->first->data_bytes;
	datagram_remove(s);
	if (s->own.shared && !s->datagrams->first && share_waits_elsewhere(s))
		datagram_interest(s, false);
	status_data(s);
}
