/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_ULP_MARK_H
#define XTS_ULP_MARK_H

#include <stdbool.h>
#include <stdint.h>

#define ULP_CONTROL_BYTES 16

/* Describes the bytes of one read or write, which all belong to one PDU or to a byte stream. */
struct ulp_mark {
	/* false: a byte stream, nothing else is set */
	bool pdu;
	/* the PDU goes on after these bytes */
	bool more;
	/* length of control */
	uint8_t control_bytes;
	/* enum xts_ulp_id, 0: none */
	uint16_t control_type;
	/* length of the whole PDU; 0: not known (yet) */
	uint32_t record_bytes;
	/* what the protocol says of the PDU */
	uint8_t control[16];
};

#endif
