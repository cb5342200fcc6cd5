/*
 * A record of the options that were set, the protocols that were pushed, and the directions that were shut down, on a
 * socket while it was UNDECIDED, in order. They are repeated on the XTS socket. Records are numbered from 1, in a fixed
 * store: setsockopt() uses none of the program's memory. The functions call such a record a note.
 */
#ifndef XTS_PRELOAD_UNDECIDED_OPTIONS_H
#define XTS_PRELOAD_UNDECIDED_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

uint32_t note_make(void); /* 0: none left */
void note_drop(uint32_t number);
/* Records an option that the kernel socket has accepted. A record that is full remembers that, and note_replay()
 * reports it. */
void note_option(uint32_t number, int level, int option, const void *value, socklen_t length);
/* Options that join, leave and filter multicast groups: each call is repeated. */
bool note_is_membership(int level, int option);
bool note_is_join(int option); /* those that join */
/* IP_MULTICAST_IF, IPV6_MULTICAST_IF. */
bool note_names_interface(int level, int option);
/* This host's kernel has refused an option that is recorded all the same, since the device may know the interface. If
 * the socket stays with the kernel in the end, the call that decided it fails. */
void note_refused_interface(uint32_t number, int error);
int note_interface_error(uint32_t number); /* 0: the kernel has refused none */
/* Records that a protocol was pushed, or peek mode begun (ioctl). False: there is no room. */
bool note_push(uint32_t number, unsigned long request, const void *argument, uint32_t bytes);
/* Records a shutdown(). A record that is full remembers that, as for options. */
void note_shutdown(uint32_t number, int how);
/* 0: nothing has been pushed. Otherwise the socket cannot stay with the kernel, and this is the errno of its bind,
 * connect or listen: that of the push, if note_replay() has failed in it. */
int note_push_error(uint32_t number);
/* An option that failed when it was repeated. `failed` false: it was no option. */
struct note_failed_option {
	bool failed;
	int level, option;
};

/* Repeats all of that on an XTS socket: 0, or the -errno (and errno) of an action that the socket refuses. */
int note_replay(uint32_t number, int s, struct note_failed_option *out);

#endif
