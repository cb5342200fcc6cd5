/*
 * NVMe/TCP PDUs (NVM Express TCP Transport 1.0, 3.6).
 *
 * On the wire: header (hlen bytes) | header digest, if HDGSTF | padding up to PDO | data | data digest, if DDGSTF; PLEN
 * counts all of it. The application sees and sends the plain form: header | data, with neither flag, PLEN the sum of
 * both, and PDO equal to HLEN (0 without data). Receive: the header and its digest are checked before any of the PDU
 * goes to the host. Data is passed on as it comes, except the last byte, which waits for the digest, so that no PDU is
 * complete before it has been verified. Send: digests are added, and the data is aligned as the peer asked.
 *
 * The push says which digests are used; with NEGOTIATE, the ICReq and ICResp that pass through the layer do. A PDU with
 * a digest that was not agreed, or without one that was, is an error.
 */
#ifndef XTS_ULP_NVME_TCP_H
#define XTS_ULP_NVME_TCP_H

#include "ulp/ulp.h"

#define NVME_COMMON_BYTES 8u /* type, flags, HLEN, PDO, PLEN */
#define NVME_HEADER_BYTES_MAX 128u
#define NVME_DIGEST_BYTES 4u

enum nvme_type {
	NVME_ICREQ,
	NVME_ICRESP,
	NVME_H2C_TERM_REQ,
	NVME_C2H_TERM_REQ,
	NVME_CAPSULE_CMD,
	NVME_CAPSULE_RESP,
	NVME_H2C_DATA,
	NVME_C2H_DATA,
	NVME_R2T = 9,
};

enum nvme_flag { NVME_HDGSTF = 0x01, NVME_DDGSTF = 0x02 };
enum nvme_digest { NVME_HEADER_DIGEST = 0x01, NVME_DATA_DIGEST = 0x02 }; /* as in DGST of ICReq and ICResp */

/* What a PDU of a type can have. header_bytes 0: there is no such type. */
struct nvme_kind {
	uint8_t header_bytes;
	uint8_t digests; /* enum nvme_digest */
	bool data;
	uint32_t bytes_max; /* of the whole PDU; 0: no limit */
};

struct nvme_pdu {
	struct nvme_kind kind;
	uint8_t type, flags, pdo;
	uint32_t plen;
};

struct nvme_receive {
	struct ulp_in in;
	struct nvme_pdu pdu;
	uint8_t head[256];             /* everything before the data */
	uint32_t head_got, head_bytes; /* head_bytes 0: the common header is not complete */
	uint32_t data_bytes, given;    /* of the plain form: bytes of data, and bytes delivered to the host */
	bool ready;                    /* the header is checked, and in plain form */
	uint8_t digests;               /* which ones this PDU has */
	uint32_t crc;
	uint8_t digest[NVME_DIGEST_BYTES];
	uint32_t digest_got;
	bool held; /* the last byte of the data waits for the digest */
	uint8_t last;
};

struct nvme_send {
	struct ulp_out out; /* a header or a digest */
	bool in_pdu;
	uint32_t pdu_bytes; /* as announced; 0: not known before its header is here */
	uint32_t taken;     /* of these */
	uint8_t head[NVME_HEADER_BYTES_MAX];
	uint32_t head_got, head_bytes;
	uint32_t data_left;
	bool digest; /* the data digest is still to be sent */
	uint32_t crc;
};

struct nvme_tcp {
	uint32_t pdu_bytes_max;
	uint32_t alignment; /* of the data that we send */
	bool negotiate, client;
	uint8_t requested; /* by the ICReq; all until one is seen */
	uint8_t digests;   /* in force */
	struct nvme_receive receive;
	struct nvme_send send;
};

/* --- nvme_tcp.c --- */
const struct nvme_kind *nvme_kind(uint8_t type); /* NULL: no such type */
void nvme_pdu_get(struct nvme_pdu *p, const uint8_t *head);
/* An ICReq or ICResp passes. */
void nvme_negotiate(struct nvme_tcp *n, const uint8_t *head, bool sent);

/* --- nvme_tcp_receive.c, nvme_tcp_send.c --- */
ssize_t nvme_tcp_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
ssize_t nvme_tcp_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* Sends H2CTermReq or C2HTermReq for the PDU that has this header, if a PDU can be sent now. */
void nvme_tcp_terminate(struct ulp_layer *l, uint16_t status, uint32_t information, const uint8_t *head, uint32_t bytes);

#endif
