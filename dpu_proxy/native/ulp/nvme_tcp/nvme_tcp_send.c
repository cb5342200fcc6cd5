/* Sends NVMe/TCP PDUs: adds digests and padding. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "nvme_tcp.h"
#include "common/crc32c.h"

#define PIECES 64 /* written with one call */
#define ALIGNMENT_MAX 128u
#define TERM_REQ_HEADER_BYTES 24u

/* The common header has been gathered: checks that it is in plain form and matches the announced PDU. */
static int common_check(struct ulp_layer *l, struct nvme_send *s)
{
	const struct nvme_kind *kind = nvme_kind(s->head[0]);
	struct nvme_pdu p;

	nvme_pdu_get(&p, s->head);
	if (!kind || s->head[2] != kind->header_bytes)
		return ulp_fail(l, XTS_FAULT_USE, "a PDU of type 0x%02x with a header of %u bytes: there is no such PDU",
				p.type, s->head[2]);
	if (!s->pdu_bytes) /* sent in parts, and the host did not announce the length: the header has it */
		s->pdu_bytes = p.plen;
	if (p.plen != s->pdu_bytes || p.plen < kind->header_bytes || (p.plen > kind->header_bytes && !kind->data) ||
	    (kind->bytes_max && p.plen > kind->bytes_max))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU of type 0x%02x and %u bytes says PLEN %u", p.type,
				s->pdu_bytes, p.plen);
	if (kind->digests && p.plen > kind->header_bytes && p.pdo && p.pdo != kind->header_bytes)
		return ulp_fail(l, XTS_FAULT_USE,
				"PDO %u: the data must follow the header directly, the proxy adds the padding", p.pdo);
	s->head_bytes = kind->header_bytes;
	return 0;
}

/* The header is complete: makes everything that goes before the data. */
static int head_put(struct ulp_layer *l, struct nvme_tcp *n)
{
	static const uint8_t zeros[ALIGNMENT_MAX];
	struct nvme_send *s = &n->send;
	const struct nvme_kind *kind = nvme_kind(s->head[0]);
	uint8_t digests = kind->digests & n->digests;
	uint32_t data = s->pdu_bytes - s->head_bytes,
		 before = s->head_bytes + (digests & NVME_HEADER_DIGEST ? NVME_DIGEST_BYTES : 0);
	uint32_t offset = before, crc, plen;

	if (data && kind->digests)
		offset = (before + n->alignment - 1) / n->alignment * n->alignment;
	s->digest = data && digests & NVME_DATA_DIGEST;
	s->data_left = data;
	s->crc = 0;
	plen = htole32(offset + data + (s->digest ? NVME_DIGEST_BYTES : 0));
	s->head[1] &= (uint8_t)~(NVME_HDGSTF | NVME_DDGSTF);
	if (digests & NVME_HEADER_DIGEST)
		s->head[1] |= NVME_HDGSTF;
	if (s->digest)
		s->head[1] |= NVME_DDGSTF;
	if (kind->digests)
		s->head[3] = data ? (uint8_t)offset : 0;
	memcpy(s->head + 4, &plen, sizeof plen);
	if (ulp_out_reserve(&s->out, l, offset))
		return ulp_fail(l, XTS_FAULT_MEMORY, "no memory for a header");
	ulp_out_put(&s->out, s->head, s->head_bytes);
	crc = htole32(crc32c(0, s->head, s->head_bytes));
	if (digests & NVME_HEADER_DIGEST)
		ulp_out_put(&s->out, &crc, NVME_DIGEST_BYTES);
	ulp_out_put(&s->out, zeros, offset - before);
	if (s->head[0] == NVME_ICREQ || s->head[0] == NVME_ICRESP)
		nvme_negotiate(n, s->head, true);
	return 0;
}

static uint32_t pieces_crc(uint32_t crc, const struct iovec *iov, int pieces, size_t bytes)
{
	for (int i = 0; i < pieces && bytes; i++) {
		size_t here = iov[i].iov_len < bytes ? iov[i].iov_len : bytes;

		crc = crc32c(crc, iov[i].iov_base, here);
		bytes -= here;
	}
	return crc;
}

/* Writes header, data and digest with one call, as far as they are here. Returns how many bytes of data it took. */
static ssize_t rest_write(struct ulp_layer *l, struct nvme_send *s, const struct iovec *iov, int pieces, size_t skip,
			  size_t bytes)
{
	struct iovec piece[PIECES + 2] = { { .iov_base = s->out.data + s->out.first, .iov_len = s->out.bytes } };
	size_t before = s->out.bytes, data = bytes - skip < s->data_left ? bytes - skip : s->data_left;
	int slices = ulp_iov_slice(piece + 1, PIECES, iov, pieces, skip, data), first = !before;
	uint32_t digest;
	bool last;
	ssize_t n;

	data = ulp_iov_bytes(piece + 1, slices);
	last = s->digest && data == s->data_left;
	if (last) {
		digest = htole32(pieces_crc(s->crc, piece + 1, slices, data));
		piece[1 + slices] = (struct iovec){ .iov_base = &digest, .iov_len = sizeof digest };
	}
	n = ulp_write_below(l, piece + first, 1 + slices + last - first, NULL);
	if (n < 0)
		return n;
	before = before < (size_t)n ? before : (size_t)n;
	s->out.first += (uint32_t)before;
	s->out.bytes -= (uint32_t)before;
	if (!s->out.bytes)
		s->out.first = 0;
	n -= (ssize_t)before;
	if (last && (size_t)n >= data) {
		uint32_t gone = (uint32_t)((size_t)n - data);

		if (ulp_out_reserve(&s->out, l, NVME_DIGEST_BYTES))
			return ulp_fail(l, XTS_FAULT_MEMORY, "no memory for a digest");
		ulp_out_put(&s->out, (uint8_t *)&digest + gone, NVME_DIGEST_BYTES - gone);
		s->digest = false;
		n = (ssize_t)data;
	} else if (s->digest) {
		s->crc = pieces_crc(s->crc, piece + 1, slices, (size_t)n);
	}
	s->data_left -= (uint32_t)n;
	return n;
}

