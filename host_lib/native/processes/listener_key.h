/*
 * The key of a listener, kept in the kernel's half of it: listener_key.c.
 *
 * What passes to another program is the kernel's listening socket, with a label (label.h). But the kernel copies a
 * label to each connection that the listener accepts, and a program may hand such a connection to a handler that has
 * no right to the listener. So the label of a listener says everything except its key. The key is in a place that the
 * kernel does not copy: the *backup key* of TCP Fast Open (TCP_FASTOPEN_KEY), which belongs to the queue of
 * connections that only a listening socket has. Whoever has a descriptor of the listener can read it there; a
 * connection has none. No program can set it otherwise, since the option is refused for an offloaded socket. The
 * kernel uses a backup key only to recognise cookies that it has made with it, and it makes none.
 */
#ifndef XTS_LISTENER_KEY_H
#define XTS_LISTENER_KEY_H

#include <stdint.h>

int listener_key_write(int fd, uint64_t key); /* 0 or -errno */
uint64_t listener_key_read(int fd);           /* 0: there is none */

#endif
