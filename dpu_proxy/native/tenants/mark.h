/*
 * The mark of a tenant: the DSCP that the operator has given it. All its sockets have it from the beginning. A program
 * may still choose the two bits for congestion (ECN); what it wants for the other six is replaced, as a router at the
 * border of a network would do, and it reads back what is in force.
 */
#ifndef XTS_MARK_H
#define XTS_MARK_H

#include <stdbool.h>
#include <stdint.h>

struct xts_tenant;

/* Marks a new socket of this IP version, if the tenant has a mark. */
void mark_socket(const struct xts_tenant *t, int fd, uint8_t ip_version);
/* The traffic class (TOS) that a packet gets for which this one is wanted. */
uint32_t marked(const struct xts_tenant *t, uint32_t traffic_class);
/* The traffic class of what a socket sends, as the kernel knows it. */
uint32_t mark_of(int fd, uint8_t ip_version);
/* Does the tenant have a mark? */
bool mark_is_set(const struct xts_tenant *t);
/* Puts the mark into the value of IP_TOS or IPV6_TCLASS that a program sets; other options stay as they are. Returns
 * the length of the value. */
uint32_t mark_option(const struct xts_tenant *t, int level, int option, uint8_t *value, uint32_t bytes);

#endif
