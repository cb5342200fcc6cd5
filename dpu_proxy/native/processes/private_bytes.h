/*
 * What only workers may see of connections that go to another process of the proxy: keys. It is in memory without a
 * name (memfd_create(2)), which the supervisor makes, since a worker may not, and whose descriptor is behind those of
 * the sockets. Supervisors read nothing of it. It is written once, from its beginning on, and read so.
 */
#ifndef XTS_PRIVATE_BYTES_H
#define XTS_PRIVATE_BYTES_H

#include <stdint.h>

#define PRIVATE_BYTES_MAX (64u << 20) /* of one connection */

/* Appends them. 0 or -errno, and then nothing more can be written. */
int private_write(int fd, const uint8_t *data, uint32_t bytes);
/* Reads as many into memory that the caller wipes and frees. The descriptor may be anything: 0; -EBADMSG: it is not
 * that, or has less; -ENOMEM. */
int private_read(int fd, uint8_t **out, uint32_t bytes);
void private_drop(uint8_t *data, uint32_t bytes);

#endif
