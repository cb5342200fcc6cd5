/* Which filter a datagram socket has (datagram_filter.c). */
#ifndef XTS_FILTER_USE_H
#define XTS_FILTER_USE_H

#include <stdint.h>

struct filter_totals;

struct filter_use {
	uint32_t instructions;    /* that the tenant is charged for; 0: there is no filter */
	_Atomic uint32_t dropped; /* of the kernel's count, so many are in the totals or older */
	/* of the operator's filter, with its name; NULL: it is the host's own program. Totals are never freed. */
	struct filter_totals *_Atomic totals;
};

#endif
