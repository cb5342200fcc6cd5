/*
 * DNS messages over TCP or TLS: two bytes of length and the message (RFC 1035 4.2.2).
 *
 * Received, a message goes to the host as it comes, behind the twelve bytes of its header. Sent, its length is put before it; a message whose length
 * is not known when it begins, or which is to be padded, is gathered first: that is at most 64 KiB. Padding (RFC 7830, RFC 8467) is an option
 * of the message's own OPT record: the layer looks for that record (dns_padding.c) and never makes one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dns_padding.h"
#include "ulp/protocols.h"
#include "wire.h"

#define LENGTH_BYTES 2u
#define HEADER_BYTES 12u
#define MESSAGE_BYTES_MAX 65535u
#define GATHERED_BYTES (LENGTH_BYTES + MESSAGE_BYTES_MAX)

struct dns {
	uint16_t padding;
	/* received */
	struct ulp_in in;
	uint8_t head[LENGTH_BYTES + HEADER_BYTES];
	uint32_t head_got;
	uint32_t given;          /* of the message, to the host */
	/* sent */
	struct ulp_out out;      /* lengths, and messages that were gathered */
	bool in_pdu, gathering;
	uint32_t left;           /* of a message that passes */
	uint32_t gathered_bytes;
	uint8_t *gathered;       /* room for its length before it, and for the padding after it */
};

static int dns_set(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct dns *d = l->state;

	return a->type == XTS_DNS_PADDING ? ulp_attribute_u16(l, a, "PADDING", &d->padding) : ulp_attribute_unknown(l, a);
}

static int dns_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct dns *d = calloc(1, sizeof *d);

	if (!d)
		return ulp_refuse(l, ENOMEM, "no memory for dns");
	l->state = d;
	return ulp_attributes(l, attributes, bytes, dns_set);
}

/* --- received ---------------------------------------------------------------------------------------------------------- */

static int head_read(struct ulp_layer *l, struct dns *d)
{
	uint32_t had = d->head_got;
	int error;

	if (had == sizeof d->head)
		return 0;
	error = ulp_in_gather(&d->in, l, d->head, &d->head_got, LENGTH_BYTES);
	if (!error && xts_get16(d->head) < HEADER_BYTES)
		return ulp_fail(l, XTS_FAULT_LENGTH, "a message of %u bytes, shorter than its header", xts_get16(d->head));
	if (!error)
		error = ulp_in_gather(&d->in, l, d->head, &d->head_got, sizeof d->head);
	if (error == -ENODATA && d->head_got)
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended in the header of a message");
	return error;
}

static ssize_t dns_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct dns *d = l->state;
	uint32_t length, n = 0;
	int error = head_read(l, d);

	if (error)
		return error;
	length = xts_get16(d->head);
	if (d->given < HEADER_BYTES) {
		n = HEADER_BYTES - d->given < room ? HEADER_BYTES - d->given : (uint32_t)room;
		memcpy(out, d->head + LENGTH_BYTES + d->given, n);
	}
	if (n < room && d->given + n < length) {
		size_t left = length - d->given - n;
		ssize_t read = ulp_in_read(&d->in, l, (uint8_t *)out + n, left < room - n ? left : room - n, room - n);

		if (read == -ENODATA)
			return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended inside a message: %zu bytes are missing", left);
		if (read < 0)
			return read; /* the header waits with it */
		n += (uint32_t)read;
	}
	d->given += n;
	*mark = (struct ulp_mark){ .pdu = true, .more = d->given < length, .record_bytes = length, .control_type = XTS_ULP_DNS,
				   .control_bytes = 4 };
	memcpy(mark->control, d->head + LENGTH_BYTES, 4);
	if (!mark->more)
		d->head_got = d->given = 0;
	return n;
}

static bool dns_pending(const struct ulp_layer *l)
{
	const struct dns *d = l->state;

	return ulp_in_pending(&d->in, l);
}

/* --- sent -------------------------------------------------------------------------------------------------------------- */

static int gather_memory(struct ulp_layer *l, struct dns *d)
{
	int r = d->gathered ? 0 : ulp_memory_take(l, GATHERED_BYTES);

	if (r || d->gathered)
		return r;
	d->gathered = malloc(GATHERED_BYTES);
	if (d->gathered)
		return 0;
	ulp_memory_return(l, GATHERED_BYTES);
	return -ENOMEM;
}

