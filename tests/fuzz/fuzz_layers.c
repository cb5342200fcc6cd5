/*
 * libFuzzer target: the message protocols, from one stack to another over a socket pair.
 *
 * The input chooses the protocol and its parameters, and then, operation by operation, PDUs that the protocol can
 * carry, in what parts they are offered, and how much each side reads and has room for. What one side has sent arrives
 * at the other, byte for byte and with the same boundaries; nothing is ever a fault. So digests, markers, windows and
 * short writes are all reached, which bytes made up by chance (fuzz_stack) seldom do.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ensure.h"
#include "input.h"
#include "ulp/config.h"
#include "ulp/http2/http2.h"
#include "ulp/ulp_stack.h"
#include "wire/wire.h"
#include "steps.h"

#define PDU_BYTES_MAX 70000u
#define WAITING_MAX 64u
#define STEPS_MAX 300
#define STREAMS 3u

/* A PDU on its way: what the other side has to see. */
struct pdu {
	uint32_t bytes;
	uint8_t control[8], text; /* the first byte that is not a header's */
	uint8_t head[128];
	uint32_t head_bytes;
};

struct side {
	struct ulp_stack *stack;
	uint64_t faults[XTS_FAULT_COUNT];
	int fd;
	/* the ring of what the other side has not seen yet; the last may not be sent in full */
	struct pdu sent[WAITING_MAX];
	uint32_t first, count;
	uint32_t offered; /* of the last; all of it when nothing is under way */
	uint32_t got;     /* of the other side's first */
};

static uint16_t protocol;

static uint64_t now_ns(void *owner)
{
	(void)owner;
	return 1;
}

static void wake_after(void *owner, uint32_t timeout_ms)
{
	(void)owner;
	(void)timeout_ms;
}

static uint8_t byte_of(const struct pdu *p, uint32_t at)
{
	return at < p->head_bytes ? p->head[at] : (uint8_t)(p->text + at * 7);
}

/* --- PDUs that each protocol can carry ---------------------------------------------------------------------------- */

static void make_http2(struct pdu *p, uint8_t kind, uint32_t bytes)
{
	struct http2_frame f = { .length = bytes % 16385, .type = kind, .stream = kind };

	http2_frame_put(p->head, &f);
	p->head_bytes = HTTP2_HEAD_BYTES;
	p->bytes = HTTP2_HEAD_BYTES + f.length;
}

static void make_nvme(struct pdu *p, uint8_t kind, uint32_t bytes)
{
	static const uint8_t types[] = { 4, 5, 6, 7, 9 }, headers[] = { 72, 24, 24, 24, 24 };
	uint8_t type = types[kind % 5];
	uint32_t plen;

	p->head_bytes = headers[kind % 5];
	p->bytes = p->head_bytes + (type == 5 || type == 9 ? 0 : bytes);
	plen = htole32(p->bytes);
	p->head[0] = type;
	p->head[2] = (uint8_t)p->head_bytes;
	p->head[3] = p->bytes > p->head_bytes ? p->head[2] : 0;
	memcpy(p->head + 4, &plen, sizeof plen);
}

