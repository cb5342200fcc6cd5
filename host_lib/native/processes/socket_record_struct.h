/* Generated from messages/xts_messages/wire/host_record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_SOCKET_RECORD_STRUCT_H
#define XTS_SOCKET_RECORD_STRUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/asked_part.h"
#include "core/stamping.h"
#include "processes/deed.h"
#include "wire/record.h"
#include "ulps/pdu_struct.h"
#include "ulps/pushed_struct.h"
#include "wire/wire.h"

struct asked;

/* What a program has to know about a socket that comes from another one. */
struct socket_record {
	/* its number in the program that wrote the record */
	uint32_t number;
	/* other processes have it too: their common file; -1: none */
	int relatives;
	/* this process's slot in that */
	uint32_t relatives_slot;
	/* the socket's entry */
	uint32_t relatives_entry;
	/* 0: the connection has ended, and only its unread bytes are left; or key_is_apart */
	uint64_t key;
	/* SO_RCVTIMEO */
	uint64_t receive_timeout_ns;
	/* SO_SNDTIMEO */
	uint64_t send_timeout_ns;
	/* since the beginning */
	uint64_t sent_bytes;
	/* since the beginning */
	uint64_t received_bytes;
	/* as in struct common */
	uint64_t common_read_bytes;
	/* as in struct common */
	uint64_t common_sent_bytes;
	/* what the next call finds */
	int error;
	/* SO_LINGER */
	int32_t linger_s;
	/* of listen() */
	uint32_t backlog;
	/* credits granted to the proxy */
	uint32_t window;
	/* how far the window may grow */
	uint32_t window_max;
	/* SO_RCVLOWAT */
	uint32_t receive_lowat;
	/* bytes that were received and not read */
	struct xts_record_bytes unread;
	/* which PDUs they are; none: a byte stream */
	struct pdu_chain pdus;
	/* what the program has asked, in that order */
	struct asked *asked;
	/* of addresses */
	uint8_t family;
	/* TCP_STATE_* */
	uint8_t state;
	/* PHASE_* */
	uint8_t phase;
	/* RCV_SHUTDOWN, SEND_SHUTDOWN */
	uint8_t shutdown;
	/* the stream has ended */
	bool done;
	/* O_NONBLOCK */
	bool nonblocking;
	/* FD_CLOEXEC */
	bool close_on_exec;
	/* SO_LINGER is on */
	bool linger;
	/* SOCK_SEQPACKET */
	bool seqpacket;
	/* bind() was called */
	bool bound;
	/* with an address */
	bool bound_address;
	/* IPV6_V6ONLY */
	bool v6only;
	/* it was passed to other programs: passed_copies.h */
	bool passed;
	/* over exec: other processes may have the same open file of its deed */
	bool deed_is_shared;
	/* where: KEY_IN_LISTENER (listener_key.h), KEY_IN_DEED (deed.h); only a descriptor leads there */
	uint8_t key_is_apart;
	/* over exec: its deed; -1: none */
	int deed_fd;
	/* which deed that is */
	struct deed_id deed_id;
	/* it is a datagram socket: what follows up to stamping is of it */
	bool datagrams;
	/* it has a peer */
	bool connected;
	/* SO_BROADCAST */
	bool broadcast;
	/* SO_RXQ_OVFL */
	bool tells_drops;
	/* IP_RECVERR */
	bool queues_errors;
	/* UDP_SEGMENT */
	uint16_t segment_bytes;
	/* SO_RCVBUF */
	uint32_t receive_bytes;
	/* time stamps */
	struct stamping stamping;
	/* its own address */
	struct xts_endpoint local;
	/* the peer's */
	struct xts_endpoint peer;
	/* protocols on it */
	struct ulps ulps;
	/* where agent or proxy listen; empty: the process's default */
	char endpoint[108];
};

#endif
