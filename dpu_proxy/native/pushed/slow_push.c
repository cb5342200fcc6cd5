/*
 * Pushes that have to wait for an object. A push may need an object that takes too long for a worker to make (an
 * SSL_CTX: 0.4 to 2 ms). Such a push waits until a thread of the pool has made the object, and so do its channel's
 * later messages, as if the push took that long. Then the message is carried out from the beginning. Its frame is in
 * the host's memory and may contain another push by then. That push finds no object, and is carried out in the way in
 * which protocols do without (ulp.h).
 *
 * The pool's time for it is charged to the tenant, which has a queue there.
 */
#include <string.h>

#include "channel/channel.h"
#include "common/time_units.h"
#include "pushed/pushed.h"
#include "ulp/handshake_pool.h"

static void drop(struct ulp_preparation *p)
{
	p->job.abandoned(&p->job);
}

/* On the worker's thread: the object has been made, or could not be, which the push will report. */
static void prepared(struct ulp_job *job)
{
	struct ulp_preparation *p = list_entry(job, struct ulp_preparation, job);
	struct channel *ch = p->owner;

	tenant_take_anyway(ch->tenant, XTS_USE_CPU_NS, job->spent_ns);
	ch->continuation.again = true;
	ch->continuation.drop = NULL;
	ch->continuation.is_idle = false;
	drop(p);
}

/* While the message waits: lets the pool's reserve thread help (handshake_pool.h). */
static bool help(struct channel *ch)
{
	uint64_t now_ns = ch->worker->now_ns, *since_ns = &ch->continuation.preparation.since_ns;

	if (now_ns - *since_ns < (uint64_t)ULP_POOL_HELP_MS * NS_PER_MS)
		return false;
	*since_ns = now_ns;
	ulp_pool_help();
	return false;
}

/* The message does not wait any more. */
static void forget(struct channel *ch)
{
	struct ulp_preparation *p = ch->continuation.preparation.wanted;

	if (ulp_pool_drop(&p->job))
		drop(p);
}

static struct ulp_preparation *first_to_prepare(const struct channel *ch, uint32_t request, const uint8_t *value,
						uint32_t bytes)
{
	const struct ulp_owner owner = {
		.fd = -1,
		.tenant = ch->tenant->id,
		.queue_id = ch->queue_id,
		.config = ch->worker->config.ulp,
	};

	if (request < SIOC_PUSH_ULP_RX || request > SIOC_PUSH_ULP || bytes < PUSH_BYTES)
		return NULL;
	return ulp_prepare(&owner, xts_get16(value + 6), value + PUSH_BYTES, bytes - PUSH_BYTES);
}

static bool wait_for(struct channel *ch, const struct xts_head *head, const struct batch_entry *e,
		     struct ulp_preparation *p)
{
	struct worker_state *w = ch->worker;
	struct continuation c = {
		.resume = help, .drop = forget, .is_idle = true, .preparation = { .wanted = p, .since_ns = w->now_ns }
	};

	if (!p)
		return false;
	p->owner = ch;
	p->job.done = prepared;
	continuation_keep_frame(&c, head, e);
	continuation_begin(ch, &c);
	ulp_pool_submit(&p->job, &w->bell, ch->tenant->id,
			atomic_load_explicit(&ch->tenant->weight, memory_order_relaxed));
	return true;
}

static bool may_wait(struct channel *ch)
{
	bool second = ch->again;

	ch->again = false;
	return !second && ulp_bell_is_made(&ch->worker->bell);
}

bool prepare_for_ioctl(struct channel *ch, const struct xts_head *head, const struct xts_ioctl *m,
		       const struct batch_entry *e)
{
	uint8_t value[SOCKET_CALL_BYTES_MAX];
	bool waits;

	if (!may_wait(ch) || m->length > sizeof value)
		return false;
	memcpy(value, batch_payload(e, XTS_IOCTL_BYTES), m->length);
	waits = wait_for(ch, head, e, first_to_prepare(ch, m->request, value, m->length));
	explicit_bzero(value, sizeof value);
	return waits;
}

bool prepare_for_connect(struct channel *ch, const struct xts_head *head, const struct xts_connect *m,
			 const struct batch_entry *e)
{
	uint8_t pushes[XTS_CONNECT_PUSH_BYTES];
	struct ulp_preparation *p = NULL;

	if (!may_wait(ch) || m->length > sizeof pushes)
		return false;
	memcpy(pushes, batch_payload(e, XTS_CONNECT_BYTES), m->length);
	for (uint32_t at = 0, bytes; !p && m->length - at >= CONNECT_PUSH_HEAD_BYTES;
	     at += CONNECT_PUSH_HEAD_BYTES + bytes) {
		bytes = xts_get32(pushes + at + 4);
		if (bytes > m->length - at - CONNECT_PUSH_HEAD_BYTES)
			break; /* it is refused when it is carried out */
		p = first_to_prepare(ch, xts_get32(pushes + at), pushes + at + CONNECT_PUSH_HEAD_BYTES, bytes);
	}
	explicit_bzero(pushes, sizeof pushes);
	return wait_for(ch, head, e, p);
}
