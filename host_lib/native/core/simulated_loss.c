/*
 * Simulates lost messages to the proxy, on request, for tests of applications: a queue must not lose any, and this
 * shows what happens if it does. A message is lost after it has its sequence number, so that the proxy sees the gap.
 */
#include "core/channel.h"
#include "core/stack.h"
#include "xts_private.h"

#define MILLION 1000000u

/* xorshift: any state except 0. */
static uint64_t next_random(struct stack *st)
{
	st->lose_random ^= st->lose_random << 13;
	st->lose_random ^= st->lose_random >> 7;
	return st->lose_random ^= st->lose_random << 17;
}

void xts_lose(uint32_t share_ppm, uint32_t next)
{
	struct stack *st = stack_enter_own();

	st->lose_ppm = share_ppm < MILLION ? share_ppm : MILLION;
	st->lose_next = next;
	stack_leave(st);
}

bool loss_takes_it(struct stack *st)
{
	if (st->lose_next) {
		st->lose_next--;
		return true;
	}
	return st->lose_ppm && next_random(st) % MILLION < st->lose_ppm;
}
