/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_FRAMING_STATE_H
#define XTS_FRAMING_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "ulp/ulp.h"

/* What the first bytes of a PDU say of it. */
struct ulp_framing_head {
	/* bytes of the header that are not delivered */
	uint32_t strip;
	/* of the PDU without these; more than max_bytes is a fault */
	uint64_t length;
	/* its control data, as in struct ulp_mark */
	uint16_t control_type;
	/* length of control */
	uint8_t control_bytes;
	/* what the protocol says of the PDU */
	uint8_t control[16];
};

/* How long a PDU that has begun has waited for the peer, by the monotonic clock. */
struct ulp_wait {
	/* every read since since_ns has found nothing */
	bool waiting;
	/* when it was found first */
	uint64_t since_ns;
	/* before that */
	uint64_t spent_ns;
};

/* Finds PDUs that have their length in the first bytes (framing.h). */
struct ulp_framing {
	/* Provided by the protocol. Parses the first bytes (1 to ULP_IN_BYTES) of a PDU. 1: *head is filled in; 0:
	 * needs more bytes, which it must not say when it has HEAD_MAX bytes or more; else ulp_fail(). */
	int (*parse)(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head);
	/* of a PDU */
	uint32_t max_bytes;
	/* for a PDU that has begun; 0: none */
	uint32_t timeout_ms;
	/* used by framing.c only, as all that follows */
	struct ulp_wait wait;
	/* of the current PDU */
	struct ulp_framing_head head;
	/* bytes of it that have not been delivered yet */
	uint32_t left;
	/* a PDU has begun and its length is known */
	bool known;
	/* more bytes are needed than are here */
	bool starved;
	/* bytes read ahead */
	struct ulp_in in;
};

/* A PDU on its way to the peer, with its length in front (length_prefix.c). */
struct length_sender {
	/* enum length_sender_state */
	uint8_t state;
	/* of a PDU that is PASSING, not taken from the host yet */
	uint64_t left;
	/* the length, and behind it what has been gathered */
	struct ulp_out held;
};

/* A length at an offset from the beginning of a PDU (length_field.h). */
struct length_field {
	/* first */
	struct ulp_framing framing;
	/* where the field is */
	uint32_t offset;
	/* of what it counts; starts as 1 */
	uint32_t unit;
	/* of the field; starts as all ones */
	uint64_t mask;
	/* what is added; it is signed */
	uint64_t adjustment;
	/* bytes of the field */
	uint8_t width;
	/* to the right, behind the mask */
	uint8_t shift;
	/* the field's order */
	bool little_endian;
	/* how many bytes have to be here before the length is read */
	uint32_t head_bytes;
	/* bytes of the header that are not delivered */
	uint32_t strip;
	/* a PDU that is shorter is a fault */
	uint32_t pdu_bytes_min;
	/* control data are part of the header, unchanged; 0: none */
	uint16_t control_type;
	/* where they begin */
	uint8_t control_offset;
	/* how many */
	uint8_t control_bytes;
	/* a PDU that is sent is padded to a multiple; 0: it is not */
	uint16_t block;
	/* what is sent */
	struct length_sender sender;
	/* Checks that data, at least head_bytes long, is the beginning of a PDU: 0, or ulp_fail(). NULL: no check. */
	int (*check)(struct ulp_layer *l, const uint8_t *data);
	/* Pads a PDU that is sent to a multiple of block bytes, at most to room; returns its new length. NULL, or block
	 * 0: no padding. */
	uint32_t (*pad)(uint8_t *pdu, uint32_t bytes, uint32_t room, uint16_t block);
};

/* STREAM_PARSER: a length field, and bytes by which a PDU begins (stream_parser.c). */
struct stream_parser {
	/* first */
	struct length_field field;
	/* where these bytes are */
	uint32_t magic_offset;
	/* how many */
	uint8_t magic_bytes;
	/* how many of their mask were given */
	uint8_t magic_mask_bytes;
	/* these bytes */
	uint8_t magic[16];
	/* which of their bits are compared */
	uint8_t magic_mask[16];
	bool has_offset, has_magic_offset; /* while it is pushed */
};

/* BPF_PARSER: a program that the operator has named (bpf_parser.c). */
struct bpf_parser {
	/* first */
	struct ulp_framing framing;
	/* of the program, with a NUL behind it */
	char name[64];
	int program_fd; /* owned by the configuration */
};

/* A line on its way to the peer. */
struct lines_sending {
	/* bytes of the current PDU that the layer below has taken */
	uint64_t length;
	/* bytes of it that have been checked; more than length when not all were taken */
	uint64_t checked;
	/* its last bytes */
	uint64_t window;
	/* bytes of the delimiter that the layer below has not taken yet */
	uint8_t delimiter_left;
};

/* LINES: one PDU per line (lines.c). */
struct lines {
	/* of a line */
	uint32_t max_bytes;
	/* what is sent */
	struct lines_sending sending;
	/* that ends a line */
	uint8_t delimiter[8];
	/* how long it is */
	uint8_t delimiter_bytes;
	/* it is part of the PDU */
	bool keep;
	/* bytes of the current line that have been delivered */
	uint64_t handed;
	/* once the end of the line is found, its bytes that are still to deliver: a delimiter that the reader's room
	 * cuts in two is not found again */
	uint32_t ending;
	/* what was read ahead has been searched, and none of it can be delivered yet */
	bool starved;
	/* bytes read ahead */
	struct ulp_in in;
	uint64_t delimiter_value, delimiter_mask; /* of the delimiter, as in sending.window */
};

#endif
