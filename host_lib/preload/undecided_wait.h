/* Sleeping for a datagram socket that has not been decided (undecided_wait.c). */
#ifndef XTS_PRELOAD_UNDECIDED_WAIT_H
#define XTS_PRELOAD_UNDECIDED_WAIT_H

#include "descriptor_table.h"

static inline bool is_undecided_datagram(struct descriptor d)
{
	return d.kind == DESCRIPTOR_UNDECIDED && d.flags & DESCRIPTOR_DATAGRAM;
}

/* Around a sleep in the kernel that an undecided datagram socket's change to offloaded has to end. What the
 * descriptors stand for is to be looked up between the first and the sleep. */
void undecided_sleep_begins(void);
void undecided_sleep_ends(void);

/* fd has become offloaded, and is still the kernel's socket that it was: threads that sleep for it wake up. */
void undecided_wake(int fd);

enum undecided_receiver { RECEIVER_KERNEL, RECEIVER_XTS, RECEIVER_NONE };

/* What a receiving call on an undecided datagram socket is to be made on, once there is something to receive or the
 * socket has been decided: the kernel's socket; the XTS socket that it is now; or none, with errno for the program. */
enum undecided_receiver undecided_receiver(int fd, int flags);

#endif
