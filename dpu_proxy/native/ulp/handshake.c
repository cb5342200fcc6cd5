/*
 * Starting a stack: layers start from the bottom up. A layer starts when all layers below it, in every direction it
 * has, are ready. Without a handshake it is ready at once, with one when the handshake is done.
 */
#include <errno.h>

#include "common/time_units.h"
#include "config.h"
#include "ulp_stack_inside.h"

static bool may_start(const struct ulp_layer *l)
{
	return !l->started && (!l->protocol->needs_both || (l->receive && l->send)) &&
	       (!l->below_receive || l->below_receive->ready) && (!l->below_send || l->below_send->ready);
}

int ulp_layer_start(struct ulp_layer *l)
{
	int r;

	if (!l->stack->started || !may_start(l))
		return 0;
	r = l->protocol->start ? l->protocol->start(l, l->stack->client) : 0;
	if (r)
		return r;
	l->started = true;
	l->ready = !l->protocol->handshake;
	return 0;
}

/* Starts a layer that is not ready, and continues its handshake, as far as possible. */
static int layer_advance(struct ulp_layer *l, bool handshakes)
{
	int r = ulp_layer_start(l);

	if (r || !l->started || l->ready || !handshakes)
		return r;
	r = l->protocol->handshake(l);
	l->ready = !r;
	return r == -EAGAIN ? 0 : r;
}

static int advance_chain(const struct ulp_chain *c, bool handshakes, bool *progress)
{
	for (unsigned i = 0; i < c->count; i++) {
		struct ulp_layer *l = c->layer[i];
		int r = l->ready ? 0 : layer_advance(l, handshakes);

		if (r)
			return r;
		*progress |= l->ready;
		if (!l->ready)
			break;
	}
	return 0;
}

/* A layer in both chains may have to wait for a layer below it in the other chain, so this takes as many rounds as
 * there are layers in both. */
static int advance(struct ulp_stack *s, bool handshakes)
{
	for (unsigned round = 0; round <= ULP_DEPTH && !ulp_stack_ready(s); round++) {
		bool progress = false;
		int r = advance_chain(&s->receive, handshakes, &progress);

		if (!r)
			r = advance_chain(&s->send, handshakes, &progress);
		if (r || !progress)
			return r;
	}
	return 0;
}

static struct ulp_layer *first_unready(const struct ulp_chain *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		if (!c->layer[i]->ready)
			return c->layer[i];
	}
	return NULL;
}

static bool has_handshake(const struct ulp_chain *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		if (c->layer[i]->protocol->handshake)
			return true;
	}
	return false;
}

bool ulp_stack_has_handshake(const struct ulp_stack *s)
{
	return has_handshake(&s->receive) || has_handshake(&s->send);
}

bool ulp_stack_ready(const struct ulp_stack *s)
{
	return s->started && !first_unready(&s->receive) && !first_unready(&s->send);
}

/* The timeout of what the stack waits for now. */
static uint32_t time_of(const struct ulp_stack *s)
{
	const struct xts_ulp_limits *limits = xts_ulp_config_limits(s->owner.config);
	bool silent = s->expects_peer && !s->heard && limits->first_byte_timeout_ms;

	return silent ? limits->first_byte_timeout_ms : limits->handshake_timeout_ms;
}

void ulp_stack_expect_handshake(struct ulp_stack *s)
{
	if (ulp_stack_ready(s) || s->handshake_begun_ns)
		return;
	s->handshake_begun_ns = s->owner.now_ns(s->owner.owner);
	ulp_stack_wake_after(s, time_of(s));
}

void ulp_stack_expect_peer(struct ulp_stack *s)
{
	s->expects_peer = true;
}

bool ulp_stack_heard(const struct ulp_stack *s)
{
	return s->heard;
}

/* The handshake is not done: fails if its time is over, else asks to be called when it will be. */
static int wait_on(struct ulp_stack *s, struct ulp_layer *l)
{
	uint64_t now = s->owner.now_ns(s->owner.owner), deadline;
	uint32_t timeout_ms = time_of(s);

	ulp_stack_expect_handshake(s);
	deadline = s->handshake_begun_ns + (uint64_t)timeout_ms * NS_PER_MS;
	if (now < deadline) {
		ulp_stack_wake_after(s, (uint32_t)((deadline - now + NS_PER_MS - 1) / NS_PER_MS));
		return -EAGAIN;
	}
	if (s->expects_peer && !s->heard)
		return ulp_fail(l, XTS_FAULT_STALLED, "the peer has sent nothing in %u ms", timeout_ms);
	return ulp_fail(l, XTS_FAULT_STALLED, "the handshake of %s has not ended in %u ms", l->protocol->name,
			timeout_ms);
}

static int check_halves(const struct ulp_chain *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		const struct ulp_layer *l = c->layer[i];

		if (l->protocol->needs_both && !(l->receive && l->send)) {
			return ulp_refuse(l, EINVAL, "%s has been pushed onto the %s side only, and needs both",
					  l->protocol->name, l->receive ? "receive" : "send");
		}
	}
	return 0;
}

int ulp_stack_start(struct ulp_stack *s, int fd, bool client)
{
	int r = check_halves(&s->receive);

	if (!r)
		r = check_halves(&s->send);
	if (r)
		return r;
	s->owner.fd = fd;
	s->client = client;
	s->started = true;
	ulp_pushes_free(s, false);
	r = advance(s, false);
	if (!r)
		ulp_stack_expect_handshake(s);
	else
		s->failed = r;
	return r;
}

int ulp_stack_handshake(struct ulp_stack *s)
{
	struct ulp_layer *l;
	int r;

	if (s->failed)
		return s->failed;
	if (!s->started)
		return -EAGAIN;
	ulp_stack_turn(s);
	r = advance(s, true);
	if (r) {
		s->failed = r; /* a refused start or an error of the socket is as final as a fault */
		return r;
	}
	s->idle = false;
	l = first_unready(&s->receive);
	if (!l)
		l = first_unready(&s->send);
	if (!l) {
		s->handshake_begun_ns = 0;
		return 0;
	}
	return wait_on(s, l);
}
