/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_ULP_MOVED_LAYER_H
#define XTS_ULP_MOVED_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"

/* A pushed protocol of a connection (ulp/ulp_stack_move.c). */
struct ulp_moved_layer {
	/* enum xts_ulp_id */
	uint16_t protocol;
	/* it reads */
	bool receive;
	/* it writes */
	bool send;
	/* nothing more has to be asked of it for the end of its stream */
	bool finished;
	/* its own record */
	struct xts_record_bytes state;
	/* bytes that its host gave back: it reads them before what comes from below */
	struct xts_record_bytes replay;
	/* the same, to be delivered as they are */
	struct xts_record_bytes again;
	/* of one for both directions that is in one: the other half may be pushed with the same ones */
	struct xts_record_bytes parameters;
};

#endif
