/* The functions of poll.c that select.c uses. */
#ifndef XTS_PRELOAD_POLL_BOTH_H
#define XTS_PRELOAD_POLL_BOTH_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Does libxts have to wait for this descriptor? */
bool poll_is_ours(int fd);
/* ppoll() over descriptors of all kinds, until deadline_ns. outer: what the caller has done that has to be undone if
 * the thread is cancelled; or NULL. */
struct preload_undo;
int poll_both(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask,
	      const struct preload_undo *outer);

#endif
