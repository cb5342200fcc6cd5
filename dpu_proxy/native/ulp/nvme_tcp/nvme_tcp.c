/* The layer NVME_TCP: its parameters, its PDUs, and what is negotiated. nvme_tcp.h says what it does. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme_tcp.h"
#include "nvme_tcp_move.h"
#include "ulp/protocols.h"

#define TERM_REQ_BYTES_MAX 152u
/* HPDA in ICReq, CPDA in ICResp: the data alignment that its sender wants, in units of 4
 * bytes, where 0 means one unit */
#define PDA_OFFSET 10
#define DGST_OFFSET 11
#define PDA_MAX 31u

const struct nvme_kind *nvme_kind(uint8_t type)
{
	static const struct nvme_kind kinds[] = {
		[NVME_ICREQ] = { .header_bytes = 128 },
		[NVME_ICRESP] = { .header_bytes = 128 },
		[NVME_H2C_TERM_REQ] = { .header_bytes = 24, .data = true, .bytes_max = TERM_REQ_BYTES_MAX },
		[NVME_C2H_TERM_REQ] = { .header_bytes = 24, .data = true, .bytes_max = TERM_REQ_BYTES_MAX },
		[NVME_CAPSULE_CMD] = { .header_bytes = 72, .digests = NVME_HEADER_DIGEST | NVME_DATA_DIGEST, .data = true },
		[NVME_CAPSULE_RESP] = { .header_bytes = 24, .digests = NVME_HEADER_DIGEST },
		[NVME_H2C_DATA] = { .header_bytes = 24, .digests = NVME_HEADER_DIGEST | NVME_DATA_DIGEST, .data = true },
		[NVME_C2H_DATA] = { .header_bytes = 24, .digests = NVME_HEADER_DIGEST | NVME_DATA_DIGEST, .data = true },
		[NVME_R2T] = { .header_bytes = 24, .digests = NVME_HEADER_DIGEST },
	};

	return type < sizeof kinds / sizeof kinds[0] && kinds[type].header_bytes ? &kinds[type] : NULL;
}

void nvme_pdu_get(struct nvme_pdu *p, const uint8_t *head)
{
	memcpy(&p->plen, head + 4, 4);
	p->plen = le32toh(p->plen);
	p->type = head[0];
	p->flags = head[1];
	p->pdo = head[3];
}

void nvme_negotiate(struct nvme_tcp *n, const uint8_t *head, bool sent)
{
	uint8_t agreed = head[DGST_OFFSET] & (NVME_HEADER_DIGEST | NVME_DATA_DIGEST);

	if (!n->negotiate)
		return;
	if (!sent)
		n->alignment = 4u * ((head[PDA_OFFSET] & PDA_MAX) + 1u);
	if (head[0] == NVME_ICREQ)
		n->requested = agreed;
	else
		n->digests = agreed & n->requested;
}

