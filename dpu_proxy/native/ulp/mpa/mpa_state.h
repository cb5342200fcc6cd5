/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_MPA_STATE_H
#define XTS_MPA_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "ulp/ulp.h"

/* One direction of the stream. */
struct mpa_stream {
	/* it has them */
	bool markers;
	/* of the next byte, in the stream of FPDUs */
	uint64_t position;
	/* position of this FPDU's ULPDU_Length field; UINT64_MAX: it has not come yet */
	uint64_t begin;
	/* of this FPDU so far */
	uint32_t crc;
};

/* MPA: ULPDUs of FPDUs (mpa.c). */
struct mpa {
	/* both sides go without */
	bool no_crc;
	/* what comes */
	struct mpa_stream from;
	/* bytes read ahead */
	struct ulp_in in;
	/* as it comes */
	uint8_t marker[4];
	/* the same */
	uint8_t length[2];
	/* how much of that */
	uint32_t marker_got;
	/* how much of that */
	uint32_t length_got;
	/* of the ULPDU: its length */
	uint32_t bytes;
	/* how much has been delivered */
	uint32_t given;
	/* padding and CRC */
	uint8_t trailer[7];
	/* how much of that */
	uint32_t trailer_got;
	/* the last byte waits for the CRC */
	bool held;
	/* that byte */
	uint8_t last;
	/* what is sent */
	struct mpa_stream to;
	/* encoded */
	struct ulp_out out;
	/* more of the PDU has to be sent */
	bool in_pdu;
	/* its length */
	uint32_t pdu_bytes;
	/* what of it has not been sent */
	uint32_t left;
};

#endif
