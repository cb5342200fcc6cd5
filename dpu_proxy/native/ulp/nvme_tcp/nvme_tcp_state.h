/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_NVME_TCP_STATE_H
#define XTS_NVME_TCP_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "ulp/ulp.h"

/* What a PDU of a type can have. header_bytes 0: there is no such type. */
struct nvme_kind {
	uint8_t header_bytes;
	uint8_t digests; /* enum nvme_digest */
	bool data;
	uint32_t bytes_max; /* of the whole PDU; 0: no limit */
};

/* The common header of a PDU. */
struct nvme_pdu {
	/* enum nvme_type */
	uint8_t type;
	/* enum nvme_flag */
	uint8_t flags;
	/* where the data are */
	uint8_t pdo;
	/* of all of it */
	uint32_t plen;
	struct nvme_kind kind; /* of its type */
};

/* What comes (nvme_tcp_receive.c). */
struct nvme_receive {
	/* bytes read ahead */
	struct ulp_in in;
	/* the current PDU */
	struct nvme_pdu pdu;
	/* everything before the data */
	uint8_t head[256];
	/* how much of that */
	uint32_t head_got;
	/* how long it is; 0: the common header is not complete */
	uint32_t head_bytes;
	/* of the plain form: bytes of data */
	uint32_t data_bytes;
	/* bytes delivered to the host */
	uint32_t given;
	/* the header is checked, and in plain form */
	bool ready;
	/* which ones this PDU has */
	uint8_t digests;
	/* of the data so far */
	uint32_t crc;
	/* as it comes */
	uint8_t digest[4];
	/* how much of it */
	uint32_t digest_got;
	/* the last byte of the data waits for the digest */
	bool held;
	/* that byte */
	uint8_t last;
};

/* What is sent (nvme_tcp_send.c). */
struct nvme_send {
	/* a header or a digest */
	struct ulp_out out;
	/* more of the PDU has to be sent */
	bool in_pdu;
	/* as announced; 0: not known before its header is here */
	uint32_t pdu_bytes;
	/* of these */
	uint32_t taken;
	/* as the host sends it */
	uint8_t head[128];
	/* how much of it */
	uint32_t head_got;
	/* how long it is; 0: the common header is not complete */
	uint32_t head_bytes;
	/* of the data */
	uint32_t data_left;
	/* the data digest is still to be sent */
	bool digest;
	/* of the data so far */
	uint32_t crc;
};

/* NVME_TCP (nvme_tcp.c). */
struct nvme_tcp {
	/* of a PDU that comes */
	uint32_t pdu_bytes_max;
	/* of the data that we send */
	uint32_t alignment;
	/* ICReq and ICResp say which digests there are */
	bool negotiate;
	/* it has connected */
	bool client;
	/* by the ICReq; all until one is seen */
	uint8_t requested;
	/* in force */
	uint8_t digests;
	/* what comes */
	struct nvme_receive receive;
	/* what is sent */
	struct nvme_send send;
};

#endif
