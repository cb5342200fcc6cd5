/*
 * A length at an offset from the beginning of a PDU. STREAM_PARSER lets the host declare where it is and what it
 * counts; LENGTH_PREFIXED, DNS and TLS_RECORDS are presets of the same declaration.
 *
 * Theory of operation
 *
 * Received (length_field.c): the first strip bytes of a PDU are dropped, and the ((field & mask) >> shift) * unit +
 * adjustment bytes behind them are delivered. A protocol that demands more of the first bytes checks them in a function
 * of its own (check).
 *
 * Sent (length_prefix.c): the field is put in front of the PDU and holds the PDU's length less the adjustment. So the
 * length has to be known first, because the host announces it or because the whole PDU is here. Otherwise the parts are
 * gathered, as far as the configuration allows. Gathered bytes are written to the layer below in one write, with the
 * length before them and the new bytes behind them.
 */
#ifndef XTS_ULP_LENGTH_FIELD_H
#define XTS_ULP_LENGTH_FIELD_H

#include "framing.h"

enum length_sender_state {
	BETWEEN_PDUS,
	GATHERING, /* gathers the parts of a PDU whose length is not known yet or whose end will be padded */
	PASSING,   /* passes the parts on: the length is known, and waits in held until it is written */
};

struct length_sender {
	enum length_sender_state state;
	uint64_t left;       /* of a PDU that is PASSING, not taken from the host yet */
	struct ulp_out held; /* the length, and behind it what has been gathered */
};

struct length_field {
	struct ulp_framing framing; /* first */
	uint32_t offset, unit;      /* unit starts as 1, mask as all ones */
	uint64_t mask, adjustment;  /* the adjustment is signed */
	uint8_t width, shift;
	bool little_endian;
	uint32_t head_bytes;    /* how many bytes have to be here before the length is read */
	uint32_t strip;         /* bytes of the header that are not delivered */
	uint32_t pdu_bytes_min; /* a PDU that is shorter is a fault */
	/* control data are control_bytes of the header from control_offset on, unchanged; 0: none */
	uint16_t control_type;
	uint8_t control_offset, control_bytes;
	/* Checks that data, at least head_bytes long, is the beginning of a PDU: 0, or ulp_fail(). NULL: no check. */
	int (*check)(struct ulp_layer *l, const uint8_t *data);
	/* Pads a PDU that is sent to a multiple of block bytes, at most to room; returns its new length. NULL, or block
	 * 0: no padding. */
	uint32_t (*pad)(uint8_t *pdu, uint32_t bytes, uint32_t room, uint16_t block);
	uint16_t block;
	struct length_sender sender;
};

/* Allocates the layer's state of state_bytes, which begins with a copy of the preset and is zero behind it, and reads
 * the attributes. */
int length_field_open(struct ulp_layer *l, size_t state_bytes, const struct length_field *preset,
		      const uint8_t *attributes, uint32_t bytes,
		      int (*set)(struct ulp_layer *l, const struct ulp_attribute *a));
void length_field_close(struct ulp_layer *l);

/* For protocols that send: length_prefix.c */
ssize_t length_prefix_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
int length_prefix_flush(struct ulp_layer *l);

#endif
