/*
 * Messages lost on the way to the proxy, on request, for tests of applications: a queue is to lose none, and what comes of it where
 * one does is to be seen. A message is lost after it has its sequence number, so that the proxy sees the gap.
 */
#include "core/library.h"

#include "xts_private.h"

#define MILLION 1000000u

/* xorshift: any state but 0. */
static uint64_t next_random(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

void xts_lose(uint32_t share_ppm, uint32_t next)
{
	library_enter();
	xts.lose_ppm = share_ppm < MILLION ? share_ppm : MILLION;
	xts.lose_next = next;
	library_leave();
}

bool loss_takes_it(void)
{
	if (xts.lose_next) {
		xts.lose_next--;
		return true;
	}
	return xts.lose_ppm && next_random() % MILLION < xts.lose_ppm;
}
