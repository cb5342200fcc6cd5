/*
 * Data attached to a kernel socket, for every process that gets a descriptor of it: label.c.
 *
 * A classic BPF program can be attached to any socket, and every process with a descriptor of it can read the program
 * (SO_GET_FILTER). The program here jumps over the data, which are the constants of instructions that never run, and
 * accepts every packet. So the data travel with a descriptor over a Unix socket, to any number of processes, and no
 * process reads them by mistake: read() and recv() work as usual.
 */
#ifndef XTS_LABEL_H
#define XTS_LABEL_H

#include <stddef.h>

#define LABEL_BYTES_MAX 2048u /* the kernel has room for some thousands: net.core.optmem_max */

int label_write(int fd, const void *data, size_t bytes); /* 0 or -errno */
/* Returns the number of bytes (a multiple of 4), 0: no label, or one that does not fit; -errno. */
int label_read(int fd, void *data, size_t room);

#endif
