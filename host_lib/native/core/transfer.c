/* What has been sent and read of a stream, and its accounts: for the calls, and for PDUs. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "core/outbox.h"
#include "core/receive_callback.h"
#include "core/received_data.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/transfer.h"
#include "link/credit.h"
#include "processes/relatives.h"
#include "ulps/pdu.h"
#include "waiting/mirror.h"

void source_take(struct source *src, uint8_t *out, size_t bytes)
{
	src->left -= bytes;
	while (bytes) {
		size_t n = src->iov->iov_len - src->offset;

		if (n > bytes)
			n = bytes;
		if (n)
			memcpy(out, (const uint8_t *)src->iov->iov_base + src->offset, n);
		out += n;
		bytes -= n;
		src->offset += n;
		if (src->offset == src->iov->iov_len) {
			src->iov++;
			src->offset = 0;
		}
	}
}

void send_account(struct xts_sock *s, uint32_t credits, uint32_t bytes)
{
	s->credits -= credits;
	s->sent_bytes += bytes;
	s->stack->sent_bytes += bytes;
	if (s->own.common)
		atomic_store_explicit(&s->own.common->sent_bytes, s->sent_bytes - s->cold->sharing.sent_before,
				      memory_order_relaxed);
	socket_asked(s, true);
}

static void grow_window(struct xts_sock *s)
{
	uint32_t window = s->grant.window, growth;

	if (s->consumed < window)
		return;
	s->consumed = 0;
	if (!s->squeezed || xts_credit_buffered(&s->grant) > window / 4)
		return;
	s->squeezed = false;
	growth = window < s->window_max ? s->window_max - window : 0;
	if (growth > window)
		growth = window;
	if (growth)
		xts_credit_grow(&s->grant, growth);
}

#ifdef XTS_DEBUG
/* Checks the conservation law, as far as this side sees the account. */
static void check_account(const struct xts_sock *s)
{
	uint64_t bytes = 0;

	for (const struct piece *p = s->first; p; p = p->next)
		bytes += p->bytes;
	assert(bytes == s->unread);
	assert(s->lost ||
	       xts_credit_buffered(&s->grant) == s->unread + pdu_credits(s) + (s->callback ? s->callback->held : 0));
	bytes = 0;
	for (const struct pdu *p = s->cold->pdu_first; p; p = p->next)
		bytes += p->bytes;
	assert(!s->cold->pdu_first || bytes == s->unread);
}
#else
static void check_account(const struct xts_sock *s)
{
	(void)s;
}
#endif

void recv_was_read(struct xts_sock *s, uint32_t bytes)
{
	s->read_bytes += bytes;
	if (s->own.common && s->own.inherited == NOT_INHERITED)
		atomic_store_explicit(&s->own.common->read_bytes, s->read_bytes, memory_order_relaxed);
	if (!s->unread && s->mirror)
		mirror_dirty(s);
}

void recv_consume(struct xts_sock *s, uint32_t bytes, uint32_t credits)
{
	buffer_consume(s, bytes);
	recv_was_read(s, bytes);
	recv_give_back(s, bytes + credits);
}

void recv_give_back(struct xts_sock *s, uint32_t credits)
{
	if (s->lost || s->state != TCP_STATE_ESTABLISHED || s->closing)
		return;
	xts_credit_free(&s->grant, credits);
	s->consumed += credits;
	grow_window(s);
	check_account(s);
	if (xts_credit_due(&s->grant) && !s->done)
		outbox_add(s, TODO_ADVERT);
}