/* Takes as much of the header as is offered; nothing is written before it is complete. */
static int head_gather(struct ulp_layer *l, struct nvme_tcp *n, const struct iovec *iov, int pieces, size_t bytes,
		       size_t *taken)
{
	struct nvme_send *s = &n->send;
	int error = 0;

	while (!error && *taken < bytes && s->head_got < (s->head_bytes ? s->head_bytes : NVME_COMMON_BYTES)) {
		size_t want = (s->head_bytes ? s->head_bytes : NVME_COMMON_BYTES) - s->head_got;
		size_t got = ulp_iov_copy(s->head + s->head_got, iov, pieces, *taken, want);

		*taken += got;
		s->head_got += (uint32_t)got;
		if (!s->head_bytes && s->head_got == NVME_COMMON_BYTES)
			error = common_check(l, s);
		if (!error && s->head_got == s->head_bytes)
			error = head_put(l, n);
	}
	return error;
}

static int pdu_begin(struct ulp_layer *l, struct nvme_send *s, size_t bytes, const struct ulp_mark *mark)
{
	s->pdu_bytes = mark->record_bytes || mark->more ? mark->record_bytes : (uint32_t)bytes;
	s->taken = 0;
	if (!mark->pdu)
		return ulp_fail(l, XTS_FAULT_USE, "nvme_tcp sends PDUs, not a byte stream");
	if (s->pdu_bytes < NVME_COMMON_BYTES && (s->pdu_bytes || !mark->more))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU of %u bytes, shorter than its header", s->pdu_bytes);
	s->head_got = s->head_bytes = s->data_left = 0;
	s->digest = false;
	s->in_pdu = true;
	return 0;
}

/* The bytes offered now must not be more than the announced rest, and must be all of it if none follow. */
static int length_check(struct ulp_layer *l, const struct nvme_send *s, size_t bytes, bool more)
{
	uint32_t left = s->pdu_bytes - s->taken;

	if (bytes > left || (!more && bytes < left))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU whose length is not the one announced");
	return 0;
}

ssize_t nvme_tcp_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct nvme_tcp *t = l->state;
	struct nvme_send *s = &t->send;
	size_t bytes = ulp_iov_bytes(iov, pieces), taken = 0;
	int error = s->in_pdu ? 0 : ulp_out_flush(&s->out, l);

	if (error)
		return error == -EAGAIN ? 0 : error;
	if (!s->in_pdu)
		error = pdu_begin(l, s, bytes, mark);
	if (!error && s->pdu_bytes)
		error = length_check(l, s, bytes, mark->more);
	if (!error)
		error = head_gather(l, t, iov, pieces, bytes, &taken);
	if (!error && (s->pdu_bytes || !mark->more))
		error = length_check(l, s, bytes, mark->more);
	if (error)
		return error;
	while (s->out.bytes || (taken < bytes && s->data_left)) {
		uint32_t waiting = s->out.bytes;
		ssize_t n = rest_write(l, s, iov, pieces, taken, bytes);

		if (n < 0)
			return n;
		taken += (size_t)n;
		if (!n && s->out.bytes == waiting)
			break;
	}
	s->taken += (uint32_t)taken;
	s->in_pdu = !s->pdu_bytes || s->taken < s->pdu_bytes;
	return bytes ? (ssize_t)taken : 1;
}

void nvme_tcp_terminate(struct ulp_layer *l, uint16_t status, uint32_t information, const uint8_t *head, uint32_t bytes)
{
	struct nvme_tcp *t = l->state;
	uint8_t pdu[TERM_REQ_HEADER_BYTES] = { t->client ? NVME_H2C_TERM_REQ : NVME_C2H_TERM_REQ, 0,
					       TERM_REQ_HEADER_BYTES };
	uint32_t plen = htole32(TERM_REQ_HEADER_BYTES + bytes);

	if (!l->send || t->send.in_pdu || ulp_out_reserve(&t->send.out, l, TERM_REQ_HEADER_BYTES + bytes))
		return;
	status = htole16(status);
	information = htole32(information);
	memcpy(pdu + 4, &plen, sizeof plen);
	memcpy(pdu + 8, &status, sizeof status);
	memcpy(pdu + 10, &information, sizeof information);
	ulp_out_put(&t->send.out, pdu, sizeof pdu);
	ulp_out_put(&t->send.out, head, bytes);
	ulp_out_flush(&t->send.out, l);
}
