/* Which filter a datagram socket has (datagram_filter.c). */
#ifndef XTS_FILTER_USE_H
#define XTS_FILTER_USE_H

#include <stdint.h>

#include "worker.h"

struct filter_use {
	uint32_t instructions;            /* that the tenant is charged for; 0: there is no filter */
	char name[XTS_FILTER_NAME_BYTES]; /* the operator's for it; empty: it is the host's own program */
};

#endif
