/*
 * libFuzzer target: records of the host's sockets, as a program gets them over exec or in a label (socket_record.h). The
 * first byte says how: a record alone, with descriptors next to it or not, or a file of records (record_file.h).
 * Whatever it is: it is refused with nothing left behind and no descriptor of the program closed, or what was read is
 * within its bounds, and is the same when it has been written and read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/socket_kind.h"
#include "ensure.h"
#include "processes/record_file.h"
#include "processes/relatives.h"

#define RUBBISH 0xA5
#define A_FILE 1
#define WITH_DESCRIPTORS 2
#define AS_IT_IS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int pipe_end(void)
{
	static int ends[2] = { -1, -1 };

	ENSURE(ends[0] >= 0 || pipe(ends) == 0);
	return ends[0];
}

static void check_bounds(const struct socket_record *b)
{
	uint64_t in_pdus = 0;

	ENSURE(b->family == 4 || b->family == 6);
	ENSURE(b->relatives_slot < RELATIVES_MAX && b->relatives_entry < COMMON_MAX);
	ENSURE(b->window <= XTS_CREDITS_MAX && b->window_max <= XTS_CREDITS_MAX && b->backlog <= XTS_CREDITS_MAX);
	ENSURE(b->ulps.depth[0] <= ULP_DEPTH && b->ulps.depth[1] <= ULP_DEPTH && !b->ulps.sending);
	ENSURE(b->error >= 0 && b->error <= 4095 && b->linger_s >= 0);
	ENSURE(memchr(b->endpoint, 0, sizeof b->endpoint));
	for (const struct pdu *p = b->pdus.first; p; p = p->next) {
		in_pdus += p->bytes;
		ENSURE(p->control_bytes <= CONTROL_BYTES);
	}
	ENSURE(!b->pdus.first || in_pdus == b->unread.bytes);
	ENSURE(record_kind(b));
}

static ssize_t again(const uint8_t *in, size_t bytes, const struct xts_record_attached *given, uint8_t **out)
{
	struct xts_record_attached attached;
	struct socket_record b;
	ssize_t written;
	int error;

	memset(&b, RUBBISH, sizeof b);
	error = xts_record_decode(&socket_record_record, in, bytes, given, &b);
	if (error)
		return error;
	check_bounds(&b);
	written = xts_record_make(&socket_record_record, &b, out, &attached);
	ENSURE(written > 0 && attached.fd_count == given->fd_count);
	xts_record_drop(&socket_record_record, &b);
	return written;
}

static void one_record(uint8_t how, uint8_t *in, size_t bytes)
{
	struct xts_record_attached attached = { .fds = { pipe_end(), pipe_end() },
						.fd_count = how & WITH_DESCRIPTORS ? 2 : 0 };
	uint8_t *once, *twice;
	ssize_t written;

	if (!(how & AS_IT_IS) && bytes >= XTS_RECORD_HEAD_BYTES) /* else nearly no input would come further */
		xts_put32(in + 4, (uint32_t)(bytes - XTS_RECORD_HEAD_BYTES));
	written = again(in, bytes, &attached, &once);
	if (written < 0) {
		ENSURE(written == -EBADMSG || written == -EPROTONOSUPPORT);
		return;
	}
	ENSURE(again(once, (size_t)written, &attached, &twice) == written);
	ENSURE(memcmp(once, twice, (size_t)written) == 0);
	xts_record_free(once, written);
	xts_record_free(twice, written);
}

static void file_of_records(const uint8_t *in, size_t bytes)
{
	static int memfd = -1;
	struct record_in got;
	int r;

	if (memfd < 0)
		memfd = record_make("records", MFD_CLOEXEC);
	ENSURE(memfd >= 0 && ftruncate(memfd, 0) == 0 && pwrite(memfd, in, bytes, 0) == (ssize_t)bytes);
	ENSURE(lseek(memfd, 0, SEEK_SET) == 0);
	while ((r = record_next(memfd, &got)) && r != -EPROTO) {
		if (r != 1)
			continue;
		if (!got.again)
			check_bounds(&got.b);
		record_done(&got);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *copy; /* for AddressSanitizer */

	if (!bytes || bytes > 8192)
		return 0;
	copy = malloc(bytes);
	ENSURE(copy);
	memcpy(copy, data + 1, bytes - 1);
	if (data[0] & A_FILE)
		file_of_records(copy, bytes - 1);
	else
		one_record(data[0], copy, bytes - 1);
	free(copy);
	ENSURE(fcntl(pipe_end(), F_GETFD) >= 0);
	return 0;
}
