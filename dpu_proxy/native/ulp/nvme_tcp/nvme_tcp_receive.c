/* Receives NVMe/TCP PDUs: checks them and puts them into their plain form. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "nvme_tcp.h"
#include "common/crc32c.h"

#define STATUS_HEADER_FIELD 1u /* fatal error status of a TermReq: invalid field in the header */
#define STATUS_HEADER_DIGEST 3u

static int header_error(struct ulp_layer *l, struct nvme_receive *r, enum xts_fault fault, uint32_t field,
			const char *what, uint32_t value)
{
	nvme_tcp_terminate(l, STATUS_HEADER_FIELD, field, r->head, r->head_got);
	return ulp_fail(l, fault, "PDU of type 0x%02x: %s %u", r->pdu.type, what, value);
}

/* Parses the common header: where the data begins and how long it is. Checks that the lengths agree with each other and
 * with the type. */
static int common_check(struct ulp_layer *l, struct nvme_tcp *n)
{
	struct nvme_receive *r = &n->receive;
	struct nvme_pdu *p = &r->pdu;
	const struct nvme_kind *kind;
	uint32_t digest, trailer = 0;

	nvme_pdu_get(p, r->head);
	kind = nvme_kind(p->type);
	if (!kind)
		return header_error(l, r, XTS_FAULT_RECORD, 0, "there is no such type", p->type);
	p->kind = *kind;
	r->digests = kind->digests & n->digests;
	digest = r->digests & NVME_HEADER_DIGEST ? NVME_DIGEST_BYTES : 0;
	if (!(p->flags & NVME_HDGSTF) != !digest)
		return header_error(l, r, XTS_FAULT_RECORD, 1, "its header digest is not what was agreed: flags",
				    p->flags);
	if (r->head[2] != kind->header_bytes)
		return header_error(l, r, XTS_FAULT_LENGTH, 2, "a header of bytes", r->head[2]);
	r->head_bytes = kind->header_bytes + digest;
	r->data_bytes = 0;
	if (p->plen < r->head_bytes || (p->plen > r->head_bytes && !kind->data) ||
	    (kind->bytes_max && p->plen > kind->bytes_max))
		return header_error(l, r, XTS_FAULT_LENGTH, 4, "PLEN", p->plen);
	if (p->plen == r->head_bytes) {
		r->digests &= NVME_HEADER_DIGEST;
		return 0;
	}
	if (kind->digests) { /* a TermReq has neither digests nor padding */
		if (p->pdo < r->head_bytes || p->pdo % 4)
			return header_error(l, r, XTS_FAULT_LENGTH, 3, "PDO", p->pdo);
		if (!(p->flags & NVME_DDGSTF) != !(r->digests & NVME_DATA_DIGEST))
			return header_error(l, r, XTS_FAULT_RECORD, 1, "its data digest is not what was agreed: flags",
					    p->flags);
		trailer = r->digests & NVME_DATA_DIGEST ? NVME_DIGEST_BYTES : 0;
		r->head_bytes = p->pdo;
		if (p->plen <= r->head_bytes + trailer)
			return header_error(l, r, XTS_FAULT_LENGTH, 4, "PLEN", p->plen);
	}
	r->data_bytes = p->plen - r->head_bytes - trailer;
	if (r->data_bytes > n->pdu_bytes_max - kind->header_bytes)
		return header_error(l, r, XTS_FAULT_TOO_LONG, 4, "longer than the application takes: PLEN", p->plen);
	return 0;
}

/* The header is complete: checks its digest, and puts it into plain form. */
static int head_check(struct ulp_layer *l, struct nvme_tcp *n)
{
	struct nvme_receive *r = &n->receive;
	uint32_t header_bytes = r->pdu.kind.header_bytes, digest, plen;

	if (r->digests & NVME_HEADER_DIGEST) {
		memcpy(&digest, r->head + header_bytes, sizeof digest);
		if (le32toh(digest) != crc32c(0, r->head, header_bytes)) {
			nvme_tcp_terminate(l, STATUS_HEADER_DIGEST, le32toh(digest), r->head, header_bytes);
			return ulp_fail(l, XTS_FAULT_DIGEST, "the header digest of a PDU of type 0x%02x is wrong",
					r->pdu.type);
		}
	}
	r->pdu.flags &= (uint8_t)~(NVME_HDGSTF | NVME_DDGSTF);
	if (r->pdu.kind.digests)
		r->pdu.pdo = r->data_bytes ? r->pdu.kind.header_bytes : 0;
	plen = htole32(header_bytes + r->data_bytes);
	r->head[1] = r->pdu.flags;
	r->head[3] = r->pdu.pdo;
	memcpy(r->head + 4, &plen, sizeof plen);
	if (r->pdu.type == NVME_ICREQ || r->pdu.type == NVME_ICRESP)
		nvme_negotiate(n, r->head, false);
	r->given = r->crc = r->digest_got = 0;
	r->ready = true;
	return 0;
}

