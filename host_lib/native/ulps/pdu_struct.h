/* Generated from messages/xts_messages/wire/host_record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_PDU_STRUCT_H
#define XTS_PDU_STRUCT_H

#include <stdbool.h>
#include <stdint.h>

#define CONTROL_BYTES 16u /* longest control data of a PDU */

struct pdu;

struct pdu_chain {
	struct pdu *first, *last; /* NULL: it is empty */
};

/* A PDU whose data is in the pieces, or a run of stream data between PDUs: pdu.c. */
struct pdu {
	struct pdu *next;
	/* received and unread */
	uint32_t bytes;
	/* bytes read so far, modulo 2^32 */
	uint32_t read;
	/* its whole length; 0: not known */
	uint32_t record_bytes;
	/* messages that it came in and whose XTS_PDU_CREDITS are not returned yet */
	uint32_t messages;
	/* not a PDU: data of the byte stream */
	bool stream;
	/* its last byte has come */
	bool whole;
	/* length of control */
	uint8_t control_bytes;
	/* enum xts_ulp_id; 0: none */
	uint16_t control_type;
	/* what the protocol says of it */
	uint8_t control[16];
};

#endif
