/*
 * What has been done to a socket while it was UNDECIDED and has to be done again to the XTS socket: options, and pushes of
 * protocols, in order. Numbered from 1; a fixed store, so that setsockopt() takes no memory of the program's.
 */
#ifndef XTS_PRELOAD_NOTE_H
#define XTS_PRELOAD_NOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

uint32_t note_make(void); /* 0: none left */
void note_drop(uint32_t number);
/* Notes an option that the kernel's socket has taken. The note is full: that is noted too, and note_replay() says so. */
void note_option(uint32_t number, int level, int option, const void *value, socklen_t length);
/* Notes that a protocol is pushed, or peek mode begun (ioctl). false: there is no room. */
bool note_push(uint32_t number, unsigned long request, const void *argument, uint32_t bytes);
/* Nothing has been pushed: 0. Else the kernel cannot have the socket: the errno of its bind, connect or listen, which is that of
 * the push where note_replay() has failed in it. */
int note_push_error(uint32_t number);
/* Repeats all that on an XTS socket: 0 or the -errno (and errno) of what it does not take. */
int note_replay(uint32_t number, int s);

#endif
