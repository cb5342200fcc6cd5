/* The struct behind xts_ulp_config, for the files that keep a part of it. */
#ifndef XTS_ULP_CONFIG_INSIDE_H
#define XTS_ULP_CONFIG_INSIDE_H

#include <stdatomic.h>

#include "config.h"

struct xts_tls_config;

struct ulp_parser {
	struct ulp_parser *next;
	int program_fd;
	char name[];
};

struct ulp_filter {
	struct ulp_filter *next;
	int program_fd;
	uint32_t tenant; /* the id of the tenant that may use it; UINT32_MAX: all may */
	char name[];
};

struct xts_ulp_config {
	atomic_uint references;
	struct xts_ulp_limits limits;
	uint32_t offered; /* a bit for each enum xts_ulp_id */
	struct ulp_parser *parsers;
	struct ulp_filter *filters; /* of datagram sockets */
	struct xts_tls_config *tls; /* tls_config.c */
};

#endif
