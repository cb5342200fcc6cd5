/* Sleeping on a datagram socket that has not been decided (undecided_wait.c). */
#ifndef XTS_PRELOAD_UNDECIDED_WAIT_H
#define XTS_PRELOAD_UNDECIDED_WAIT_H

#include "descriptor_table.h"

static inline bool is_undecided_datagram(struct descriptor d)
{
	return d.kind == DESCRIPTOR_UNDECIDED && d.flags & DESCRIPTOR_DATAGRAM;
}

/* Called before and after a sleep in the kernel that has to end when an undecided datagram socket becomes offloaded.
 * The caller looks up what the descriptors stand for between the first call and the sleep. */
void undecided_sleep_begins(void);
void undecided_sleep_ends(void);

/* fd has become offloaded, and its kernel socket is still the same: wakes the threads that sleep on it. */
void undecided_wake(int fd);

enum undecided_receiver { RECEIVER_KERNEL, RECEIVER_XTS, RECEIVER_NONE };

/* Where a receiving call on an undecided datagram socket has to be made, once there is something to receive or the
 * socket has been decided: on the kernel socket; on the XTS socket that it is now; or nowhere, with errno for the
 * program. */
enum undecided_receiver undecided_receiver(int fd, int flags);

#endif
