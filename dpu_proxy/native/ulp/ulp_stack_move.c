/*
 * A stack goes to another process of the proxy: each of its layers says whether it can, and writes its state (ulp.h).
 * The rest of the stack is about this process, and the new one is as after the pushes, started, with its layers ready.
 *
 * What comes was written by a process that may have been broken into. So a layer is made only where a push could have
 * made it, and its protocol looks at the state as at a message.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ulp/ulp_moved.h"
#include "ulp_stack_inside.h"
#include "wire/record.h"

/* The first version of records that says more of a stack than what one layer of both directions is. */
#define LAYERS_SINCE 2
#define STATE_BYTES_MAX (1u << 26) /* of a layer (record_fields.py) */

/* All layers, from TCP up, each behind those below it in either direction. Layers of both directions are in both
 * chains in the same order. */
static uint32_t all_layers(const struct ulp_stack *s, struct ulp_layer *out[ULP_MOVED_LAYERS])
{
	uint32_t count = 0;

	for (unsigned r = 0, w = 0; r < s->receive.count || w < s->send.count;) {
		struct ulp_layer *receive = r < s->receive.count ? s->receive.layer[r] : NULL;
		struct ulp_layer *send = w < s->send.count ? s->send.layer[w] : NULL;
		bool first = receive && (!receive->send || !send), second = !first && send && !send->receive;

		out[count++] = second ? send : receive;
		r += !second;
		w += !first;
	}
	return count;
}

static bool is_whole(const struct ulp_layer *l)
{
	return l->receive && l->send;
}

/* The other half may still be pushed. */
static bool is_half(const struct ulp_layer *l)
{
	return l->protocol->duplex && !is_whole(l);
}

static bool has_returned(const struct ulp_layer *l)
{
	return l->replay.bytes || l->again.bytes;
}

/* --- may it go? --------------------------------------------------------------------------------------------------- */

/* Which version of records its reader has to know. */
static uint16_t version_of(struct ulp_layer *const *all, uint32_t count)
{
	uint16_t version = count == 1 && is_whole(all[0]) && !has_returned(all[0]) ? 1 : LAYERS_SINCE;

	for (uint32_t i = 0; i < count; i++) {
		if (all[i]->protocol->moves_since > version)
			version = all[i]->protocol->moves_since;
	}
	return version;
}

static const char *layer_stays(const struct ulp_layer *l)
{
	if (!l->protocol->save)
		return l->protocol->name;
	return l->protocol->stays ? l->protocol->stays(l) : NULL;
}

const char *ulp_stack_stays(const struct ulp_stack *s, uint16_t version)
{
	struct ulp_layer *all[ULP_MOVED_LAYERS];
	uint32_t count = all_layers(s, all);
	const char *why = NULL;

	for (uint32_t i = 0; i < count && !why; i++)
		why = all[i]->protocol->save ? NULL : layer_stays(all[i]);
	if (!why && (!ulp_stack_ready(s) || s->failed))
		return "it shakes hands, or has failed";
	if (!why && s->given.bytes)
		return "bytes were returned";
	for (uint32_t i = 0; i < count && !why; i++)
		why = layer_stays(all[i]);
	if (!why && version_of(all, count) > version)
		return "the next process does not know how it goes on";
	return why;
}

/* --- giving ------------------------------------------------------------------------------------------------------- */

static struct xts_record_bytes bytes_of(const struct ulp_out *o)
{
	return (struct xts_record_bytes){ o->bytes ? o->data + o->first : NULL, o->bytes };
}

static int save_layer(const struct ulp_layer *l, struct ulp_moved_layer *out)
{
	const struct ulp_push *push = is_half(l) ? ulp_push_of(l->stack, l) : NULL;
	ssize_t n = l->protocol->save(l, NULL, 0);
	uint8_t *state;

	*out = (struct ulp_moved_layer){ .protocol = l->protocol->id,
					 .receive = l->receive,
					 .send = l->send,
					 .finished = l->finished,
					 .replay = bytes_of(&l->replay),
					 .again = bytes_of(&l->again) };
	if (push)
		out->parameters = (struct xts_record_bytes){ push->attributes, push->bytes };
	if (n < 0 || n > STATE_BYTES_MAX)
		return n < 0 ? (int)n : -EOVERFLOW;
	state = malloc((size_t)n);
	if (!state)
		return -ENOMEM;
	out->state = (struct xts_record_bytes){ state, (uint32_t)n };
	return l->protocol->save(l, state, (size_t)n) == n ? 0 : -EIO;
}