static int head_read(struct ulp_layer *l, struct nvme_tcp *n)
{
	struct nvme_receive *r = &n->receive;
	int error = 0;

	if (r->ready)
		return 0;
	if (!r->head_bytes) {
		error = ulp_in_gather(&r->in, l, r->head, &r->head_got, NVME_COMMON_BYTES);
		if (!error)
			error = common_check(l, n);
	}
	if (!error)
		error = ulp_in_gather(&r->in, l, r->head, &r->head_got, r->head_bytes);
	if (error == -ENODATA && r->head_got)
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended in the header of a PDU");
	return error ? error : head_check(l, n);
}

static int digest_check(struct ulp_layer *l, struct nvme_receive *r)
{
	uint32_t digest;
	int error = ulp_in_gather(&r->in, l, r->digest, &r->digest_got, NVME_DIGEST_BYTES);

	if (error)
		return error;
	memcpy(&digest, r->digest, sizeof digest);
	if (le32toh(digest) != r->crc)
		return ulp_fail(l, XTS_FAULT_DIGEST, "the data digest of a PDU of type 0x%02x is wrong", r->pdu.type);
	return 0;
}

/* Reads at most room of the `left` bytes of data. The last byte is given only after the digest has been verified. */
static ssize_t data_read(struct ulp_layer *l, struct nvme_receive *r, uint8_t *out, size_t room, uint32_t left)
{
	ssize_t n = 1;
	int error;

	if (r->held) {
		*out = r->last;
	} else {
		n = ulp_in_read(&r->in, l, out, left < room ? left : room, room);
		if (n < 0 || !(r->digests & NVME_DATA_DIGEST))
			return n;
		r->crc = crc32c(r->crc, out, (size_t)n);
		if (n < left)
			return n;
	}
	error = digest_check(l, r);
	r->held = error == -EAGAIN;
	if (!r->held)
		return error ? error : n;
	r->last = out[n - 1];
	return n > 1 ? n - 1 : -EAGAIN;
}

/* Reads as much of the `left` bytes of data as is available and fits: each part costs a message to the host. */
static ssize_t data_fill(struct ulp_layer *l, struct nvme_receive *r, uint8_t *out, size_t room, uint32_t left)
{
	uint32_t done = 0;

	while (done < left && done < room) {
		ssize_t n = data_read(l, r, out + done, room - done, left - done);

		if (n < 0 && (n != -EAGAIN || !done))
			return n;
		if (n < 0)
			break;
		done += (uint32_t)n;
	}
	return (ssize_t)done;
}

ssize_t nvme_tcp_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct nvme_tcp *t = l->state;
	struct nvme_receive *r = &t->receive;
	uint32_t header_bytes, total, n = 0;
	int error = head_read(l, t);

	if (error)
		return error;
	header_bytes = r->pdu.kind.header_bytes;
	total = header_bytes + r->data_bytes;
	if (r->given < header_bytes) {
		n = header_bytes - r->given < room ? header_bytes - r->given : (uint32_t)room;
		memcpy(out, r->head + r->given, n);
	}
	if (n < room && r->given + n < total) {
		ssize_t read = data_fill(l, r, (uint8_t *)out + n, room - n, total - r->given - n);

		if (read == -ENODATA)
			return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended inside a PDU of type 0x%02x",
					r->pdu.type);
		if (read < 0 && (read != -EAGAIN || !n || !r->held))
			return read; /* the header is delivered with the data */
		n += read < 0 ? 0 : (uint32_t)read;
	}
	r->given += n;
	*mark = (struct ulp_mark){ .pdu = true,
				   .more = r->given < total,
				   .record_bytes = total,
				   .control_type = XTS_ULP_NVME_TCP,
				   .control_bytes = 5 };
	mark->control[0] = r->pdu.type;
	mark->control[1] = r->pdu.flags;
	mark->control[2] = (uint8_t)header_bytes;
	mark->control[3] = r->pdu.pdo;
	mark->control[4] = r->digests;
	if (!mark->more) {
		r->ready = false;
		r->head_got = r->head_bytes = 0;
	}
	return n;
}
