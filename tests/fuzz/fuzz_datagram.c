/*
 * libFuzzer target: the records of datagrams. The input is a payload, cut into pieces as its first byte says. Whatever
 * it is: what is lent lies within the payload, whole and in order, and what is read is written back to the same values.
 */
#include "wire/datagram.h"
#include "ensure.h"

static volatile unsigned touched;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void goes_round(const struct xts_datagram *d)
{
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
	struct xts_datagram out = *d, again;
	uint32_t written = xts_datagram_write(head, sizeof head, &out);

	ENSURE(written >= XTS_DATAGRAM_RECORD_BYTES);
	ENSURE(out.record.control_bytes <= d->record.control_bytes);
	ENSURE(xts_datagram_read(&again, head, written) == (int)written);
	ENSURE(!again.unknown && again.controls == d->controls);
	ENSURE(again.record.data_bytes == d->record.data_bytes && again.record.segment_bytes == d->record.segment_bytes);
	ENSURE(again.hop_limit == d->hop_limit || !(d->controls & 1u << XTS_DATAGRAM_HOP_LIMIT));
	ENSURE(again.spec_dst == d->spec_dst || !(d->controls & 1u << XTS_DATAGRAM_SPEC_DST));
	ENSURE(again.timestamp_ns == d->timestamp_ns || !(d->controls & 1u << XTS_DATAGRAM_TIMESTAMP_NS));
	ENSURE(again.hardware_ns == d->hardware_ns || !(d->controls & 1u << XTS_DATAGRAM_STAMPING));
	ENSURE(again.stamp_bytes == d->stamp_bytes || !(d->controls & 1u << XTS_DATAGRAM_STAMP_PKTINFO));
	ENSURE(again.stamp_id == d->stamp_id || !(d->controls & 1u << XTS_DATAGRAM_STAMP_ID));
	ENSURE(!xts_datagram_write(head, written - 1, &out));
}

/* The payload in up to XTS_SEGMENTS_MAX pieces of the given length. */
static void cut(struct xts_rx_frame *f, const uint8_t *data, uint32_t bytes, uint32_t piece)
{
	*f = (struct xts_rx_frame){ .bytes = bytes };
	for (uint32_t at = 0; at < bytes; at += (uint32_t)f->segment[f->segments++].iov_len) {
		uint32_t here = bytes - at < piece || f->segments == XTS_SEGMENTS_MAX - 1 ? bytes - at : piece;

		f->segment[f->segments] = (struct iovec){ .iov_base = (void *)(uintptr_t)(data + at), .iov_len = here };
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct xts_rx_frame frame;
	struct xts_datagram_cursor cursor;
	struct xts_datagram d;
	const uint8_t *at = data + 1;
	int r;

	if (bytes < 1 || bytes > XTS_FRAME_BYTES_MAX)
		return 0;
	cut(&frame, data + 1, (uint32_t)bytes - 1, data[0] % 64u + 1u);
	xts_datagram_begin(&cursor, &frame, 0, (uint32_t)bytes - 1);
	while ((r = xts_datagram_next(&cursor, &d)) == 1) {
		struct iovec iov[XTS_SEGMENTS_MAX];
		uint32_t count = XTS_SEGMENTS_MAX, left = cursor.left, lent, sum = 0;

		ENSURE(xts_datagram_credits(&d.record) >= XTS_DATAGRAM_CREDITS);
		ENSURE(xts_datagram_credits(&d.record) <= XTS_DATAGRAM_WINDOW_MIN);
		at += XTS_DATAGRAM_RECORD_BYTES + d.record.control_bytes;
		goes_round(&d);
		lent = xts_datagram_data(&cursor, d.record.data_bytes, iov, &count);
		ENSURE(lent == (left < d.record.data_bytes ? left : d.record.data_bytes));
		for (uint32_t i = 0; i < count; i++) {
			ENSURE(iov[i].iov_base == at + sum);
			for (size_t n = 0; n < iov[i].iov_len; n++)
				touched += ((const uint8_t *)iov[i].iov_base)[n];
			sum += (uint32_t)iov[i].iov_len;
		}
		ENSURE(sum == lent);
		at += lent;
	}
	ENSURE(r == -EBADMSG || (!r && at == data + bytes));
	return 0;
}
