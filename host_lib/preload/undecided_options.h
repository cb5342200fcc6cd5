/*
 * A record of the options that were set, the protocols that were pushed, and what was shut down, on a socket while it
 * was UNDECIDED, in order. They are repeated on the XTS socket. Records are numbered from 1, in a fixed store:
 * setsockopt() takes none of the program's memory. In the functions a note is such a record.
 */
#ifndef XTS_PRELOAD_UNDECIDED_OPTIONS_H
#define XTS_PRELOAD_UNDECIDED_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

uint32_t note_make(void); /* 0: none left */
void note_drop(uint32_t number);
/* Records an option that the kernel's socket has taken. A record that is full remembers that, and note_replay() says
 * so. */
void note_option(uint32_t number, int level, int option, const void *value, socklen_t length);
/* Joins, leaves and filters of multicast: each is repeated. */
bool note_is_membership(int level, int option);
bool note_is_join(int option); /* of these */
/* IP_MULTICAST_IF, IPV6_MULTICAST_IF. */
bool note_names_interface(int level, int option);
/* This host's kernel has refused an option that is noted all the same: the device may know the interface. If the socket
 * then stays with the kernel, the call that has decided it fails. */
void note_refused_interface(uint32_t number, int error);
int note_interface_error(uint32_t number); /* 0: it has not */
/* Records that a protocol is pushed, or peek mode begun (ioctl). false: there is no room. */
bool note_push(uint32_t number, unsigned long request, const void *argument, uint32_t bytes);
/* Records a shutdown(). A record that is full remembers that, as of options. */
void note_shutdown(uint32_t number, int how);
/* 0: nothing has been pushed. Else the socket cannot stay with the kernel: the errno of its bind, connect or listen,
 * which is that of the push where note_replay() has failed in it. */
int note_push_error(uint32_t number);
/* Repeats all that on an XTS socket: 0 or the -errno (and errno) of what it does not take. */
int note_replay(uint32_t number, int s);

#endif
