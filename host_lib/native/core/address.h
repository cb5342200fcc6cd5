/*
 * Converts the struct sockaddr that a program passes into struct xts_endpoint, and back: address.c. The checks, and the
 * errors, are those of the kernel.
 */
#ifndef XTS_ADDRESS_H
#define XTS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct xts_endpoint;
struct xts_sock;

/* Reads an address for a socket of this family (4 or 6); to_bind: it is the socket's own. 0, -EFAULT,
 * -EINVAL or -EAFNOSUPPORT. */
int address_read(struct xts_endpoint *out, uint8_t family, const struct sockaddr *address, socklen_t length,
		 bool to_bind);
/* -errno if this host knows at once, as the kernel would, that s cannot connect to peer; else 0. */
int address_connectable(const struct xts_sock *s, const struct xts_endpoint *peer);
/* Reads the destination of a datagram socket. An AF_INET6 socket accepts AF_INET too: -ENETUNREACH if it is for IPv6
 * only. */
int address_read_peer(struct xts_endpoint *out, const struct xts_sock *s, const struct sockaddr *address,
		      socklen_t length);
bool address_is_v4(const struct xts_endpoint *e); /* also for a mapped one */
/* only the limited broadcast address: the device knows the others */
bool address_is_broadcast(const struct xts_endpoint *e);
/* Copies what fits into room and returns the whole length, as the kernel does. */
socklen_t address_bytes(uint8_t family, const struct xts_endpoint *endpoint, void *address, socklen_t room);
/* The same for a call that returns an address. */
int address_write(uint8_t family, const struct xts_endpoint *endpoint, struct sockaddr *address, socklen_t *length);

#endif
