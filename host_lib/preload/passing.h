/* Descriptors in the control messages of a Unix socket (SCM_RIGHTS): passing.c. */
#ifndef XTS_PRELOAD_PASSING_H
#define XTS_PRELOAD_PASSING_H

#include <stdbool.h>
#include <sys/socket.h>

/* Does the message, which has been checked for readability, have descriptors in it? */
bool passing_any(const struct msghdr *message);
/* sendmsg(2) on a kernel descriptor, of such a message. */
ssize_t passing_send(int fd, const struct msghdr *message, int flags);
/* The same for several messages, some of them with descriptors. */
int passing_send_all(int fd, struct mmsghdr *messages, unsigned count, int flags);
/* A descriptor that has come from another program. True: it is an offloaded socket now. at_once: a listener is joined
 * now, since it may soon be closed elsewhere. */
bool passing_receive(int fd, bool at_once);
/* A message has been received: offloaded sockets that came in it belong to this process from now on. Keeps errno. */
void passing_received(const struct msghdr *message);

#endif
