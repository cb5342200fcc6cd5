/*
 * What the operator has configured for ULPs. The supervisor makes it from the configuration file and gives it to the
 * workers. It never changes afterwards: a reload makes a new one. It is reference-counted, and a connection keeps its
 * reference until it closes. Thread-safe.
 */
#ifndef XTS_ULP_CONFIG_H
#define XTS_ULP_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct xts_ulp_config;

struct xts_ulp_limits {
	uint32_t handshake_timeout_ms; /* from TCP's establishment, or the push; default 10000 */
	/* the same for the first byte of a peer that has connected to us; default 2000; 0: handshake_timeout_ms */
	uint32_t first_byte_timeout_ms;
	uint32_t pdu_bytes_max; /* the most that an application may ask for; default 64 MiB */
	/* the most that a layer may keep of a PDU that it cannot pass on in parts; default 4 MiB */
	uint32_t buffered_bytes_max;
};

/* Returns one reference, which is the caller's; NULL: no memory. limits NULL: the defaults. */
struct xts_ulp_config *xts_ulp_config_new(const struct xts_ulp_limits *limits);
void xts_ulp_config_hold(struct xts_ulp_config *config);
void xts_ulp_config_release(struct xts_ulp_config *config);

/* Adds a parser program, which the supervisor has loaded. The configuration owns program_fd from here on. 0, -EEXIST or
 * -ENOMEM. */
int xts_ulp_config_add_parser(struct xts_ulp_config *config, const char *name, int program_fd);

/* The same for a filter of datagram sockets, which the tenant with this id may use; UINT32_MAX: all tenants. 0, -EEXIST
 * or -ENOMEM. */
int xts_ulp_config_add_filter(struct xts_ulp_config *config, const char *name, uint32_t tenant, int program_fd);

/* Offers a protocol that is off unless the operator names it (XTS_ULP_OPTIONAL). Few deployments need these protocols;
 * in all others they would only be attack surface. */
void xts_ulp_config_offer(struct xts_ulp_config *config, uint16_t ulp_id);

/* --- for layers --------------------------------------------------------------------------------------------------- */

const struct xts_ulp_limits *xts_ulp_config_limits(const struct xts_ulp_config *config);
/* May this protocol of this build be pushed? */
bool xts_ulp_config_offers(const struct xts_ulp_config *config, uint16_t ulp_id);
/* The program's descriptor, which the configuration owns; or -ENOENT. */
int xts_ulp_config_parser(const struct xts_ulp_config *config, const char *name);
/* The same for a filter that this tenant may use. */
int xts_ulp_config_filter(const struct xts_ulp_config *config, const char *name, uint32_t tenant);

#endif
