/* Time stamps that a program has asked for: datagrams/datagram_stamps.c, processes/socket_record.h. */
#ifndef XTS_STAMPING_H
#define XTS_STAMPING_H

#include <stdbool.h>
#include <stdint.h>

/* The time stamps requested of the device's socket: flags of struct sock in the kernel. */
struct stamping {
	bool receives, in_ns; /* SOCK_RCVTSTAMP, SOCK_RCVTSTAMPNS */
	bool is_new;          /* SOCK_TSTAMP_NEW: the option was one of the _NEW ones */
	uint32_t flags;       /* SO_TIMESTAMPING */
	bool by_host;         /* SO_XTS_CLOCK: converted to this host's clock */
};

#endif
