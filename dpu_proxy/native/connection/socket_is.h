/* What a descriptor is that came with a record (tcp_record.c, datagram_record.c). */
#ifndef XTS_SOCKET_IS_H
#define XTS_SOCKET_IS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* The kernel is asked, since a descriptor of a peer may be anything. ip_version: 4 or 6. */
static inline bool socket_is(int fd, uint8_t ip_version, int type, int protocol)
{
	static const int names[] = { SO_DOMAIN, SO_TYPE, SO_PROTOCOL };
	const int wanted[] = { ip_version == 6 ? AF_INET6 : AF_INET, type, protocol };

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		int value = 0;
		socklen_t length = sizeof value;

		if (getsockopt(fd, SOL_SOCKET, names[i], &value, &length) || value != wanted[i])
			return false;
	}
	return true;
}

#endif
