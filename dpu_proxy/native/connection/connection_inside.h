/* A connection as its own files see it: connection.c, connection_event.c, connection_close.c. */
#ifndef XTS_CONNECTION_INSIDE_H
#define XTS_CONNECTION_INSIDE_H

#include "channel/channel.h"

/* Does nobody wait for CLOSED? A host that will use the socket again (XTS_FLAG_ABORT) does. */
static inline bool close_is_unwaited(uint8_t flags)
{
	return !(flags & (XTS_FLAG_ABORT | XTS_FLAG_LINGER));
}

/* Closes its socket, drops what waits, and lets CLOSED be sent. */
void connection_close_at_once(struct connection *c);
/* LISTEN: 0 or an errno. */
int listener_start(struct connection *c, const struct xts_listen *m);
/* Closes its socket, by reset if asked; the connection stays. */
void connection_close_socket(struct connection *c, bool reset);
/* SO_ERROR, or the errno of asking for it. */
int connection_socket_error(int fd);
/* Is a lingering close at its end? */
void connection_look_at_lingering(struct connection *c);

#endif
