/* struct sockaddr to and from struct xts_endpoint: address.c. */
#ifndef XTS_ADDRESS_H
#define XTS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct xts_endpoint;
struct xts_sock;

int address_read(struct xts_endpoint *out, uint8_t family, const struct sockaddr *address, socklen_t length, bool to_bind);
/* -errno where this host knows at once, as the kernel does, that s cannot connect to peer; else 0. */
int address_connectable(const struct xts_sock *s, const struct xts_endpoint *peer);
int address_write(uint8_t family, const struct xts_endpoint *endpoint, struct sockaddr *address, socklen_t *length);

#endif
