/*
 * What the operator has configured for ULPs. Made by the supervisor from the configuration file, given to the workers,
 * never changed afterwards: a reload makes a new one. Counted references: connections keep theirs until they close.
 * Thread-safe.
 */
#ifndef XTS_ULP_CONFIG_H
#define XTS_ULP_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct xts_ulp_config;

struct xts_ulp_limits {
	uint32_t handshake_timeout_ms; /* from TCP's establishment, or the push; default 10000 */
	/* of a peer that has connected to us, within that time; default 2000; 0: the same */
	uint32_t first_byte_timeout_ms;
	uint32_t pdu_bytes_max;      /* above what an application may ask for; default 64 MiB */
	uint32_t buffered_bytes_max; /* a layer may keep of a PDU it cannot pass on in parts; default 4 MiB */
};

/* NULL: no memory. One reference, the caller's. limits NULL: defaults. */
struct xts_ulp_config *xts_ulp_config_new(const struct xts_ulp_limits *limits);
void xts_ulp_config_hold(struct xts_ulp_config *config);
void xts_ulp_config_release(struct xts_ulp_config *config);

/* A parser program, loaded by the supervisor; the configuration owns program_fd from here on. 0, -EEXIST, -ENOMEM. */
int xts_ulp_config_add_parser(struct xts_ulp_config *config, const char *name, int program_fd);

/* The same of a filter for datagram sockets, for a tenant by its id, or UINT32_MAX: for all. 0, -EEXIST, -ENOMEM. */
int xts_ulp_config_add_filter(struct xts_ulp_config *config, const char *name, uint32_t tenant, int program_fd);

/* Offers a protocol that is off unless the operator names it (XTS_ULP_OPTIONAL): protocols that few need, so that they
 * are no attack surface where nobody does. */
void xts_ulp_config_offer(struct xts_ulp_config *config, uint16_t ulp_id);

/* --- for layers --------------------------------------------------------------------------------------------------- */

const struct xts_ulp_limits *xts_ulp_config_limits(const struct xts_ulp_config *config);
/* May this protocol, of this build's, be pushed? */
bool xts_ulp_config_offers(const struct xts_ulp_config *config, uint16_t ulp_id);
/* The program's descriptor, the configuration's own; -ENOENT. */
int xts_ulp_config_parser(const struct xts_ulp_config *config, const char *name);
/* Likewise, of a filter that this tenant may name. */
int xts_ulp_config_filter(const struct xts_ulp_config *config, const char *name, uint32_t tenant);

#endif
