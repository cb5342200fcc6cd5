/* Which filter a datagram socket has (datagram_filter.c). */
#ifndef XTS_FILTER_USE_H
#define XTS_FILTER_USE_H

#include <stdint.h>

#include "worker.h"

struct filter_totals;

struct filter_use {
	uint32_t instructions;            /* that the tenant is charged for; 0: there is no filter */
	char name[XTS_FILTER_NAME_BYTES]; /* the operator's for it; empty: it is the host's own program */
	struct filter_totals *totals;     /* of that name; NULL: there is none */
	uint32_t dropped;                 /* of the kernel's count, so many are in the totals or older */
};

#endif
