/* Generated from messages/xts_messages/wire/host_record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_STAMPING_H
#define XTS_STAMPING_H

#include <stdbool.h>
#include <stdint.h>

/* The time stamps requested of the device's socket: flags of struct sock in the kernel. */
struct stamping {
	/* SOCK_RCVTSTAMP */
	bool receives;
	/* SOCK_RCVTSTAMPNS */
	bool in_ns;
	/* SOCK_TSTAMP_NEW: the option was one of the _NEW ones */
	bool is_new;
	/* SO_TIMESTAMPING */
	uint32_t flags;
	/* SO_XTS_CLOCK: converted to this host's clock */
	bool by_host;
};

#endif
