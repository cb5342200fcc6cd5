/*
 * The file in which sockets pass to the program that exec runs: a memfd, which that program keeps. For each descriptor
 * of a socket there is a head and, behind it, the socket's record (socket_record.h). The head has six numbers of 32
 * bits in network byte order, and stays as it is for ever:
 *
 *     magic; descriptor, or -1; what: 0 a record, 1 again, 2 refused; number or errno; bytes of the record; how many
 *     descriptors lie next to it
 *
 * and then the numbers of these descriptors. So who cannot read a record of another version finds the next one.
 *
 * The program that exec runs may have another build of this library, or another user. So nothing in the file is
 * believed. A descriptor is looked at before it is used: the relatives' file and the deed say what they are.
 */
#include "processes/record_file.h"
#include "common/file_limit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/received_data.h"
#include "core/channel.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/deed.h"
#include "processes/inherit.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "wire/wire.h"

#define MAGIC 0x58545352u     /* "XTSR" */
#define OLD_MAGIC 0x58545342u /* of versions up to 8, which were structs: in the order of this processor */
#define HEAD_NUMBERS 6u
#define NUMBERS_MAX (HEAD_NUMBERS + XTS_RECORD_ATTACHED_MAX)

enum { A_RECORD, AGAIN, REFUSED };

int record_make(const char *name, unsigned flags)
{
	int fd = memfd_create(name, flags);

	return fd < 0 ? -errno : fd;
}

