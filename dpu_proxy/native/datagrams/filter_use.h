/* Which filter a datagram socket has (datagram_filter.c). */
#ifndef XTS_FILTER_USE_H
#define XTS_FILTER_USE_H

#include <stdint.h>

struct filter_totals;

struct filter_use {
	uint32_t instructions; /* instructions that the tenant is charged for; 0: no filter */
	/* the part of the kernel's count that is in the totals already, or from before this filter */
	_Atomic uint32_t dropped;
	/* the totals of the operator's filter, with its name; NULL: the filter is the host's own program. Totals are
	 * never freed. */
	struct filter_totals *_Atomic totals;
};

#endif
