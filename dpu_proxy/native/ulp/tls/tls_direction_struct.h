/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_TLS_DIRECTION_STRUCT_H
#define XTS_TLS_DIRECTION_STRUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"

/* One direction of a TLS connection that our record layer carries (ulp/tls/tls_direction.h). It has one owner: who
 * writes the record wipes what it was made of before anybody reads it. */
struct tls_direction {
	/* TLS 1.3, else 1.2 */
	bool tls13;
	/* the kernel's number of the cipher, or one of tls_record.h */
	uint16_t cipher;
	/* TLS 1.3: the traffic secret; 1.2: the key */
	uint8_t secret[48];
	/* how long it is */
	uint8_t secret_bytes;
	/* TLS 1.2: salt and IV */
	uint8_t iv[12];
	/* TLS 1.2: what the next record carries of its nonce */
	uint8_t explicit_nonce[8];
	/* number of the next record under these keys */
	uint64_t sequence;
	/* sending: how many records these keys have encrypted */
	uint32_t records;
	/* sending: KeyUpdate comes before the next data */
	bool update_due;
	/* close_notify has been read, or sent */
	bool ended;
	/* received bytes that are not opened, or sealed ones that TCP has not taken; the first record may be open */
	struct xts_record_bytes waiting;
	/* receiving: the first record in them is open, where it lies */
	bool opened;
	/* of that record */
	uint8_t type;
	/* its payload */
	uint32_t payload_bytes;
	/* how much of that has been delivered */
	uint32_t taken;
	/* the longest payload of a record */
	uint32_t payload_max;
	/* receiving: of a message that has come in part */
	uint8_t message_head[4];
	/* how much of the head */
	uint8_t message_head_bytes;
	/* the first byte of its body */
	uint8_t message_first;
	/* the head is here */
	bool in_message;
	/* what of its body has not come */
	uint32_t message_left;
};

/* A TLS connection that our record layer carries, for another process of the proxy (ulp/tls/tls_move.c). */
struct tls_state {
	/* we are its client */
	bool client;
	/* what comes */
	struct tls_direction receive;
	/* what leaves */
	struct tls_direction send;
	/* IANA's number of the suite */
	uint16_t cipher_id;
	/* its session was resumed */
	bool resumed;
	/* the peer's certificate was */
	bool verified;
	/* name of the suite */
	struct xts_record_bytes cipher;
	/* that the client asked for */
	struct xts_record_bytes server_name;
	/* the protocol agreed on */
	struct xts_record_bytes alpn;
	/* the peer's certificates, its own first */
	struct xts_record_bytes chain;
	/* of its own */
	uint32_t own_bytes;
	/* of a PDU that comes in parts: what is not in a record yet */
	struct xts_record_bytes part;
	/* more of the PDU has to be written */
	bool in_pdu;
	/* who should encrypt (enum xts_tls_crypto) */
	uint8_t crypto;
	/* why nobody better does */
	struct xts_record_bytes reason;
	/* a client that would keep a ticket */
	bool keeps_session;
};

#endif
