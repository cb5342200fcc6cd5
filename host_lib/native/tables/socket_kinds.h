/* The tables of the kinds of sockets, each in its own file; and what listeners have as streams have it. */
#ifndef XTS_SOCKET_KINDS_H
#define XTS_SOCKET_KINDS_H

#include "core/socket_kind.h"

extern const struct socket_kind stream_kind;   /* tables/stream_kind.c */
extern const struct socket_kind listener_kind; /* listeners/listener_kind.c */
extern const struct socket_kind datagram_kind; /* datagrams/datagram_kind.c */

#endif
