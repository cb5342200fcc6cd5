/*
 * Pushes protocols onto the chains of a stack.
 *
 * A push makes one layer per direction, or with a duplex protocol one layer for both. A duplex protocol is pushed onto
 * both directions at once, or onto one and later onto the other. The second push joins the lowest layer of its protocol
 * that is in the other chain and not in this one. It is refused if that would put two joined layers in a different
 * order in the two chains. A push onto a layer that can be changed (`change`) changes that layer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ulp_stack_inside.h"

/* --- what was pushed ---------------------------------------------------------------------------------------------- */

static void push_free(struct ulp_push *push)
{
	explicit_bzero(push->attributes, push->bytes); /* the attributes may be keys */
	free(push);
}

void ulp_pushes_free(struct ulp_stack *s, bool all)
{
	struct ulp_push **link = &s->pushes;

	while (*link) {
		struct ulp_push *push = *link;

		if (!all && push->layer && push->layer->protocol->duplex) {
			link = &push->next;
			continue;
		}
		*link = push->next;
		push_free(push);
	}
}

static struct ulp_push *push_new(enum ulp_direction direction, uint16_t ulp_id, const uint8_t *attributes, uint32_t bytes)
{
	struct ulp_push *push = malloc(sizeof *push + bytes);

	if (!push)
		return NULL;
	*push = (struct ulp_push){ .direction = direction, .ulp_id = ulp_id, .bytes = bytes };
	if (bytes)
		memcpy(push->attributes, attributes, bytes);
	return push;
}

static void push_remember(struct ulp_stack *s, struct ulp_push *push)
{
	struct ulp_push **link = &s->pushes;

	if (s->started && !(push->layer && push->layer->protocol->duplex)) {
		push_free(push);
		return;
	}
	while (*link)
		link = &(*link)->next;
	*link = push;
}

const struct ulp_push *ulp_push_of(const struct ulp_stack *s, const struct ulp_layer *l)
{
	const struct ulp_push *push = s->pushes;

	while (push && push->layer != l)
		push = push->next;
	return push;
}

