/*
 * A rate that is kept by giving out times: each reservation of bytes gets the time from which they may leave, and the
 * next one follows when they have had theirs. So those who share a rate are served in the order in which they ask, and
 * nobody has to count what others do. Workers share the pacer of a tenant without a lock.
 *
 * Whoever comes late, because the worker slept or was busy, may catch up on PACER_CATCH_UP_NS: that is also the burst
 * that is allowed after a pause. Time is an argument; nothing here reads a clock.
 */
#ifndef XTS_PACER_H
#define XTS_PACER_H

#include <stdatomic.h>
#include <stdint.h>

#define PACER_CATCH_UP_NS 20000000u
/* No reservation takes longer than this, however low the rate is, as in the kernel (sch_fq). */
#define PACER_LONGEST_NS 1000000000u

struct pacer {
	_Atomic uint64_t bytes_s; /* 0: no limit */
	_Atomic uint64_t next_ns; /* when the next reservation may leave */
};

/* Sets the rate. What was reserved at another one is forgotten. */
void pacer_configure(struct pacer *p, uint64_t bytes_s);
/* How many bytes of a stream are reserved at once, at this rate: a millisecond's worth, within limits. */
uint32_t pacer_chunk(uint64_t bytes_s);
/* When so many bytes may leave; 0: at once, for there is no limit. */
uint64_t pacer_reserve(struct pacer *p, uint64_t bytes, uint64_t now_ns);

static inline uint64_t pacer_rate(const struct pacer *p)
{
	return atomic_load_explicit(&p->bytes_s, memory_order_relaxed);
}

#endif
