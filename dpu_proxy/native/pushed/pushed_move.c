/* A connection's pushed protocol for another process of the proxy; see pushed_move.h. */
#include "pushed/pushed_move.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pushed/pushed.h"

const char *pushed_stays(const struct pushed *p)
{
	if (p->peeking)
		return "peek mode";
	if (p->give_back_left)
		return "bytes are given back";
	if (!p->ready || p->failed)
		return "it shakes hands, or has failed";
	return ulp_stack_stays(p->stack);
}

/* --- giving ------------------------------------------------------------------------------------------------------- */

static void wipe_and_free(uint8_t *data, ssize_t bytes)
{
	if (data)
		explicit_bzero(data, (size_t)bytes);
	free(data);
}

static int save_state(const struct pushed *p, uint8_t **state, uint32_t *bytes)
{
	ssize_t n = ulp_stack_save(p->stack, NULL, 0);

	if (n < 0)
		return (int)n;
	*state = malloc((size_t)n);
	if (!*state)
		return -ENOMEM;
	*bytes = (uint32_t)n;
	if (ulp_stack_save(p->stack, *state, (size_t)n) == n)
		return 0;
	wipe_and_free(*state, n);
	return -EIO;
}

static struct pushed_state describe(const struct pushed *p, const struct ulp_moved *m)
{
	return (struct pushed_state){
		.protocol = m->protocol,
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
		.layer_finished = m->finished,
		.read_error = -m->read_error,
	};
}

static int write_record(const struct pushed_state *s, uint8_t **record, uint32_t *bytes)
{
	struct xts_record_attached attached;
	ssize_t n = xts_record_encode(&pushed_state_record, pushed_state_record.version, s, NULL, 0, &attached);

	if (n < 0)
		return (int)n;
	*record = malloc((size_t)n);
	if (!*record)
		return -ENOMEM;
	*bytes = (uint32_t)n;
	(void)xts_record_encode(&pushed_state_record, pushed_state_record.version, s, *record, (size_t)n, &attached);
	return 0;
}

int pushed_give(struct pushed *p, uint8_t **record, uint32_t *bytes)
{
	struct pushed_state s;
	struct ulp_moved m;
	uint32_t state_bytes = 0;
	uint8_t *state = NULL;
	int r;

	ulp_stack_describe_move(p->stack, &m);
	s = describe(p, &m);
	r = save_state(p, &state, &state_bytes);
	if (r)
		return r;
	s.state = (struct xts_record_bytes){ state, state_bytes };
	r = write_record(&s, record, bytes);
	wipe_and_free(state, state_bytes);
	if (!r)
		ulp_stack_wipe(p->stack);
	return r;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

static int restore(struct pushed *p, const struct pushed_state *s)
{
	const struct ulp_moved m = { s->protocol, s->client, s->layer_finished, -s->read_error };
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
	r = ulp_stack_restore(p->stack, &m, s->state.data, s->state.bytes);
	if (!r)
		p->tls = ulp_stack_tls(p->stack); /* as the host knows it, or will */
	return r;
}

int pushed_arrive(struct pushed **out, struct worker_state *w, struct xts_tenant *t, const uint8_t *record,
		  uint32_t bytes)
{
	const struct xts_record_attached nothing = { 0 };
	struct ulp_owner owner = { .fd = -1, .reports_end = true, .config = w->config.ulp, .tenant = t->id };
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
