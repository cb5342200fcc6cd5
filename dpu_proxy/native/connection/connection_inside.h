/* A connection as its own files see it: connection.c, connection_event.c, connection_close.c. */
#ifndef XTS_CONNECTION_INSIDE_H
#define XTS_CONNECTION_INSIDE_H

#include "channel/channel.h"

/* Closes its socket, by reset if asked; the connection stays. */
void connection_close_socket(struct connection *c, bool reset);
/* SO_ERROR, or the errno of asking for it. */
int connection_socket_error(int fd);
/* Is a lingering close at its end? */
void connection_look_at_lingering(struct connection *c);

#endif
