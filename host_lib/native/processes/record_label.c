/* A socket's record in a label. record_label.h; label.h says what a label is. */
#include "processes/record_label.h"

#include <errno.h>
#include <string.h>

#include "processes/label.h"
#include "processes/socket_record.h"
#include "processes/wipe.h"

#define MAGIC 0x58545352u     /* "XTSR", in front of the record */
#define OLD_MAGIC 0x58545342u /* of versions up to 8, which were structs: in the order of this processor */

int record_label(int carrier, const struct socket_record *b)
{
	struct xts_record_attached nothing;
	uint8_t label[LABEL_BYTES_MAX];
	ssize_t bytes;
	int r;

#ifdef XTS_DEBUG
	struct socket_record read;

	if (!xts_record_trip(&socket_record_record, b, &read, sizeof read))
		wipe(&read, sizeof read);
#endif
	xts_put32(label, MAGIC);
	bytes = xts_record_encode(&socket_record_record, socket_record_record.version, b, label + 4, sizeof label - 4,
				  &nothing);
	if (bytes > (ssize_t)sizeof label - 4 || nothing.fd_count)
		bytes = -EMSGSIZE;
	r = bytes < 0 ? (int)bytes : label_write(carrier, label, (size_t)bytes + 4);
	wipe(label, sizeof label);
	return r;
}

static bool is_of_old_version(const uint8_t *label)
{
	uint32_t magic;

	memcpy(&magic, label, sizeof magic);
	return magic == OLD_MAGIC;
}

/* A label is as long as a number of words is: up to three bytes follow the record. */
static int read_record(const uint8_t *in, size_t room, struct socket_record *b)
{
	size_t bytes = room < XTS_RECORD_HEAD_BYTES ? SIZE_MAX : XTS_RECORD_HEAD_BYTES + (size_t)xts_get32(in + 4);
	int r;

	if (bytes > room || room - bytes > 3)
		return -EPROTO;
	r = xts_record_decode(&socket_record_record, in, bytes, NULL, b);
	if (r)
		return r == -EBADMSG ? -EPROTO : r;
	if (!b->unread.bytes && !b->pdus.first && !b->asked)
		return 1;
	xts_record_drop(&socket_record_record, b);
	return -EPROTO;
}

int record_of_label(int fd, struct socket_record *b)
{
	uint8_t label[LABEL_BYTES_MAX];
	int bytes = label_read(fd, label, sizeof label), r = 0;

	if (bytes >= 4 && is_of_old_version(label))
		r = -EPROTONOSUPPORT;
	else if (bytes >= 4 && xts_get32(label) == MAGIC)
		r = read_record(label + 4, (size_t)bytes - 4, b);
	wipe(label, sizeof label);
	return r;
}
