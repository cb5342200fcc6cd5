/*
 * Memory that grows with what peers and hosts send. It is counted with the owner, which has one limit for all
 * connections of a host together. An owner that gives the stack away or frees it subtracts the stack's count
 * (ulp_stack_memory()) from its own account.
 */
#include <errno.h>

#include "ulp_stack_inside.h"

int ulp_stack_take_memory(struct ulp_stack *s, uint32_t bytes)
{
	if (s->owner.memory && !s->owner.memory(s->owner.owner, bytes))
		return -ENOBUFS;
	s->memory += bytes;
	return 0;
}

void ulp_stack_return_memory(struct ulp_stack *s, uint32_t bytes)
{
	s->memory -= bytes;
	if (s->owner.memory)
		(void)s->owner.memory(s->owner.owner, -(int64_t)bytes);
}

uint64_t ulp_stack_memory(const struct ulp_stack *s)
{
	return s->memory;
}

int ulp_memory_take(struct ulp_layer *l, uint32_t bytes)
{
	return ulp_stack_take_memory(l->stack, bytes);
}

void ulp_memory_return(struct ulp_layer *l, uint32_t bytes)
{
	ulp_stack_return_memory(l->stack, bytes);
}

int ulp_memory_fail(struct ulp_layer *l, int why, const char *what)
{
	if (why == -ENOBUFS)
		return ulp_fail(l, XTS_FAULT_MEMORY, "%s: no room for %s: %s", l->protocol->name, what, ULP_MEMORY_LIMIT);
	return ulp_fail(l, XTS_FAULT_MEMORY, "%s: no memory for %s", l->protocol->name, what);
}
