/*
 * What has been done to a socket while it was UNDECIDED and has to be done again to the XTS socket: its options, in
 * order. Numbered from 1; a fixed store, so that setsockopt() takes no memory of the program's.
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
/* Repeats the options on an XTS socket: 0 or the -errno of one it does not take. */
int note_replay(uint32_t number, int s);

#endif
