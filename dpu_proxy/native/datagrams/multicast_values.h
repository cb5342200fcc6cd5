/* Parses the values of multicast options of setsockopt(2): what memberships a host asks for. multicast_option.c carries
 * that out. */
#ifndef XTS_MULTICAST_VALUES_H
#define XTS_MULTICAST_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct member_option;

struct request {
	bool joins;                /* may make the socket a member */
	bool leaves;               /* ends a membership */
	struct xts_endpoint group; /* scope_id: the interface, if its index is given */
	uint32_t interface;        /* LOOPBACK_INTERFACE also if one of its addresses is given */
	uint32_t sources;          /* how many sources it may add */
};

/* NULL: the option is not about memberships. */
const struct member_option *member_option(int level, int option);
/* Reads a value as the kernel would: 0 or -errno. */
int request_read(struct request *r, const struct member_option *option, int level, const void *value, uint32_t bytes);

#endif