static void make(struct pdu *p, struct input *in)
{
	uint8_t kind = take(in), shape = take(in);
	uint32_t bytes = shape < 64 ? shape : (uint32_t)(shape - 63) * 311u;

	memset(p, 0, sizeof *p);
	p->text = kind;
	p->bytes = bytes;
	switch (protocol) {
	case XTS_ULP_HTTP2:
		make_http2(p, kind, bytes);
		break;
	case XTS_ULP_NVME_TCP:
		make_nvme(p, kind, bytes);
		break;
	case XTS_ULP_DNS:
		p->bytes += 12;
		break;
	case XTS_ULP_GRPC:
		p->control[1] = kind & 1;
		p->control[7] = (uint8_t)(1 + 2 * (kind % STREAMS));
		break;
	default:
		break;
	}
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static void op_send(struct side *s, struct input *in)
{
	static uint8_t bytes[PDU_BYTES_MAX];
	struct ulp_mark mark = { .pdu = true };
	struct pdu *p = &s->sent[(s->first + s->count - 1) % WAITING_MAX];
	uint32_t part;
	struct iovec iov[2];
	ssize_t n;

	if (!s->count || s->offered == UINT32_MAX) {
		if (s->count == WAITING_MAX)
			return;
		p = &s->sent[(s->first + s->count++) % WAITING_MAX];
		make(p, in);
		s->offered = 0;
	}
	part = 1 + take(in) * 97u;
	if (part > p->bytes - s->offered)
		part = p->bytes - s->offered;
	for (uint32_t i = 0; i < part; i++)
		bytes[i] = byte_of(p, s->offered + i);
	iov[0] = (struct iovec){ .iov_base = bytes, .iov_len = part / 2 };
	iov[1] = (struct iovec){ .iov_base = bytes + part / 2, .iov_len = part - part / 2 };
	mark.more = s->offered + part < p->bytes;
	mark.record_bytes = p->bytes;
	if (protocol == XTS_ULP_GRPC) {
		mark.control_type = XTS_ULP_GRPC;
		mark.control_bytes = 8;
		memcpy(mark.control, p->control, 8);
	}
	n = ulp_stack_write(s->stack, iov, 2, &mark);
	ENSURE(n >= 0 && (n <= (ssize_t)part || (!part && n == 1)));
	if (part)
		s->offered += (uint32_t)n;
	if (s->offered == p->bytes && (part || n))
		s->offered = UINT32_MAX;
}

/* What is read is what the other side has sent. */
static void op_read(struct side *s, struct side *other, size_t room)
{
	static uint8_t out[PDU_BYTES_MAX];
	struct ulp_mark mark;
	const struct pdu *p = &other->sent[other->first];
	ssize_t n;

	ulp_stack_event(s->stack, true, true);
	ulp_stack_turn(s->stack);
	n = ulp_stack_read(s->stack, out, room, &mark);
	if (n == -EAGAIN)
		return;
	ENSURE(n >= 0 && (size_t)n <= room && mark.pdu && other->count && mark.record_bytes == p->bytes);
	for (ssize_t i = 0; i < n; i++)
		ENSURE(out[i] == byte_of(p, s->got + (uint32_t)i));
	if (protocol == XTS_ULP_GRPC)
		ENSURE(!memcmp(mark.control, p->control, 8));
	s->got += (uint32_t)n;
	ENSURE(mark.more == (s->got < p->bytes));
	if (mark.more)
		return;
	if (other->count == 1)
		other->offered = UINT32_MAX; /* an empty PDU may have been written before it was taken */
	other->first = (other->first + 1) % WAITING_MAX;
	other->count--;
	s->got = 0;
}

static void step(struct side *sides, struct input *in)
{
	uint8_t what = take(in);
	struct side *s = &sides[what & 1], *other = &sides[!(what & 1)];

	switch (what >> 1 & 3) {
	case 0:
	case 1:
		op_send(s, in);
		break;
	case 2:
		op_read(s, other, 1u + take(in) * 29u);
		break;
	default:
		ulp_stack_event(s->stack, true, true);
		ENSURE(ulp_stack_flush(s->stack) <= 0);
	}
}

/* --- the two stacks ----------------------------------------------------------------------------------------------- */

static void push(struct side *s, uint16_t id, const uint8_t *parameters, uint32_t bytes)
{
	ENSURE(!ulp_stack_push(s->stack, ULP_BOTH, id, parameters, bytes));
}

/* The same parameters for both, all of them flags but one. */
static void push_protocol(struct side *sides, struct input *in)
{
	static const uint16_t protocols[] = { XTS_ULP_HTTP2, XTS_ULP_GRPC, XTS_ULP_DNS, XTS_ULP_NVME_TCP, XTS_ULP_MPA };
	uint8_t how = take(in), parameters[32];
	uint32_t bytes = 0;

	protocol = protocols[how % 5];
	for (uint8_t i = 2; i < 5 && protocol >= XTS_ULP_NVME_TCP; i++) {
		bool negotiate = protocol == XTS_ULP_NVME_TCP && i == 4; /* nothing is negotiated here */

		if (!(how & 8 << (i - 1)) || negotiate || (protocol == XTS_ULP_MPA && i == 3))
			continue;
		xts_put16(parameters + bytes, i);
		xts_put16(parameters + bytes + 2, 0);
		bytes += 4;
		if (protocol == XTS_ULP_MPA && i == 2) { /* markers from one are markers to the other */
			xts_put32(parameters + bytes, XTS_MPA_MARKERS_TX << 16);
			bytes += 4;
		}
	}
	for (int i = 0; i < 2; i++) {
		if (protocol == XTS_ULP_GRPC)
			push(&sides[i], XTS_ULP_HTTP2, NULL, 0);
		push(&sides[i], protocol, parameters, bytes);
	}
}

/* gRPC's streams are open on both sides. */
static void open_streams(struct side *sides)
{
	uint8_t head[HTTP2_HEAD_BYTES];
	struct ulp_mark mark = { .pdu = true, .record_bytes = sizeof head };
	struct iovec iov = { .iov_base = head, .iov_len = sizeof head };

	for (uint32_t i = 0; i < STREAMS; i++) {
		http2_frame_put(head, &(struct http2_frame){
					      .type = HTTP2_HEADERS, .flags = HTTP2_END_HEADERS, .stream = 1 + 2 * i });
		ENSURE(ulp_stack_write(sides[0].stack, &iov, 1, &mark) == sizeof head);
		ulp_stack_event(sides[1].stack, true, true);
		ENSURE(ulp_stack_read(sides[1].stack, head, sizeof head, &mark) == sizeof head);
		mark = (struct ulp_mark){ .pdu = true, .record_bytes = sizeof head };
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct side sides[2];
	struct input in = { data, bytes };
	static struct xts_ulp_config *config; /* as long as the process */
	int pair[2], small = 1;

	if (!config) {
		config = xts_ulp_config_new(NULL);
		ENSURE(config);
		xts_ulp_config_offer(config, XTS_ULP_GRPC);
		xts_ulp_config_offer(config, XTS_ULP_MPA);
	}
	memset(sides, 0, sizeof sides);
	ENSURE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	for (int i = 0; i < 2; i++) {
		struct ulp_owner owner = { .fd = pair[i],
					   .message_socket = true,
					   .reports_end = true,
					   .config = config,
					   .faults = sides[i].faults,
					   .now_ns = now_ns,
					   .wake_after = wake_after };

		ENSURE(!setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
		sides[i].offered = UINT32_MAX;
		ENSURE(!ulp_stack_new(&sides[i].stack, &owner));
	}
	push_protocol(sides, &in);
	for (int i = 0; i < 2; i++)
		ENSURE(!ulp_stack_start(sides[i].stack, pair[i], !i));
	if (protocol == XTS_ULP_GRPC)
		open_streams(sides);
	for (int i = 0; i < STEPS_MAX && in.bytes; i++) {
		step_begins(&in, data);
		step(sides, &in);
	}
	steps_ran(data, bytes);
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < XTS_FAULT_COUNT; k++)
			ENSURE(!sides[i].faults[k]);
		ulp_stack_free(sides[i].stack);
		close(pair[i]);
	}
	return 0;
}
