/*
 * Queries for names: the proxy asks name servers. A query belongs to no socket, so it has a record of its own while its
 * caller waits. The record is on the caller's C stack, in a list of the library's stack, and is found by its token. The
 * answer is copied into the caller's memory when it comes. A caller that gives up removes its record from the list;
 * then the answer is dropped.
 */
#include "core/name_query.h"

#include "core/channel.h"
#include "core/message_dispatch.h"
#include "core/stack.h"
#include "queues/queue.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

struct name_query {
	struct name_query *next;
	uint32_t token;
	uint8_t *answer;
	size_t room;
	uint32_t bytes; /* bytes of the answer, even if they do not fit */
	int error;      /* positive */
	uint8_t refusal;
	bool done;
	uint16_t waiters;
};

static void take_out(struct stack *st, const struct name_query *q)
{
	struct name_query **at = &st->name_queries;

	while (*at && *at != q)
		at = &(*at)->next;
	if (*at)
		*at = q->next;
}

static void copy_payload(uint8_t *to, size_t bytes, const struct xts_rx_frame *frame, size_t skip)
{
	for (uint32_t i = 0; i < frame->segments && bytes; i++) {
		const struct iovec *piece = &frame->segment[i];
		size_t here = piece->iov_len > skip ? piece->iov_len - skip : 0;

		here = here < bytes ? here : bytes;
		memcpy(to, (const uint8_t *)piece->iov_base + (here ? skip : 0), here);
		skip -= piece->iov_len < skip ? piece->iov_len : skip;
		to += here;
		bytes -= here;
	}
}

bool message_name_ack(struct stack *st, const struct xts_head *head, const struct xts_name_ack *m,
		      struct xts_rx_frame *frame)
{
	struct name_query *q = st->name_queries;

	while (q && q->token != m->token)
		q = q->next;
	st->device_families = (uint8_t)m->families;
	if (!q)
		return false; /* the caller has given up */
	take_out(st, q);
	q->error = head->error;
	q->refusal = head->error ? head->flags : 0;
	q->bytes = m->length;
	copy_payload(q->answer, m->length < q->room ? m->length : q->room, frame, XTS_NAME_ACK_BYTES);
	q->done = true;
	wake(st, &q->waiters);
	return false;
}

void name_queries_lose(struct stack *st)
{
	struct name_query *q;

	while ((q = st->name_queries)) {
		st->name_queries = q->next;
		q->error = ENETDOWN;
		q->done = true;
		wake(st, &q->waiters);
	}
}

static int attach(struct stack *st)
{
	int r;

	channel_check_idle(st);
	r = st->channel ? 0 : channel_attach(st);
	if (r)
		return r;
	return st->channel->link.features & XTS_FEATURE_NAMES ? 0 : -EOPNOTSUPP;
}

static int ask(struct stack *st, struct name_query *q, const void *query, uint32_t bytes)
{
	struct xts_query_name m = { .length = bytes };
	struct xts_tx_slot slot;
	int r = channel_wait_slot(st, &slot);

	if (r)
		return r;
	m.token = q->token = ++st->token;
	xts_head_encode(slot.data, XTS_CMD_QUERY_NAME, 0, 0, 0);
	xts_query_name_encode(slot.data, &m);
	memcpy(slot.data + XTS_QUERY_NAME_BYTES, query, bytes);
	channel_submit(st, &slot, XTS_QUERY_NAME_BYTES + bytes);
	q->next = st->name_queries;
	st->name_queries = q;
	return 0;
}

/* What an errno means for the device's name servers; NULL: its usual meaning. */
static const char *of_servers(int error)
{
	switch (error) {
	case ETIMEDOUT:
		return "no name server of the device has answered in time";
	case EHOSTUNREACH:
		return "the device reaches none of its name servers, or has none";
	case EMSGSIZE:
		return "the answer of the name server is longer than a message to this host may be";
	default:
		return NULL;
	}
}

static int wait_for_answer(struct stack *st, struct name_query *q, uint64_t deadline_ns)
{
	const char *reason;
	int r = 0;

	while (!q->done && !r)
		r = wait_for(st, &q->waiters, deadline_ns, true);
	if (!q->done) {
		take_out(st, q);
		return r;
	}
	if (!q->error)
		return (int)q->bytes;
	reason = xts_refusal_errno(q->refusal) == q->error ? xts_refusal_text(q->refusal) : of_servers(q->error);
	if (reason)
		last_error_note(q->error, "%s", reason);
	return -q->error;
}

static __thread int failure; /* errno of this thread's first query that has failed since this was last read */

int xts_take_name_failure(void)
{
	int error = failure;

	failure = 0;
	return error;
}

int xts_query_name(const void *query, size_t query_bytes, void *answer, size_t answer_bytes, int timeout_ms)
{
	struct name_query q = { .answer = answer, .room = answer_bytes };
	uint64_t deadline_ns = timeout_ms < 0 ? FOREVER : now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	struct stack *st;
	int r;

	if (query_bytes > XTS_NAME_QUERY_BYTES_MAX)
		return finish(-EMSGSIZE);
	st = stack_enter_own();
	r = attach(st);
	if (!r)
		r = ask(st, &q, query, (uint32_t)query_bytes);
	if (!r)
		r = wait_for_answer(st, &q, deadline_ns);
	stack_leave(st);
	if (r < 0 && !failure)
		failure = -r;
	return finish(r);
}

int xts_names_served(void)
{
	struct stack *st = stack_enter_own();
	int r = attach(st);

	stack_leave(st);
	return r == -EOPNOTSUPP ? 0 : finish(r ? r : 1);
}

unsigned xts_device_families(void)
{
	struct stack *st = stack_enter_own();
	unsigned families = st->device_families;

	stack_leave(st);
	return families;
}
