/*
 * An estimate of another machine's clock, from requests for its time. Sans-I/O: times are arguments.
 *
 * An answer contains the time of the other clock at some moment between the request and the answer. So the middle of
 * these two is right to within half of the time between them: that is the error. It grows with age, since clocks run at
 * slightly different rates. Of the last samples, the one with the least error is used. A sample that contradicts it
 * shows that the other clock has been set: then all earlier samples are dropped.
 */
#ifndef XTS_CLOCK_SAMPLES_H
#define XTS_CLOCK_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#define XTS_CLOCK_SAMPLES 8u
/* The error grows by 1 ns in this many: the drift of the quartz clocks of both ends, with a margin. */
#define XTS_CLOCK_DRIFT 10000u

struct xts_clock_sample {
	uint64_t at_ns;    /* time by our clock */
	int64_t ahead_ns;  /* how far the other clock is ahead of ours */
	uint64_t error_ns; /* error of ahead_ns in either direction, at that time */
};

struct xts_clock_samples {
	uint32_t count, next;
	struct xts_clock_sample sample[XTS_CLOCK_SAMPLES];
};

/* The best sample, with its error at now_ns; false: there is none. */
static inline bool xts_clock_best(const struct xts_clock_samples *c, uint64_t now_ns, struct xts_clock_sample *best)
{
	for (uint32_t i = 0; i < c->count; i++) {
		struct xts_clock_sample s = c->sample[i];

		if (now_ns > s.at_ns)
			s.error_ns += (now_ns - s.at_ns) / XTS_CLOCK_DRIFT;
		if (!i || s.error_ns < best->error_ns)
			*best = s;
	}
	return c->count;
}

/* Adds a sample: the request was sent at then_ns, and the answer has come at now_ns with the other clock's time. */
static inline void xts_clock_add(struct xts_clock_samples *c, uint64_t then_ns, uint64_t now_ns, uint64_t other_ns)
{
	struct xts_clock_sample best, s = { .at_ns = then_ns + (now_ns - then_ns) / 2 };
	uint64_t apart;

	s.error_ns = (now_ns - then_ns) / 2 + 1;
	s.ahead_ns = (int64_t)(other_ns - s.at_ns);
	if (xts_clock_best(c, now_ns, &best)) {
		apart = s.ahead_ns > best.ahead_ns ? (uint64_t)s.ahead_ns - (uint64_t)best.ahead_ns :
						     (uint64_t)best.ahead_ns - (uint64_t)s.ahead_ns;
		if (apart > s.error_ns + best.error_ns)
			c->count = c->next = 0;
	}
	c->sample[c->next] = s;
	c->next = (c->next + 1) % XTS_CLOCK_SAMPLES;
	if (c->count < XTS_CLOCK_SAMPLES)
		c->count++;
}

#endif