int ulp_stack_save(const struct ulp_stack *s, struct ulp_moved **out)
{
	struct ulp_layer *all[ULP_MOVED_LAYERS];
	struct ulp_moved *m = calloc(1, sizeof *m);
	uint32_t count = all_layers(s, all);
	int r = 0;

	if (!m)
		return -ENOMEM;
	m->client = s->client;
	m->read_error = s->read_error;
	m->version = version_of(all, count);
	while (!r && m->layers.count < count) {
		r = save_layer(all[m->layers.count], &m->layers.layer[m->layers.count]);
		m->layers.count++;
	}
	if (r)
		ulp_moved_free(m);
	else
		*out = m;
	return r;
}

void ulp_moved_free(struct ulp_moved *m)
{
	for (uint32_t i = 0; i < m->layers.count; i++) {
		uint8_t *state = (uint8_t *)(uintptr_t)m->layers.layer[i].state.data;

		if (state)
			explicit_bzero(state, m->layers.layer[i].state.bytes);
		free(state);
	}
	free(m);
}

void ulp_stack_wipe(struct ulp_stack *s)
{
	struct ulp_layer *all[ULP_MOVED_LAYERS];
	uint32_t count = all_layers(s, all);

	for (uint32_t i = 0; i < count; i++) {
		if (all[i]->protocol->wipe)
			all[i]->protocol->wipe(all[i]);
	}
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* Could a push have made it here? */
static bool may_be(const struct ulp_stack *s, const struct ulp_protocol *p, const struct ulp_moved_layer *m)
{
	if (!p || !p->restore || !xts_ulp_config_offers(s->owner.config, p->id) || !(m->receive || m->send))
		return false;
	if ((m->receive && (!p->receive || s->receive.count == ULP_DEPTH)) ||
	    (m->send && (!p->send || s->send.count == ULP_DEPTH)))
		return false;
	if (m->receive && m->send ? !p->duplex : p->needs_both)
		return false;
	return !p->boundaries || s->owner.message_socket;
}

static bool fits(const struct ulp_layer *l)
{
	int (*asked)(const struct ulp_layer *, const struct ulp_layer *) = l->protocol->fits ? l->protocol->fits :
											       ulp_fits_stream;

	return (!l->receive || !asked(l, l->below_receive)) && (!l->send || !asked(l, l->below_send));
}

static int take_bytes(struct ulp_out *to, const struct xts_record_bytes *from, struct ulp_layer *l)
{
	int r = ulp_out_stream.fill(to, from->data, from->bytes);

	return r ? r : ulp_out_count(to, l);
}

static int fill(struct ulp_layer *l, const struct ulp_moved_layer *m)
{
	int r = fits(l) ? l->protocol->restore(l, m->state.data, m->state.bytes) : -EBADMSG;

	if (!r)
		r = take_bytes(&l->replay, &m->replay, l);
	if (!r)
		r = take_bytes(&l->again, &m->again, l);
	return r;
}

static int restore_layer(struct ulp_stack *s, const struct ulp_moved_layer *m)
{
	const struct ulp_protocol *p = ulp_protocol(m->protocol);
	struct ulp_layer *l;
	int r;

	if (!may_be(s, p, m))
		return -EBADMSG;
	l = calloc(1, sizeof *l);
	if (!l)
		return -ENOMEM;
	*l = (struct ulp_layer){ .protocol = p, .stack = s, .receive = m->receive, .send = m->send };
	l->below_receive = m->receive ? ulp_chain_top(&s->receive) : NULL;
	l->below_send = m->send ? ulp_chain_top(&s->send) : NULL;
	r = fill(l, m);
	if (!r && is_half(l))
		r = ulp_push_note(s, l, m->parameters.data, m->parameters.bytes);
	if (r) {
		ulp_layer_free(l);
		return r;
	}
	l->started = l->ready = true;
	l->finished = m->finished;
	if (m->receive)
		s->receive.layer[s->receive.count++] = l;
	if (m->send)
		s->send.layer[s->send.count++] = l;
	return 0;
}

int ulp_stack_restore(struct ulp_stack *s, const struct ulp_moved *m)
{
	int r = s->receive.count || s->send.count || !m->layers.count ? -EBADMSG : 0;

	for (uint32_t i = 0; i < m->layers.count && !r; i++)
		r = restore_layer(s, &m->layers.layer[i]);
	if (r)
		return r;
	s->started = true;
	s->client = m->client;
	s->read_error = m->read_error;
	return 0;
}

/* --- after a crash ------------------------------------------------------------------------------------------------ */

int ulp_stack_keep(struct ulp_stack *s, struct ulp_kept *k)
{
	struct ulp_layer *all[ULP_MOVED_LAYERS], *l = all_layers(s, all) == 1 ? all[0] : NULL;

	if (!l || !is_whole(l) || !l->protocol->keep || !ulp_stack_ready(s) || s->failed || s->read_error ||
	    has_returned(l) || s->given.bytes)
		return -EOPNOTSUPP;
	return l->protocol->keep(l, k);
}

bool ulp_stack_can_be_kept(const struct ulp_stack *s)
{
	struct ulp_layer *all[ULP_MOVED_LAYERS];
	uint32_t count = all_layers(s, all);

	for (uint32_t i = 0; i < count; i++) {
		if (all[i]->protocol->wipe || layer_stays(all[i]))
			return false;
	}
	return count && ulp_stack_ready(s) && !s->failed;
}

void ulp_stack_tells(struct ulp_stack *s, uint8_t *touched, const struct ulp_kept *counts)
{
	s->touched = touched;
	s->read = counts->read;
	s->written = counts->written;
}

void ulp_stack_counts(const struct ulp_stack *s, struct ulp_kept *out)
{
	*out = (struct ulp_kept){ .read = s->read, .written = s->written };
}

/* Their numbers in one. */
static uint64_t chain_rests(const struct ulp_chain *chain)
{
	uint64_t all = 1;

	for (unsigned i = 0; i < chain->count; i++) {
		const struct ulp_layer *l = chain->layer[i];
		uint32_t number = l->protocol->rests && !l->finished && !has_returned(l) ? l->protocol->rests(l) : 0;

		if (!number)
			return 0;
		all = all * UINT64_C(0x100000001b3) + number;
	}
	return all;
}

uint64_t ulp_stack_rests(const struct ulp_stack *s)
{
	uint64_t receive = s->given.bytes || s->read_error ? 0 : chain_rests(&s->receive);
	uint64_t send = receive ? chain_rests(&s->send) : 0;

	return send ? receive * UINT64_C(0x100000001b3) + send : 0;
}

/* --- as a member of a record -------------------------------------------------------------------------------------- */

static bool layers_next(const void *member, uintptr_t *at, void *element)
{
	const struct ulp_moved_layers *layers = member;

	if (*at >= layers->count)
		return false;
	memcpy(element, &layers->layer[(*at)++], sizeof *layers->layer);
	return true;
}

static void layers_begin(void *member)
{
	((struct ulp_moved_layers *)member)->count = 0;
}

/* A record has at most ULP_MOVED_LAYERS of them. */
static int layers_append(void *member, const void *element)
{
	struct ulp_moved_layers *layers = member;

	if (layers->count == ULP_MOVED_LAYERS)
		return -EBADMSG;
	memcpy(&layers->layer[layers->count++], element, sizeof *layers->layer);
	return 0;
}

const struct xts_record_list ulp_moved_layers_list = { layers_next, layers_begin, layers_append, layers_begin };
