/* A record of a TCP side that is read into memory full of rubbish, and written again: for fuzz_record.c, and for the
 * tests of tests/unit/messages/test_records.py. Nobody pays for what is read, so nothing of tenants and workers is called. */
#ifndef XTS_RECORD_AGAIN_H
#define XTS_RECORD_AGAIN_H

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "connection/connection.h"
#include "connection/tcp_record.h"
#include "connection/unowned.h"
#include "ensure.h"

#define RUBBISH 0xA5

bool tenant_take(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	(void)t;
	(void)resource;
	(void)amount;
	abort();
}

void tenant_give(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	(void)tenant_take(t, resource, amount);
}

struct unowned *unowned_hold(struct worker_state *w, struct xts_tenant *t)
{
	(void)w;
	(void)t;
	abort();
}

void unowned_release(struct unowned *u)
{
	(void)u;
	abort();
}

bool worker_turn_is_over(struct worker_state *w)
{
	(void)w;
	abort();
}

/* What lies next to the record: a socket of a kind (0: none, 4 and 6: TCP, 1: UDP), and some objects. */
static struct xts_record_attached attached_of(unsigned kind, unsigned objects)
{
	static int tcp4 = -1, tcp6 = -1, udp = -1, object;
	struct xts_record_attached b = { .fd_count = kind != 0, .object_count = objects & 3 };

	if (tcp4 < 0) {
		tcp4 = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		tcp6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	b.fds[0] = kind == 4 ? tcp4 : kind == 6 ? tcp6 : udp;
	for (unsigned i = 0; i < 3; i++)
		b.objects[i] = &object;
	return b;
}

static void check_bounds(const struct tcp_side *s, size_t bytes)
{
	uint64_t in_runs = 0;

	ENSURE(s->ip_version == 4 || s->ip_version == 6);
	ENSURE(s->error >= 0 && s->error <= 4095);
	ENSURE(s->kernel_send <= INT32_MAX && s->kernel_receive <= INT32_MAX);
	ENSURE(s->fin_wanted || !s->fin_done);
	ENSURE(s->out.spill.bytes <= bytes);
	for (uint32_t i = 0; i < outgoing_runs(&s->out); i++) {
		const struct run *r = runs_at(s->out.runs, i);

		in_runs += r->bytes;
		ENSURE(r->mark.control_bytes <= ULP_CONTROL_BYTES);
	}
	ENSURE(!outgoing_runs(&s->out) || in_runs == s->out.spill.bytes);
	for (const struct returned_piece *p = returned_piece_after(&s->returned, NULL); p;
	     p = returned_piece_after(&s->returned, p)) {
		struct returned_part part;

		returned_describe(p, &part);
		ENSURE(part.data.bytes <= bytes && part.at <= part.data.bytes);
	}
}

/* Reads `in`, checks what came of it, and writes it again. The length of what it writes, or the error. */
static ssize_t record_again(const uint8_t *in, size_t bytes, const struct xts_record_attached *given, uint8_t *out,
			    size_t room)
{
	struct xts_record_attached attached;
	struct tcp_side made;
	ssize_t written;
	int error;

	memset(&made, RUBBISH, sizeof made);
	error = xts_record_decode(&tcp_side_record, in, bytes, given, &made);
	if (error)
		return error;
	check_bounds(&made, bytes);
	written = xts_record_encode(&tcp_side_record, tcp_side_record.version, &made, out, room, &attached);
	ENSURE(written > 0 && attached.fd_count == given->fd_count && attached.object_count == given->object_count);
	xts_record_drop(&tcp_side_record, &made);
	return written;
}

#endif