static int message_begin(struct ulp_layer *l, struct dns *d, size_t bytes, const struct ulp_mark *mark)
{
	size_t length = mark->record_bytes || mark->more ? mark->record_bytes : bytes;
	uint8_t head[LENGTH_BYTES];
	int error;

	if (!mark->pdu)
		return ulp_fail(l, XTS_FAULT_USE, "dns sends messages, not a byte stream");
	d->gathering = d->padding || !length;
	d->gathered_bytes = 0;
	if (length > MESSAGE_BYTES_MAX || (length && length < HEADER_BYTES) || (!length && !mark->more))
		return ulp_fail(l, XTS_FAULT_USE, "a message of %zu bytes: 12 to 65535 there are", length);
	error = d->gathering ? gather_memory(l, d) : ulp_out_reserve(&d->out, l, sizeof head);
	if (error)
		return ulp_memory_fail(l, error, "a message");
	if (!d->gathering) {
		xts_put16(head, (uint16_t)length);
		ulp_out_put(&d->out, head, sizeof head);
		d->left = (uint32_t)length;
	}
	d->in_pdu = true;
	return 0;
}

static ssize_t gather(struct ulp_layer *l, struct dns *d, const struct iovec *iov, int pieces, size_t bytes, bool more)
{
	uint8_t *message = d->gathered + LENGTH_BYTES;
	int error;

	if (bytes > MESSAGE_BYTES_MAX - d->gathered_bytes || (!more && d->gathered_bytes + bytes < HEADER_BYTES))
		return ulp_fail(l, XTS_FAULT_USE, "a message of %zu bytes: 12 to 65535 there are", d->gathered_bytes + bytes);
	ulp_iov_copy(message + d->gathered_bytes, iov, pieces, 0, bytes);
	d->gathered_bytes += (uint32_t)bytes;
	if (more)
		return bytes ? (ssize_t)bytes : 1;
	if (d->padding)
		d->gathered_bytes = dns_pad(message, d->gathered_bytes, MESSAGE_BYTES_MAX, d->padding);
	xts_put16(d->gathered, (uint16_t)d->gathered_bytes);
	error = ulp_out_reserve(&d->out, l, LENGTH_BYTES + d->gathered_bytes);
	if (error)
		return ulp_memory_fail(l, error, "a message");
	ulp_out_put(&d->out, d->gathered, LENGTH_BYTES + d->gathered_bytes);
	d->in_pdu = false;
	error = ulp_out_flush(&d->out, l);
	return error && error != -EAGAIN ? error : bytes ? (ssize_t)bytes : 1;
}

static ssize_t dns_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct dns *d = l->state;
	size_t bytes = ulp_iov_bytes(iov, pieces);
	ssize_t n = 0;
	int error = d->in_pdu ? 0 : ulp_out_flush(&d->out, l);

	if (!error && !d->in_pdu)
		error = message_begin(l, d, bytes, mark);
	if (!error && d->gathering)
		return gather(l, d, iov, pieces, bytes, mark->more);
	if (!error && (bytes > d->left || (!mark->more && bytes < d->left)))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU of another length than announced");
	if (!error)
		error = ulp_out_flush(&d->out, l);
	if (!error && bytes)
		n = ulp_write_below(l, iov, pieces, NULL);
	if (error || n < 0)
		return error == -EAGAIN ? 0 : error ? error : n;
	d->left -= (uint32_t)n;
	d->in_pdu = mark->more || (size_t)n < bytes;
	return bytes ? n : 1;
}

static int dns_flush(struct ulp_layer *l)
{
	struct dns *d = l->state;

	return ulp_out_flush(&d->out, l);
}

static void dns_close(struct ulp_layer *l)
{
	struct dns *d = l->state;

	ulp_in_free(&d->in);
	ulp_out_free(&d->out);
	if (d->gathered)
		ulp_memory_return(l, GATHERED_BYTES);
	free(d->gathered);
	free(d);
}

const struct ulp_protocol ulp_dns = {
	.id = XTS_ULP_DNS,
	.version = XTS_ULP_DNS_VERSION,
	.name = "dns",
	.receive = true,
	.send = true,
	.boundaries = true,
	.open = dns_open,
	.read = dns_read,
	.pending = dns_pending,
	.write = dns_write,
	.flush = dns_flush,
	.close = dns_close,
};