static int write_all(int fd, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	while (bytes) {
		ssize_t n = xts_limited_write(fd, at, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

/* 1, 0 at the end of the file, -EPROTO if it ends within a record. */
static int read_all(int fd, void *data, size_t bytes)
{
	uint8_t *at = data;
	size_t left = bytes;

	while (left) {
		ssize_t n = read(fd, at, left);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return left == bytes ? 0 : -EPROTO;
		if (n > 0) {
			at += n;
			left -= (size_t)n;
		}
	}
	return 1;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static int write_head(int memfd, int descriptor, uint32_t what, uint32_t value, uint32_t bytes,
		      const struct xts_record_attached *attached)
{
	uint32_t count = attached ? attached->fd_count : 0;
	uint32_t numbers[NUMBERS_MAX] = { MAGIC, (uint32_t)descriptor, what, value, bytes, count };
	uint8_t wire[sizeof numbers];

	for (uint32_t i = 0; i < count; i++)
		numbers[HEAD_NUMBERS + i] = (uint32_t)attached->fds[i];
	for (uint32_t i = 0; i < HEAD_NUMBERS + count; i++)
		xts_put32(wire + 4 * i, numbers[i]);
	return write_all(memfd, wire, 4 * (HEAD_NUMBERS + count));
}

/* Builds with XTS_DEBUG write what is left of the record after it has been read. */
static int write_record(int memfd, int descriptor, const struct socket_record *b)
{
	struct xts_record_attached attached;
	uint8_t *made;
	ssize_t bytes;
	int r;

#ifdef XTS_DEBUG
	struct socket_record read;

	if (!xts_record_trip(&socket_record_record, b, &read, sizeof read))
		xts_record_drop(&socket_record_record, &read);
#endif
	bytes = xts_record_make(&socket_record_record, b, &made, &attached);
	if (bytes < 0)
		return (int)bytes;
	r = write_head(memfd, descriptor, A_RECORD, 0, (uint32_t)bytes, &attached);
	if (!r)
		r = write_all(memfd, made, (size_t)bytes);
	xts_record_free(made, bytes);
	return r;
}

int record_write(int memfd, struct xts_sock *s, int descriptor)
{
	uint32_t unread = kind_of(s)->unread_stays ? 0 : s->unread;
	struct iovec copy = { .iov_base = unread ? malloc(unread) : NULL, .iov_len = unread };
	struct socket_record b;
	int r;

	if (unread && !copy.iov_base)
		return -ENOMEM;
	record_fill(&b, s);
	if (unread)
		buffer_copy(s, 0, &copy, 0, unread);
	b.unread = (struct xts_record_bytes){ copy.iov_base, unread };
	b.pdus = (struct pdu_chain){ s->cold->pdu_first, s->cold->pdu_last };
	b.asked = s->cold->asked;
	if (s->own.common) {
		struct relatives_place place = relatives_pass(s->own.common);

		b.relatives = place.fd;
		b.relatives_slot = place.slot;
		b.relatives_entry = place.index;
	}
	b.deed_fd = passed_keep(s, true);
	b.deed_is_shared = s->cold->sharing.has_deed && s->cold->sharing.deed_is_shared;
	r = write_record(memfd, descriptor, &b);
	explicit_bzero(&b, sizeof b);
	free(copy.iov_base);
	return r;
}

int record_write_again(int memfd, struct xts_sock *s, int descriptor)
{
	return write_head(memfd, descriptor, AGAIN, s->id, 0, NULL);
}

void record_write_refused(int memfd, int error, int descriptor)
{
	(void)write_head(memfd, descriptor, REFUSED, (uint32_t)error, 0, NULL);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Of a version whose records were structs, with the descriptor as the fourth number. */
static int of_old_version(const uint8_t *wire, struct record_in *in)
{
	uint32_t magic;

	memcpy(&magic, wire, sizeof magic);
	if (magic != OLD_MAGIC)
		return -EPROTO;
	memcpy(&in->descriptor, wire + 12, sizeof in->descriptor);
	return -EPROTONOSUPPORT;
}

static int read_fds(int memfd, uint32_t count, struct xts_record_attached *attached)
{
	uint8_t wire[4 * XTS_RECORD_ATTACHED_MAX];
	int r = 1;

	if (count > XTS_RECORD_ATTACHED_MAX)
		return -EPROTO;
	if (count)
		r = read_all(memfd, wire, 4 * count);
	for (uint32_t i = 0; r == 1 && i < count; i++)
		if ((attached->fds[i] = (int)xts_get32(wire + 4 * i)) < 0)
			return -EPROTO;
	attached->fd_count = count;
	return r == 1 ? 1 : -EPROTO;
}

/* The bytes of the record. A file that does not have them is not given memory for them. */
static int read_bytes(int memfd, struct record_in *in)
{
	off_t at = lseek(memfd, 0, SEEK_CUR);
	struct stat file;

	if (fstat(memfd, &file) < 0 || at < 0 || file.st_size - at < (off_t)in->bytes || !in->bytes)
		return -EPROTO;
	in->made = malloc(in->bytes);
	if (!in->made)
		return lseek(memfd, (off_t)in->bytes, SEEK_CUR) < 0 ? -EPROTO : -ENOMEM;
	return read_all(memfd, in->made, in->bytes) == 1 ? 1 : -EPROTO;
}

/* What cannot be read has descriptors all the same: to keep them would say that this process has the socket. */
static void leave(const struct xts_record_attached *attached)
{
	for (uint32_t i = 0; i < attached->fd_count; i++)
		if (deed_seems(attached->fds[i]) || relatives_unused(attached->fds[i]))
			close(attached->fds[i]);
}

static int read_record(int memfd, struct record_in *in, uint32_t count)
{
	struct xts_record_attached attached = { 0 };
	int r = read_fds(memfd, count, &attached);

	if (r == 1)
		r = read_bytes(memfd, in);
	if (r == 1)
		r = xts_record_decode(&socket_record_record, in->made, in->bytes, &attached, &in->b);
	if (!r && in->b.key_is_apart) { /* only a label says so */
		xts_record_drop(&socket_record_record, &in->b);
		r = -EBADMSG;
	}
	if (r < 0)
		leave(&attached);
	if (!r)
		return 1;
	xts_record_free(in->made, (ssize_t)in->bytes);
	return r;
}

int record_next(int memfd, struct record_in *in)
{
	uint8_t wire[4 * HEAD_NUMBERS];
	uint32_t what, value, count;
	int r = read_all(memfd, wire, sizeof wire);

	memset(in, 0, sizeof *in);
	in->descriptor = -1;
	if (r != 1)
		return r;
	if (xts_get32(wire) != MAGIC) {
		r = of_old_version(wire, in);
		lseek(memfd, 0, SEEK_END); /* how long it is, is not known */
		return r;
	}
	in->descriptor = (int)xts_get32(wire + 4);
	what = xts_get32(wire + 8);
	value = xts_get32(wire + 12);
	in->bytes = xts_get32(wire + 16);
	count = xts_get32(wire + 20);
	if (what == A_RECORD)
		return read_record(memfd, in, count);
	if (in->bytes || count || !value || what > REFUSED)
		return -EPROTO;
	in->again = what == AGAIN ? value : 0;
	return what == AGAIN ? 1 : value < 4096 && value != EPROTO ? -(int)value : -EIO;
}

void record_done(struct record_in *in)
{
	if (!in->again)
		xts_record_drop(&socket_record_record, &in->b);
	explicit_bzero(&in->b, sizeof in->b);
	xts_record_free(in->made, (ssize_t)in->bytes);
}

static int adopt_unread(struct xts_sock *s, const struct xts_record_bytes *unread)
{
	uint8_t *heap = unread->bytes ? malloc(unread->bytes) : NULL;
	int r;

	if (!unread->bytes)
		return 0;
	if (!heap)
		return -ENOMEM;
	memcpy(heap, unread->data, unread->bytes);
	r = buffer_take_over(s, heap, unread->bytes);
	if (r)
		free(heap);
	return r;
}

/* Which other processes have it. */
static int adopt_copies(struct xts_sock *s, const struct socket_record *b)
{
	struct relatives_place place = { .fd = b->relatives, .slot = b->relatives_slot, .index = b->relatives_entry };

	int r = b->relatives < 0 ? 0 : relatives_adopt(&place, &s->own.common);

	if (r)
		return r;
	if (s->own.common)
		common_count(s);
	passed_adopt(s, b);
	inherit_adopt(s);
	return 0;
}

int record_adopt(struct stack *st, struct record_in *in, struct xts_sock **made)
{
	struct socket_record *b = &in->b;
	struct xts_sock *s = *made = socket_make(st, b->family);
	int r;

	if (!s)
		return -EMFILE;
	r = record_kind(b)->make(s);
	if (!r)
		r = adopt_unread(s, &b->unread);
	if (r)
		return r;
	s->cold->pdu_first = b->pdus.first;
	s->cold->pdu_last = b->pdus.last;
	s->cold->asked = b->asked;
	b->pdus = (struct pdu_chain){ 0 };
	b->asked = NULL;
	record_apply(b, s);
	return adopt_copies(s, b);
}
