/*
 * libFuzzer target: the record of a datagram socket that comes from another process of the proxy
 * (datagrams/datagram_record.c). The first byte says which descriptor is next to it, and whether its length stays as it
 * is. Whatever it is: it is refused with nothing left behind, or all that a worker reads of it afterwards is there, and
 * it is the same when it has been written and read again.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "datagrams/datagram_record.h"
#include "ensure.h"
#include "wire/wire.h"

#define RUBBISH 0xA5
#define ROOM 16384u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct xts_record_attached attached_of(unsigned kind)
{
	static int fds[4] = { -1, -1, -1, -1 };
	struct xts_record_attached b = { .fd_count = 1 };

	if (fds[0] < 0) {
		fds[0] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		fds[1] = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		fds[2] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	b.fds[0] = fds[kind];
	return b;
}

/* As a worker reads them (datagram_move.c, returned_datagrams.c, datagram_unsent.c). */
static void walk(const struct xts_record_bytes *all, uint32_t at, uint32_t *missing)
{
	struct xts_datagram d;

	*missing = 0;
	while (at < all->bytes) {
		ENSURE(!*missing);
		ENSURE(datagram_record_next(all, &at, &d, missing));
	}
	ENSURE(at == all->bytes);
}

static void check(const struct datagram_side *s)
{
	uint32_t at = 0, refused, missing = 0;
	struct xts_datagram d;

	ENSURE(s->ip_version == 4 || s->ip_version == 6);
	ENSURE(s->error >= 0 && s->error <= 4095 && s->returned_error >= 0 && s->returned_error <= 4095);
	while (at < s->waiting.bytes) {
		ENSURE(!missing && datagram_record_next_waiting(&s->waiting, &at, &refused, &d, &missing));
		ENSURE(refused <= 4095);
	}
	ENSURE(s->lost ? s->coming && !missing : missing == s->coming);
	ENSURE(datagram_record_credits(s) <= XTS_CREDITS_MAX);
	ENSURE(s->data_left <= s->unsent.bytes);
	walk(&s->unsent, s->data_left, &missing);
	ENSURE(!missing);
	walk(&s->returned, 0, &missing);
	ENSURE(!missing);
	walk(&s->returning, 0, &missing);
	ENSURE(!s->returning.bytes == !missing);
	ENSURE(s->filter_name.bytes <= XTS_FILTER_NAME_BYTES_MAX);
	for (uint32_t i = 0; i < s->groups.count; i++)
		ENSURE(s->groups.groups[i].ip_version == 4 || s->groups.groups[i].ip_version == 6);
}

static ssize_t again(const uint8_t *in, size_t bytes, const struct xts_record_attached *given, uint8_t *out)
{
	struct xts_record_attached attached;
	struct datagram_side made;
	ssize_t written;
	int error;

	memset(&made, RUBBISH, sizeof made);
	error = xts_record_decode(&datagram_side_record, in, bytes, given, &made);
	if (error)
		return error;
	check(&made);
	written = xts_record_encode(&datagram_side_record, datagram_side_record.version, &made, out, ROOM, &attached);
	ENSURE(written > 0 && attached.fd_count == 1 && !attached.object_count);
	xts_record_drop(&datagram_side_record, &made);
	return written;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t once[ROOM], twice[ROOM];
	struct xts_record_attached attached;
	ssize_t written;
	uint8_t *copy; /* for AddressSanitizer */

	if (!bytes || bytes > 4096)
		return 0;
	attached = attached_of(data[0] & 3);
	copy = malloc(bytes);
	ENSURE(copy);
	memcpy(copy, data + 1, bytes - 1);
	if (!(data[0] & 16) && bytes > XTS_RECORD_HEAD_BYTES) /* else nearly no input would come further */
		xts_put32(copy + 4, (uint32_t)(bytes - 1 - XTS_RECORD_HEAD_BYTES));
	written = again(copy, bytes - 1, &attached, once);
	free(copy);
	if (written > (ssize_t)ROOM)
		return 0; /* of hundreds of groups: it is worth nothing here */
	if (written < 0) {
		ENSURE(written == -EBADMSG || written == -EPROTONOSUPPORT);
		return 0;
	}
	ENSURE(again(once, (size_t)written, &attached, twice) == written);
	ENSURE(memcmp(once, twice, (size_t)written) == 0);
	return 0;
}
