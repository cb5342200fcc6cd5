/*
 * What the client of the datagram workloads and the peer say to each other, in datagrams of their own.
 *
 * Data begins with its number, which is below COMMAND_MIN. A command begins with its code; the peer answers each with
 * the same code and its count, so a command that was lost is sent again.
 */
#ifndef BENCH_DATAGRAMS_H
#define BENCH_DATAGRAMS_H

#include <stdint.h>

#define DATAGRAM_BYTES 64u
#define SEGMENTS 64u /* of a train (GSO) */

/* Services of the peer, from the port given on. The last is a name server: every name has one address. */
enum datagram_service { DATAGRAM_SINK, DATAGRAM_SOURCE, DATAGRAM_ECHO, DATAGRAM_NAMES, DATAGRAM_SERVICES };

/* Where a source sends that is asked for a group. */
#define DATAGRAM_GROUP "239.18.0.1"
#define DATAGRAM_GROUP_PORT 9041

#define COMMAND_MIN (UINT64_MAX - 16)
#define COMMAND_COUNT \
	(UINT64_MAX - 1) /* sink: how many have come to this socket; source: how many were sent, if it has ended */
#define COMMAND_START (UINT64_MAX - 2) /* source: begin to send to where this came from */
#define COMMAND_STOP (UINT64_MAX - 3)  /* source: to nobody any more */

struct datagram_command {
	uint64_t code;
	uint64_t count;    /* in an answer */
	uint32_t rate;     /* START: datagrams a second for all; 0: as many as can be */
	uint32_t total;    /* START: of this socket, after which it ends; 0: until STOP */
	uint32_t segments; /* START: of a train; 1: single datagrams */
	uint32_t round;    /* of START: answers to an earlier one are not meant */
	uint32_t group;    /* START: to DATAGRAM_GROUP */
	uint32_t unused;
};

#endif
