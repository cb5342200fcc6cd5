/* The buckets of histogram.h: 1, 2 and 5 of each power of ten, from the time of a turn to that of a connect. */
#include "worker/histogram.h"

#define BOUNDS (XTS_HISTOGRAM_COUNTS - 1)

static const uint64_t bounds_us[BOUNDS] = {
	10,    20,     50,     100,    200,     500,     1000,    2000,     5000,     10000,    20000,
	50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000, 20000000, 50000000, 100000000,
};

uint64_t xts_histogram_bound_us(uint32_t count)
{
	return count < BOUNDS ? bounds_us[count] : 0;
}

void histogram_add(struct xts_histogram *h, uint64_t ns)
{
	uint32_t first = 0, last = BOUNDS; /* the bucket is between them */

	while (first < last) {
		uint32_t middle = (first + last) / 2;

		if (ns <= bounds_us[middle] * 1000u)
			last = middle;
		else
			first = middle + 1;
	}
	h->counts[first]++;
	h->sum_ns += ns;
}
