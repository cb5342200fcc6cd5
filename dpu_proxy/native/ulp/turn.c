/* A connection's turn: how much its layers may do before other connections have their turn (ulp.h). */
#include "ulp_stack_inside.h"

void ulp_stack_turn(struct ulp_stack *s)
{
	if (s->turn.over)
		s->idle = false;
	s->turn = (struct ulp_turn){ .bytes = ULP_TURN_BYTES, .steps = ULP_TURN_STEPS };
}

static bool over(struct ulp_stack *s)
{
	if (!s->turn.over)
		ulp_stack_wake_after(s, 0);
	s->turn.over = true;
	return false;
}

/* The last step may cost more than what was left. */
bool ulp_turn_step(struct ulp_stack *s, uint32_t steps)
{
	if (!s->turn.steps)
		return over(s);
	s->turn.steps -= steps < s->turn.steps ? steps : s->turn.steps;
	return true;
}

size_t ulp_turn_bytes(struct ulp_stack *s, size_t bytes)
{
	if (!s->turn.bytes || !ulp_turn_step(s, 1)) {
		(void)over(s);
		return 0;
	}
	return bytes < s->turn.bytes ? bytes : s->turn.bytes;
}

bool ulp_step(struct ulp_layer *l, uint32_t steps)
{
	return ulp_turn_step(l->stack, steps);
}
