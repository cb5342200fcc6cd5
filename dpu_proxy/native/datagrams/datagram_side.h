/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_DATAGRAM_SIDE_H
#define XTS_DATAGRAM_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"

struct datagram_group;

struct datagram_groups {
	struct datagram_group *groups;
	uint32_t count, room;
};

/* A multicast group that a datagram socket has joined. */
struct datagram_group {
	/* of the address */
	uint8_t ip_version;
	/* as in messages; of IPv4, the first four bytes */
	uint8_t address[16];
	/* the device's number; 0: not known */
	uint32_t interface;
};

/* A datagram socket, for another process of the proxy (datagrams/datagram_move.c). What has come for it waits in the
 * kernel's socket, which has its address, peer and options. */
struct datagram_side {
	/* its socket */
	int fd;
	/* of the socket */
	uint8_t ip_version;
	/* that its host has not been told */
	int error;
	/* charged for the kernel's send buffer, whose size its program has set */
	uint32_t kernel_send;
	/* the same of the receive buffer */
	uint32_t kernel_receive;
	/* of its host, and the kernel had no room: errno, 32 bits, and record */
	struct xts_record_bytes waiting;
	/* of the last of these, what has not come */
	uint32_t coming;
	/* the rest of that one is dropped */
	bool lost;
	/* taken from the kernel and not sent to its host: records */
	struct xts_record_bytes unsent;
	/* of the first, if it was sent in part */
	uint32_t data_left;
	/* by a process that had not read them, for the next one: records */
	struct xts_record_bytes returned;
	/* the same, a pending error */
	int returned_error;
	/* credits for what it was sent: it may return no more */
	uint64_t delivered;
	/* by the kernel, as the host was told */
	uint32_t dropped;
	/* its host has chosen an address or a port */
	bool bound;
	/* IP_MULTICAST_ALL, as its host has set it */
	bool all;
	/* IPV6_MULTICAST_ALL */
	bool all6;
	/* IP_PKTINFO */
	bool pktinfo;
	/* IPV6_RECVPKTINFO */
	bool pktinfo6;
	/* that it has joined */
	struct datagram_groups groups;
	/* of its filter */
	uint32_t filter_instructions;
	/* by the kernel, as far as they were counted for the filter */
	uint32_t filter_dropped;
	/* of the operator's filter */
	struct xts_record_bytes filter_name;
	/* since the beginning */
	uint64_t sent_bytes;
	/* returned, and the end of the last one has not come: records */
	struct xts_record_bytes returning;
	/* that its host had */
	uint32_t window;
	/* of one that is dropped, what has not come */
	uint32_t skipping;
};

#endif
