/* What an option of multicast asks for (multicast_option.c). */
#ifndef XTS_MULTICAST_VALUES_H
#define XTS_MULTICAST_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

struct member_option;

struct request {
	bool joins;                /* may make the socket a member */
	bool leaves;               /* it is none any more */
	struct xts_endpoint group; /* scope_id: the interface, where its index is given */
	uint32_t interface;        /* LOOPBACK_INTERFACE also where one of its addresses is given */
	uint32_t sources;          /* that it may add */
};

/* NULL: it is none about memberships. */
const struct member_option *member_option(int level, int option);
/* As the kernel would read it: 0 or -errno. */
int request_read(struct request *r, const struct member_option *option, int level, const void *value, uint32_t bytes);

#endif
