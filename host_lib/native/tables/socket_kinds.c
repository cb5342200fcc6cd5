/* The kinds of sockets (core/socket_kind.h). */
#include "tables/socket_kinds.h"

const struct socket_kind *const socket_kinds[SOCKET_KINDS] = {
	[KIND_STREAM] = &stream_kind,
	[KIND_LISTENER] = &listener_kind,
	[KIND_DATAGRAM] = &datagram_kind,
};
