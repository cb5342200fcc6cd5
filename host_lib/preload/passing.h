/* Descriptors in the control messages of a Unix socket (SCM_RIGHTS): passing.c. */
#ifndef XTS_PRELOAD_PASSING_H
#define XTS_PRELOAD_PASSING_H

#include <stdbool.h>
#include <sys/socket.h>

/* Are there descriptors in it? Of a message that can be looked at. */
bool passing_any(const struct msghdr *message);
/* sendmsg(2) on a descriptor of the kernel's, of such a message. */
ssize_t passing_send(int fd, const struct msghdr *message, int flags);
/* The same of several, of which some are such. */
int passing_send_all(int fd, struct mmsghdr *messages, unsigned count, int flags);
/* A descriptor that has come from another program: true if it is an offloaded socket now. at_once: a listener is
 * joined, for it may soon be closed elsewhere. */
bool passing_receive(int fd, bool at_once);
/* A message has been received: offloaded sockets that came in it are this process's. Keeps errno. */
void passing_received(const struct msghdr *message);

#endif