static int nvme_tcp_set(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct nvme_tcp *n = l->state;
	bool asked = false;
	uint8_t pda = 0;
	int r;

	switch (a->type) {
	case XTS_NVME_TCP_MAX_BYTES:
		return ulp_max_bytes(l, a, &n->pdu_bytes_max);
	case XTS_NVME_TCP_HEADER_DIGEST:
		r = ulp_attribute_flag(l, a, "HEADER_DIGEST", &asked);
		n->digests |= asked ? NVME_HEADER_DIGEST : 0;
		return r;
	case XTS_NVME_TCP_DATA_DIGEST:
		r = ulp_attribute_flag(l, a, "DATA_DIGEST", &asked);
		n->digests |= asked ? NVME_DATA_DIGEST : 0;
		return r;
	case XTS_NVME_TCP_NEGOTIATE:
		return ulp_attribute_flag(l, a, "NEGOTIATE", &n->negotiate);
	case XTS_NVME_TCP_DATA_ALIGNMENT:
		r = ulp_attribute_u8(l, a, "DATA_ALIGNMENT", &pda);
		if (!r && pda > PDA_MAX)
			r = ulp_refuse(l, EINVAL, "DATA_ALIGNMENT is 0 to %u, not %u", PDA_MAX, pda);
		n->alignment = 4u * (pda + 1u);
		return r;
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int nvme_tcp_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct nvme_tcp *n = calloc(1, sizeof *n);
	int r;

	if (!n)
		return ulp_refuse(l, ENOMEM, "no memory for nvme_tcp");
	l->state = n;
	n->pdu_bytes_max = ulp_max_bytes_default(l);
	n->requested = NVME_HEADER_DIGEST | NVME_DATA_DIGEST;
	n->alignment = 4;
	r = ulp_attributes(l, attributes, bytes, nvme_tcp_set);
	if (!r && n->pdu_bytes_max < NVME_HEADER_BYTES_MAX)
		r = ulp_refuse(l, EINVAL, "MAX_BYTES must be at least %u, the longest header, not %u",
			       NVME_HEADER_BYTES_MAX, n->pdu_bytes_max);
	if (!r && n->negotiate && n->digests)
		r = ulp_refuse(l, EINVAL, "either NEGOTIATE, or HEADER_DIGEST and DATA_DIGEST");
	return r;
}

static int nvme_tcp_start(struct ulp_layer *l, bool client)
{
	struct nvme_tcp *n = l->state;

	n->client = client;
	return 0;
}

static bool nvme_tcp_pending(const struct ulp_layer *l)
{
	const struct nvme_tcp *n = l->state;

	return ulp_in_pending(&n->receive.in, l);
}

static int nvme_tcp_flush(struct ulp_layer *l)
{
	struct nvme_tcp *n = l->state;

	return ulp_out_flush(&n->send.out, l);
}

static void nvme_tcp_close(struct ulp_layer *l)
{
	struct nvme_tcp *n = l->state;

	ulp_in_free(&n->receive.in);
	ulp_out_free(&n->send.out);
	free(n);
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

/* Once the common header is known, so is the type, and with it where everything is. */
static bool receive_is_possible(const struct nvme_receive *r)
{
	const struct nvme_kind *kind = nvme_kind(r->pdu.type);
	uint64_t total;

	if (!r->head_bytes)
		return !r->ready && !r->held && r->head_got <= NVME_COMMON_BYTES;
	if (!kind || r->head_bytes < kind->header_bytes || r->head_got > r->head_bytes)
		return false;
	total = (uint64_t)kind->header_bytes + r->data_bytes;
	if (total > UINT32_MAX || !r->ready) /* until it is ready nothing looks at what is given */
		return total <= UINT32_MAX && !r->held;
	return r->given <= total && (!r->held || r->given + 1u == total);
}

static bool send_is_possible(const struct nvme_send *s)
{
	const struct nvme_kind *kind = nvme_kind(s->head[0]);

	if (s->pdu_bytes && s->taken > s->pdu_bytes)
		return false;
	if (!s->head_bytes)
		return s->head_got <= NVME_COMMON_BYTES;
	return kind && s->head_bytes == kind->header_bytes && s->head_got <= s->head_bytes &&
	       s->pdu_bytes >= s->head_bytes;
}

int nvme_tcp_check(const void *made)
{
	const struct nvme_tcp *n = made;

	if (!n->alignment || n->alignment % 4 || n->pdu_bytes_max < NVME_HEADER_BYTES_MAX)
		return -EBADMSG;
	return receive_is_possible(&n->receive) && send_is_possible(&n->send) ? 0 : -EBADMSG;
}

static ssize_t nvme_tcp_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&nvme_tcp_record, l, out, room);
}

static uint32_t nvme_tcp_rests(const struct ulp_layer *l)
{
	const struct nvme_tcp *n = l->state;
	bool rests = !n->receive.head_got && !n->receive.in.bytes && !n->send.in_pdu && !n->send.out.bytes;

	return rests ? 1u + n->requested + ((uint32_t)n->digests << 8) : 0;
}

static int nvme_tcp_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	int r = ulp_state_restore(&nvme_tcp_record, l, sizeof(struct nvme_tcp), state, bytes);
	struct nvme_tcp *n = l->state;

	if (r)
		return r;
	if (n->receive.head_bytes)
		n->receive.pdu.kind = *nvme_kind(n->receive.pdu.type);
	return ulp_out_count(&n->send.out, l);
}

const struct ulp_protocol ulp_nvme_tcp = {
	.id = XTS_ULP_NVME_TCP,
	.version = XTS_ULP_NVME_TCP_VERSION,
	.name = "nvme_tcp",
	.receive = true,
	.send = true,
	.duplex = true,
	.boundaries = true,
	.open = nvme_tcp_open,
	.start = nvme_tcp_start,
	.read = nvme_tcp_read,
	.pending = nvme_tcp_pending,
	.write = nvme_tcp_write,
	.flush = nvme_tcp_flush,
	.save = nvme_tcp_save,
	.restore = nvme_tcp_restore,
	.rests = nvme_tcp_rests,
	.moves_since = 2,
	.close = nvme_tcp_close,
};
