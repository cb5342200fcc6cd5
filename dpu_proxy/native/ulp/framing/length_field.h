/*
 * A length at an offset from the beginning of a PDU. STREAM_PARSER lets the host declare where it is and what it
 * counts; LENGTH_PREFIXED, DNS and TLS_RECORDS are presets of the same declaration.
 *
 * Theory of operation
 *
 * Received (length_field.c): of the PDU, ((field & mask) >> shift) * unit + adjustment bytes are handed on, after strip
 * bytes that are not. Protocols that demand more of the first bytes have a function for that.
 *
 * Sent (length_prefix.c): the field stands in front of the PDU, of which it counts the bytes less the adjustment.
 * The length has to be known first: because the host announces it, or because all of the PDU is here. Else its parts
 * are gathered, as far as the configuration allows. What is gathered goes below in one write with the length before
 * it and the bytes behind it.
 */
#ifndef XTS_ULP_LENGTH_FIELD_H
#define XTS_ULP_LENGTH_FIELD_H

#include "framing.h"

enum length_sender_state {
	BETWEEN_PDUS,
	GATHERING, /* the parts of a PDU, whose length is not known yet or whose end is to be padded */
	PASSING,   /* the length is known, and in held until it is written: parts are passed on */
};

struct length_sender {
	enum length_sender_state state;
	uint64_t left;       /* of a PDU that passes, not taken from the host yet */
	struct ulp_out held; /* the length, and what has been gathered behind it */
};

struct length_field {
	struct ulp_framing framing; /* first */
	uint32_t offset, unit;      /* unit and mask are set to 1 and all ones at first */
	uint64_t mask, adjustment;  /* the adjustment is signed */
	uint8_t width, shift;
	bool little_endian;
	uint32_t head_bytes;    /* all that has to be here before the length is judged */
	uint32_t strip;         /* bytes of the head that are not handed on */
	uint32_t pdu_bytes_min; /* a PDU that is shorter is a fault */
	uint16_t control_type;  /* control data: control_bytes from control_offset on, as they are; 0: none */
	uint8_t control_offset, control_bytes;
	/* Are these, of head_bytes bytes at least, the beginning of a PDU? 0, or ulp_fail(). NULL: they always are. */
	int (*check)(struct ulp_layer *l, const uint8_t *data);
	/* Sent PDUs are padded: to a multiple of block bytes, at most room; returns the length then. NULL,
	 * or block 0: they are not. */
	uint32_t (*pad)(uint8_t *pdu, uint32_t bytes, uint32_t room, uint16_t block);
	uint16_t block;
	struct length_sender sender;
};

/* Makes the layer's state of state_bytes, which begins with a copy of the preset and is zero behind it,
 * and reads the attributes. */
int length_field_open(struct ulp_layer *l, size_t state_bytes, const struct length_field *preset,
		      const uint8_t *attributes, uint32_t bytes,
		      int (*set)(struct ulp_layer *l, const struct ulp_attribute *a));
void length_field_close(struct ulp_layer *l);

/* For protocols that send: length_prefix.c */
ssize_t length_prefix_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
int length_prefix_flush(struct ulp_layer *l);

#endif
