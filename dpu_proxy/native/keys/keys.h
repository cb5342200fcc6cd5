/*
 * The private keys of TLS are in a process that signs and decrypts with them and does nothing else (key_process.c). So
 * a vulnerability in the code that reads messages of hosts and peers exposes no key. All other processes have keys by
 * number (provider_keys.c), whose operations ask that process (key_client.c).
 */
#ifndef XTS_KEYS_H
#define XTS_KEYS_H

#include <stdint.h>

/* The main function of the process: loads keys on orders from `control`, serves each connection in a thread, and ends
 * when `control` is closed. The caller has forked it and dropped its privileges; from here on few system calls are
 * allowed (allowed_syscalls.h). The first connection is served by an ordinary thread, the others in the background
 * (SCHED_IDLE). numbers_to: the last number that a process before has given to a key; 0: there was none. Does not
 * return. */
void xts_keys_serve(int control, const int *connections, uint32_t count, uint32_t numbers_to);

/* From now on this process sends its requests over these connections, at least two, and owns them. 0 or -errno. Called
 * once per process, before it starts threads. */
int xts_keys_connect(const int *connections, uint32_t count);
/* The key process has died, and another one has the same keys. These connections to it take the place of those before,
 * under the same numbers of descriptors, and are closed. 0 or -errno. */
int xts_keys_renew(const int *connections, uint32_t count);
/* This process goes on with the connections of one that has died, of which it is a copy from before any request:
 * answers to that one's are no answers to its own. 0 or -errno. */
int xts_keys_go_on(void);

#endif
