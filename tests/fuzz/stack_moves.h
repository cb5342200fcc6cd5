/* For fuzz_stack.c: the stack goes to another process, with what it has written as it is, or changed by somebody who
 * has broken into the one before. */
#ifndef XTS_FUZZ_STACK_MOVES_H
#define XTS_FUZZ_STACK_MOVES_H

#include <stdlib.h>
#include <string.h>

#include "ensure.h"
#include "input.h"
#include "ulp/ulp_moved.h"

/* Of the memory that ulp_stack_save() has made. */
static uint8_t *state_of(struct ulp_moved_layer *l)
{
	return (uint8_t *)(uintptr_t)l->state.data;
}

/* A byte of a state, its end, or what a layer is said to be. Small numbers, and those at an edge, are what matters. */
static void change_one(struct ulp_moved *m, struct input *in)
{
	static const uint8_t edges[] = { 0, 1, 2, 3, 4, 8, 9, 0x7f, 0x80, 0xff };
	struct ulp_moved_layer *l = &m->layers.layer[take(in) % m->layers.count];
	uint32_t at = take_u16(in);
	uint8_t what = take(in);

	if (what < 8)
		l->protocol = take(in) % 16;
	else if (what < 16)
		l->receive = !l->receive;
	else if (what < 24)
		l->send = !l->send;
	else if (what < 32)
		l->state.bytes -= l->state.bytes ? at % l->state.bytes : 0;
	else if (what < 40 && m->layers.count > 1)
		m->layers.count--; /* its state is lost, see below */
	else if (l->state.bytes)
		state_of(l)[at % l->state.bytes] = what < 128 ? edges[what % sizeof edges] : what;
}

/* Another stack with the same owner, of what was saved; NULL: it was refused. *changed: it is not what this one was. */
static struct ulp_stack *moved_stack(struct ulp_stack *s, const struct ulp_owner *owner, struct input *in, bool *changed)
{
	uint8_t changes = take(in) % 8;
	struct ulp_stack *next;
	struct ulp_moved *m;
	uint32_t count;
	int r;

	ENSURE(!ulp_stack_save(s, &m));
	count = m->layers.count;
	*changed = changes;
	while (changes--)
		change_one(m, in);
	ENSURE(!ulp_stack_new(&next, owner));
	r = ulp_stack_restore(next, m);
	m->layers.count = count;
	ulp_moved_free(m);
	if (!r)
		return next;
	ENSURE(*changed && (r == -EBADMSG || r == -EPROTONOSUPPORT || r == -ENOENT));
	ulp_stack_free(next);
	return NULL;
}

#endif
