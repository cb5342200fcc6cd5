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

/* Allocates the layer's state of state_bytes, which begins with a copy of the preset and is zero behind it, and reads
 * the attributes. */
int length_field_open(struct ulp_layer *l, size_t state_bytes, const struct length_field *preset,
		      const uint8_t *attributes, uint32_t bytes,
		      int (*set)(struct ulp_layer *l, const struct ulp_attribute *a));
void length_field_close(struct ulp_layer *l);
/* restore() of a layer whose state, of state_bytes, begins with its struct length_field: what a record (r) says, where
 * that is as far as the preset demands it. save() is ulp_state_save(). */
int length_field_restore(struct ulp_layer *l, size_t state_bytes, const struct length_field *preset,
			 const struct xts_record *r, const void *state, size_t bytes);
ssize_t length_field_save(const struct ulp_layer *l, void *out, size_t room);
uint32_t length_field_rests(const struct ulp_layer *l); /* as rests() */

/* For protocols that send: length_prefix.c */
ssize_t length_prefix_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
int length_prefix_flush(struct ulp_layer *l);

#endif
