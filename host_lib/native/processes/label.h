/*
 * Data that is written on a socket of the kernel, for whoever gets a descriptor of it: label.c.
 *
 * A classic BPF program can be attached to any socket, and who has a descriptor can read it (SO_GET_FILTER). The
 * program here jumps over the data, which are the constants of instructions that never run, and accepts every packet.
 * So data travel with a descriptor over a Unix socket, to as many processes as get it, and nobody reads them by
 * mistake: read() and recv() do what the socket does.
 */
#ifndef XTS_LABEL_H
#define XTS_LABEL_H

#include <stddef.h>

#define LABEL_BYTES_MAX 2048u /* the kernel has room for some thousands: net.core.optmem_max */

int label_write(int fd, const void *data, size_t bytes); /* 0 or -errno */
/* How many bytes (a multiple of 4), 0: it has no label, or one that does not fit; -errno. */
int label_read(int fd, void *data, size_t room);

#endif
