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

#include "nvme_tcp_state.h"

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
