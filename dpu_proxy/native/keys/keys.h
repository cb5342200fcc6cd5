/*
 * Private keys of TLS are in a process that signs and decrypts with them and does nothing else (key_process.c), so that
 * a hole in what reads messages of hosts and peers shows no key. Everybody else has keys by number (provider.c), whose
 * operations ask that process (client.c).
 */
#ifndef XTS_KEYS_H
#define XTS_KEYS_H

#include <stdint.h>

/* The process: loads keys as `control` says, serves each of the connections in a thread, and ends with `control`. The
 * caller has forked it and given up its rights; what it may ask of the kernel from here on is little
 * (syscall_filter.h). The first connection is served at once, the others in the background (SCHED_IDLE). Does not
 * return. */
void xts_keys_serve(int control, const int *connections, uint32_t count);

/* This process asks over these connections, two at least, from now on, and has them. 0 or -errno. Once in a process,
 * before threads. */
int xts_keys_connect(const int *connections, uint32_t count);

#endif
