/* A connection's pushed protocol for another process of the proxy; see pushed_move.h. */
#include "pushed/pushed_move.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "pushed/pushed.h"

/* The version of records that knows one protocol alone. */
#define ONE_LAYER 1

/* Of the process that takes over; 0: it is as this one. */
static _Atomic uint16_t next_reads;

void pushed_next_reads(uint16_t version)
{
	atomic_store_explicit(&next_reads, version, memory_order_relaxed);
}

static uint16_t version_for_next(void)
{
	uint16_t version = atomic_load_explicit(&next_reads, memory_order_relaxed);

	return version ? version : pushed_state_record.version;
}

const char *pushed_stays(const struct pushed *p)
{
	if (p->peeking)
		return "peek mode";
	if (p->give_back_left)
		return "bytes are given back";
	if (!p->ready || p->failed)
		return "it shakes hands, or has failed";
	return ulp_stack_stays(p->stack, version_for_next());
}

/* --- giving ------------------------------------------------------------------------------------------------------- */

static struct pushed_state describe(const struct pushed *p, const struct ulp_moved *m)
{
	struct pushed_state s = {
		.client = m->client,
		.typed = p->typed,
		.message_socket = p->message_socket,
		.event_wanted = p->event_wanted,
		.tls_wanted = p->tls_wanted,
		.pdus = p->pdus,
		.since_pdu = p->since_pdu,
		.pdu_open = p->pdu_open,
		.pdu_bytes = p->pdu_bytes,
		.pdu_left = p->pdu_left,
		.finished = p->finished,
		.read_error = -m->read_error,
	};

	if (m->version == ONE_LAYER) {
		s.protocol = m->layers.layer[0].protocol;
		s.layer_finished = m->layers.layer[0].finished;
		s.state = m->layers.layer[0].state;
	} else {
		s.layers = m->layers;
	}
	return s;
}

static int write_record(const struct pushed_state *s, uint8_t **record, uint32_t *bytes)
{
	uint16_t version = version_for_next();
	struct xts_record_attached attached;
	ssize_t n = xts_record_encode(&pushed_state_record, version, s, NULL, 0, &attached);

	if (n < 0)
		return (int)n;
	*record = malloc((size_t)n);
	if (!*record)
		return -ENOMEM;
	*bytes = (uint32_t)n;
	(void)xts_record_encode(&pushed_state_record, version, s, *record, (size_t)n, &attached);
	return 0;
}

int pushed_give(struct pushed *p, uint8_t **record, uint32_t *bytes)
{
	struct pushed_state s;
	struct ulp_moved *m;
	int r = ulp_stack_save(p->stack, &m);

	if (r)
		return r;
	s = describe(p, m);
	r = write_record(&s, record, bytes);
	ulp_moved_free(m);
	if (!r)
		ulp_stack_wipe(p->stack);
	return r;
}

ssize_t pushed_write(const struct pushed *p, uint8_t *out, size_t room)
{
	struct xts_record_attached attached;
	struct pushed_state s;
	struct ulp_moved *m;
	ssize_t n = ulp_stack_save(p->stack, &m);

	if (n)
		return n;
	s = describe(p, m);
	n = xts_record_encode(&pushed_state_record, pushed_state_record.version, &s, out, room, &attached);
	ulp_moved_free(m);
	return n;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* What the stack was: one protocol alone is not in the list. */
static struct ulp_moved moved_of(const struct pushed_state *s)
{
	struct ulp_moved m = { .client = s->client, .read_error = -s->read_error, .layers = s->layers };

	if (!s->protocol)
		return m;
	m.layers.count = 1;
	m.layers.layer[0] = (struct ulp_moved_layer){
		.protocol = s->protocol, .receive = true, .send = true, .finished = s->layer_finished, .state = s->state
	};
	return m;
}

static int restore(struct pushed *p, const struct pushed_state *s)
{
	const struct ulp_moved m = moved_of(s);
	int r;

	p->typed = s->typed;
	p->message_socket = s->message_socket;
	p->event_wanted = s->event_wanted;
	p->tls_wanted = s->tls_wanted;
	p->pdus = s->pdus;
	p->since_pdu = s->since_pdu;
	p->pdu_open = s->pdu_open;
	p->pdu_bytes = s->pdu_bytes;
	p->pdu_left = s->pdu_left;
	p->finished = s->finished;
	p->started = p->ready = true;
	r = s->protocol && s->layers.count ? -EBADMSG : ulp_stack_restore(p->stack, &m);
	if (!r)
		p->tls = ulp_stack_tls(p->stack); /* as the host knows it, or will */
	return r;
}

int pushed_arrive(struct pushed **out, struct worker_state *w, struct xts_tenant *t, const uint8_t *record,
		  uint32_t bytes)
{
	const struct xts_record_attached nothing = { 0 };
	struct ulp_owner owner = {
		.fd = -1, .reports_end = true, .config = w->config.ulp, .tenant = t->id, .tenant_name = t->name
	};
	struct pushed_state s;
	struct pushed *p;
	int r = xts_record_decode(&pushed_state_record, record, bytes, &nothing, &s);

	if (r)
		return r;
	owner.message_socket = s.message_socket;
	r = pushed_make_for_none(&p, &owner);
	if (!r && (r = restore(p, &s)))
		pushed_free(p);
	xts_record_drop(&pushed_state_record, &s);
	if (!r)
		*out = p;
	return r;
}
