/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_PUSHED_STATE_H
#define XTS_PUSHED_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"
#include "ulp/ulp_moved.h"

/* A connection's pushed protocols, for another process of the proxy (pushed/pushed_move.c). */
struct pushed_state {
	/* enum xts_ulp_id, of one alone; 0: they are in layers */
	uint16_t protocol;
	/* this side has connected */
	bool client;
	/* a push has set the type */
	bool typed;
	/* SOCK_SEQPACKET */
	bool message_socket;
	/* the host waits for READY */
	bool event_wanted;
	/* the event TLS has to be sent */
	bool tls_wanted;
	/* the last read returned bytes of a PDU */
	bool pdus;
	/* bytes of a stream sent to the host since the last PDU */
	uint64_t since_pdu;
	/* the host has begun to send a PDU */
	bool pdu_open;
	/* its length; 0: not known */
	uint32_t pdu_bytes;
	/* what of it has not come */
	uint32_t pdu_left;
	/* the protocol has sent its end of stream */
	bool finished;
	/* nothing more has to be asked of it for that */
	bool layer_finished;
	/* of the socket, which tells it once */
	int read_error;
	/* the protocol's own record */
	struct xts_record_bytes state;
	/* from TCP up, as each direction has them */
	struct ulp_moved_layers layers;
};

#endif
