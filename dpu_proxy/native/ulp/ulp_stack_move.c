/*
 * A stack goes to another process of the proxy: its one layer says whether it can, and writes its state (ulp.h). The
 * rest of the stack is about this process, and the new one is as after a push, started, with its layer ready.
 */
#include <errno.h>
#include <stdlib.h>

#include "ulp_stack_inside.h"

static struct ulp_layer *only_layer(const struct ulp_stack *s)
{
	struct ulp_layer *l = ulp_chain_top(&s->receive);

	return s->receive.count == 1 && s->send.count == 1 && l == ulp_chain_top(&s->send) ? l : NULL;
}

/* The first protocol that cannot go; NULL: all can. */
static const char *one_that_stays(const struct ulp_chain *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		if (!c->layer[i]->protocol->stays)
			return c->layer[i]->protocol->name;
	}
	return NULL;
}

const char *ulp_stack_stays(const struct ulp_stack *s)
{
	const struct ulp_layer *l = only_layer(s);
	const char *name = one_that_stays(&s->receive);

	name = name ? name : one_that_stays(&s->send);
	if (name || !l)
		return name ? name : "several protocols, or one of one direction";
	if (!ulp_stack_ready(s))
		return "it shakes hands, or has failed";
	if (l->replay.bytes || l->again.bytes || s->given.bytes)
		return "bytes were returned";
	return s->failed ? "it shakes hands, or has failed" : l->protocol->stays(l);
}

ssize_t ulp_stack_save(const struct ulp_stack *s, void *out, size_t room)
{
	const struct ulp_layer *l = only_layer(s);

	return l->protocol->save(l, out, room);
}

void ulp_stack_describe_move(const struct ulp_stack *s, struct ulp_moved *out)
{
	*out = (struct ulp_moved){
		.protocol = only_layer(s)->protocol->id,
		.client = s->client,
		.finished = only_layer(s)->finished,
		.read_error = s->read_error,
	};
}

void ulp_stack_wipe(struct ulp_stack *s)
{
	struct ulp_layer *l = only_layer(s);

	l->protocol->wipe(l);
}

int ulp_stack_keep(struct ulp_stack *s, struct ulp_kept *k)
{
	struct ulp_layer *l = only_layer(s);

	if (!l || !l->protocol->keep || !ulp_stack_ready(s) || s->failed || s->read_error || l->replay.bytes ||
	    l->again.bytes || s->given.bytes)
		return -EOPNOTSUPP;
	return l->protocol->keep(l, k);
}

int ulp_stack_restore(struct ulp_stack *s, const struct ulp_moved *m, const void *state, size_t bytes)
{
	const struct ulp_protocol *p = ulp_protocol(m->protocol);
	struct ulp_layer *l;
	int r;

	if (!p || !p->restore || s->receive.count || s->send.count)
		return -EBADMSG;
	l = calloc(1, sizeof *l);
	if (!l)
		return -ENOMEM;
	*l = (struct ulp_layer){ .protocol = p, .stack = s, .receive = true, .send = true };
	r = p->restore(l, state, bytes);
	if (r) {
		ulp_layer_free(l);
		return r;
	}
	l->started = l->ready = true;
	l->finished = m->finished;
	s->receive.layer[s->receive.count++] = l;
	s->send.layer[s->send.count++] = l;
	s->started = true;
	s->client = m->client;
	s->read_error = m->read_error;
	return 0;
}