int ulp_push_note(struct ulp_stack *s, const struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct ulp_push *push = push_new(l->receive ? ULP_RECEIVE : ULP_SEND, l->protocol->id, attributes, bytes);

	if (!push)
		return -ENOMEM;
	push->layer = l;
	push_remember(s, push);
	return 0;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

void ulp_layer_free(struct ulp_layer *l)
{
	if (l->state && l->protocol->close)
		l->protocol->close(l);
	ulp_out_free(&l->replay);
	ulp_out_free(&l->again);
	free(l);
}

static int fits(const struct ulp_layer *l, const struct ulp_layer *below)
{
	return l->protocol->fits ? l->protocol->fits(l, below) : ulp_fits_stream(l, below);
}

/* Makes a layer for the top of the chains of direction, but does not put it there yet. */
static int layer_new(struct ulp_layer **out, struct ulp_stack *s, const struct ulp_protocol *p,
		     const struct ulp_push *push, enum ulp_direction direction)
{
	struct ulp_layer *l = calloc(1, sizeof *l);
	int r = 0;

	if (!l) {
		ulp_stack_refuse(s, ENOMEM, "no memory for another layer");
		return -ENOMEM;
	}
	l->protocol = p;
	l->stack = s;
	l->receive = direction & ULP_RECEIVE;
	l->send = direction & ULP_SEND;
	l->below_receive = l->receive ? ulp_chain_top(&s->receive) : NULL;
	l->below_send = l->send ? ulp_chain_top(&s->send) : NULL;
	if (l->receive)
		r = fits(l, l->below_receive);
	if (!r && l->send)
		r = fits(l, l->below_send);
	if (!r && p->open)
		r = p->open(l, push->attributes, push->bytes);
	if (r) {
		ulp_layer_free(l);
		return r;
	}
	*out = l;
	return 0;
}

static void chain_add(struct ulp_stack *s, struct ulp_layer *l, enum ulp_direction direction)
{
	if (direction & ULP_RECEIVE) {
		s->receive.layer[s->receive.count++] = l;
		s->changed = false;
	}
	if (direction & ULP_SEND)
		s->send.layer[s->send.count++] = l;
	s->idle = false;
}

/* --- the ways of a push ------------------------------------------------------------------------------------------- */

/* Pushes one layer for all of direction. */
static int push_one(struct ulp_stack *s, const struct ulp_protocol *p, struct ulp_push *push)
{
	struct ulp_layer *l = NULL;
	int r = layer_new(&l, s, p, push, push->direction);

	if (r)
		return r;
	r = ulp_layer_start(l);
	if (r) {
		ulp_layer_free(l);
		return r;
	}
	push->layer = l;
	chain_add(s, l, push->direction);
	return 0;
}

/* Pushes one layer for each direction. */
static int push_two(struct ulp_stack *s, const struct ulp_protocol *p, const struct ulp_push *push)
{
	struct ulp_layer *receive = NULL, *send = NULL;
	int r = layer_new(&receive, s, p, push, ULP_RECEIVE);

	if (r)
		return r;
	r = layer_new(&send, s, p, push, ULP_SEND);
	if (r) {
		ulp_layer_free(receive);
		return r;
	}
	r = ulp_layer_start(receive);
	if (!r)
		r = ulp_layer_start(send);
	if (r) {
		ulp_layer_free(send);
		ulp_layer_free(receive);
		return r;
	}
	chain_add(s, receive, ULP_RECEIVE);
	chain_add(s, send, ULP_SEND);
	return 0;
}

/* The layer of the other chain whose other half a push in one direction is; *crosses: their order forbids it. */
static struct ulp_layer *other_half(const struct ulp_stack *s, const struct ulp_protocol *p,
				    enum ulp_direction direction, bool *crosses)
{
	const struct ulp_chain *other = direction == ULP_RECEIVE ? &s->send : &s->receive;
	struct ulp_layer *half = NULL;

	*crosses = false;
	for (unsigned i = 0; i < other->count; i++) {
		struct ulp_layer *l = other->layer[i];

		if (half && l->receive && l->send)
			*crosses = true;
		if (!half && l->protocol == p && !(l->receive && l->send))
			half = l;
	}
	return half;
}

static bool same_parameters(const struct ulp_stack *s, const struct ulp_layer *l, const struct ulp_push *push)
{
	const struct ulp_push *first = ulp_push_of(s, l);

	return !push->bytes ||
	       (first && first->bytes == push->bytes && !memcmp(first->attributes, push->attributes, push->bytes));
}

static void join_undo(struct ulp_layer *l, enum ulp_direction direction)
{
	if (direction == ULP_RECEIVE) {
		l->receive = false;
		l->below_receive = NULL;
	} else {
		l->send = false;
		l->below_send = NULL;
	}
}

static int push_join(struct ulp_stack *s, struct ulp_layer *l, struct ulp_push *push, bool crosses)
{
	bool receive = push->direction == ULP_RECEIVE;
	int r;

	if (crosses) {
		return ulp_stack_refuse(s, EINVAL,
					"%s would be above a layer on this side that it is below on the other side",
					l->protocol->name);
	}
	if (!same_parameters(s, l, push)) {
		return ulp_stack_refuse(
			s, EINVAL,
			"%s was pushed onto the other side with other parameters: give the same ones, or none",
			l->protocol->name);
	}
	if (receive) {
		l->below_receive = ulp_chain_top(&s->receive);
		l->receive = true;
	} else {
		l->below_send = ulp_chain_top(&s->send);
		l->send = true;
	}
	r = fits(l, receive ? l->below_receive : l->below_send);
	if (!r)
		r = ulp_layer_start(l);
	if (r) {
		join_undo(l, push->direction);
		return r;
	}
	chain_add(s, l, push->direction);
	return 0;
}

static int push_change(struct ulp_stack *s, struct ulp_layer *l, const struct ulp_push *push)
{
	bool receive = push->direction == ULP_RECEIVE;
	int r;

	r = l->protocol->change(l, receive, push->attributes, push->bytes);
	if (!r) {
		s->changed |= receive;
		s->idle = false;
	}
	return r;
}

/* --- before a push ------------------------------------------------------------------------------------------------ */

struct ulp_preparation *ulp_prepare(const struct ulp_owner *owner, uint16_t ulp_id, const uint8_t *attributes,
				    uint32_t bytes)
{
	const struct ulp_protocol *p = ulp_protocol(ulp_id);
	struct ulp_stack stack = { .owner = *owner };
	struct ulp_layer layer = { .protocol = p, .stack = &stack };

	if (!p || !p->prepare || !xts_ulp_config_offers(owner->config, ulp_id))
		return NULL;
	return p->prepare(&layer, attributes, bytes);
}

/* --- the push ----------------------------------------------------------------------------------------------------- */

static int check(struct ulp_stack *s, const struct ulp_protocol *p, enum ulp_direction direction)
{
	if (!xts_ulp_config_offers(s->owner.config, p->id)) {
		return ulp_stack_refuse(
			s, ENOPROTOOPT,
			"%s is off in this proxy: its configuration has to name it, optional = [\"%s\"] in [ulp]",
			p->name, p->name);
	}
	if (direction < ULP_RECEIVE || direction > ULP_BOTH)
		return ulp_stack_refuse(s, EINVAL, "%u is not a direction", (unsigned)direction);
	if (((direction & ULP_RECEIVE) && !p->receive) || ((direction & ULP_SEND) && !p->send)) {
		return ulp_stack_refuse(s, EOPNOTSUPP, "%s can be pushed onto the %s side only", p->name,
					p->receive ? "receive" : "send");
	}
	if (p->change && direction == ULP_BOTH) {
		return ulp_stack_refuse(s, EINVAL,
					"%s is pushed onto one side at a time, because each side has its own parameters",
					p->name);
	}
	if (p->boundaries && !s->owner.message_socket) {
		return ulp_stack_refuse(s, EPROTOTYPE, "%s makes PDUs, which need a socket of type SOCK_SEQPACKET",
					p->name);
	}
	return 0;
}

/* The uppermost layer of a direction, if a push of p would change it. */
static struct ulp_layer *changeable(const struct ulp_stack *s, const struct ulp_protocol *p, enum ulp_direction direction)
{
	struct ulp_layer *receive = direction & ULP_RECEIVE ? ulp_chain_top(&s->receive) : NULL;
	struct ulp_layer *send = direction & ULP_SEND ? ulp_chain_top(&s->send) : NULL;

	if (!p->change)
		return NULL;
	if (receive && receive->protocol == p)
		return receive;
	return send && send->protocol == p ? send : NULL;
}

static int carry_out(struct ulp_stack *s, const struct ulp_protocol *p, struct ulp_push *push)
{
	enum ulp_direction direction = push->direction;
	struct ulp_layer *l = changeable(s, p, direction);
	bool crosses;

	if (l)
		return push_change(s, l, push);
	if (((direction & ULP_RECEIVE) && s->receive.count == ULP_DEPTH) ||
	    ((direction & ULP_SEND) && s->send.count == ULP_DEPTH))
		return ulp_stack_refuse(s, E2BIG, "there are %u layers already, which is the maximum", ULP_DEPTH);
	l = p->duplex && direction != ULP_BOTH ? other_half(s, p, direction, &crosses) : NULL;
	if (l)
		return push_join(s, l, push, crosses);
	return p->duplex || direction != ULP_BOTH ? push_one(s, p, push) : push_two(s, p, push);
}

int ulp_stack_push(struct ulp_stack *s, enum ulp_direction direction, uint16_t ulp_id, const uint8_t *attributes,
		   uint32_t bytes)
{
	const struct ulp_protocol *p = ulp_protocol(ulp_id);
	struct ulp_push *push;
	int r;

	if (s->failed)
		return s->failed;
	ulp_stack_touch(s);
	if (!p)
		return ulp_stack_refuse(s, ENOPROTOOPT, "this proxy does not offer protocol %u", ulp_id);
	r = check(s, p, direction);
	if (r)
		return r;
	push = push_new(direction, ulp_id, attributes, bytes);
	if (!push)
		return ulp_stack_refuse(s, ENOMEM, "no memory for another layer");
	r = carry_out(s, p, push);
	if (r) {
		push_free(push);
		return r;
	}
	push_remember(s, push);
	if (direction & ULP_RECEIVE)
		s->cut = 0; /* it comes again, behind what is given back */
	if (!s->cut)        /* else reading still fails, for the reason that is there */
		memset(&s->reason, 0, sizeof s->reason);
	if (s->started && !ulp_stack_ready(s))
		ulp_stack_expect_handshake(s);
	return 0;
}
