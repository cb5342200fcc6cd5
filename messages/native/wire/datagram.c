/* Writing and reading records of datagrams (datagram.h). */
#include "wire/datagram.h"

#include <errno.h>
#include <string.h>

#define ITEM_BYTES 4u /* type and length */

#define ERROR_BYTES (16u + sizeof(struct xts_wire_endpoint))

#define HAS(d, type) ((d)->controls & (1u << (type)))

static uint32_t padded(uint32_t bytes)
{
	return (bytes + 3u) & ~3u;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

void xts_datagram_size_controls(struct xts_datagram *d)
{
	static const uint8_t item_bytes[] = {
		[XTS_DATAGRAM_PKTINFO] = sizeof(struct xts_wire_endpoint),
		[XTS_DATAGRAM_HOP_LIMIT] = 4,
		[XTS_DATAGRAM_TRAFFIC_CLASS] = 4,
		[XTS_DATAGRAM_TIMESTAMP_NS] = 8,
		[XTS_DATAGRAM_SPEC_DST] = 4,
		[XTS_DATAGRAM_ERROR] = ERROR_BYTES,
		[XTS_DATAGRAM_STAMPING] = 16,
		[XTS_DATAGRAM_STAMP_PKTINFO] = 8,
		[XTS_DATAGRAM_STAMP_SEND] = 4,
		[XTS_DATAGRAM_STAMP_ID] = 4,
	};
	uint32_t bytes = 0;

	for (uint32_t type = 1; d->controls >> type && type < sizeof item_bytes; type++)
		if (HAS(d, type))
			bytes += ITEM_BYTES + item_bytes[type];
	d->record.control_bytes = (uint16_t)bytes;
}

static uint8_t *put_item(uint8_t *p, uint16_t type, uint16_t bytes)
{
	xts_put16(p, type);
	xts_put16(p + 2, bytes);
	return p + ITEM_BYTES;
}

/* Writes an item of one number, if it is present. */
static uint8_t *put_number(uint8_t *p, const struct xts_datagram *d, uint16_t type, uint32_t number)
{
	if (!HAS(d, type))
		return p;
	xts_put32(put_item(p, type, 4), number);
	return p + ITEM_BYTES + 4;
}

/* The same for two numbers, or a large one. */
static uint8_t *put_numbers(uint8_t *p, const struct xts_datagram *d, uint16_t type, uint32_t high, uint32_t low)
{
	if (!HAS(d, type))
		return p;
	p = put_item(p, type, 8);
	xts_put32(p, high);
	xts_put32(p + 4, low);
	return p + 8;
}

static void put_stamps(uint8_t *p, const struct xts_datagram *d)
{
	if (HAS(d, XTS_DATAGRAM_STAMPING)) {
		p = put_item(p, XTS_DATAGRAM_STAMPING, 16);
		xts_put64(p, d->software_ns);
		xts_put64(p + 8, d->hardware_ns);
		p += 16;
	}
	p = put_numbers(p, d, XTS_DATAGRAM_STAMP_PKTINFO, d->stamp_interface, d->stamp_bytes);
	p = put_number(p, d, XTS_DATAGRAM_STAMP_SEND, d->stamp_send);
	(void)put_number(p, d, XTS_DATAGRAM_STAMP_ID, d->stamp_id);
}

static void put_error(uint8_t *p, const struct xts_datagram_error *e)
{
	xts_put32(p, e->error);
	p[4] = e->origin;
	p[5] = e->type;
	p[6] = e->code;
	p[7] = 0;
	xts_put32(p + 8, e->info);
	xts_put32(p + 12, e->data);
	xts_endpoint_put(p + 16, &e->offender);
}

uint32_t xts_datagram_write(void *to, uint32_t room, struct xts_datagram *d)
{
	uint8_t *p = (uint8_t *)to;
	uint32_t bytes;

	xts_datagram_size_controls(d);
	bytes = XTS_DATAGRAM_RECORD_BYTES + d->record.control_bytes;
	if (room < bytes)
		return 0;
	xts_datagram_record_encode(p, &d->record);
	p += XTS_DATAGRAM_RECORD_BYTES;
	if (HAS(d, XTS_DATAGRAM_PKTINFO)) {
		p = put_item(p, XTS_DATAGRAM_PKTINFO, sizeof(struct xts_wire_endpoint));
		xts_endpoint_put(p, &d->pktinfo);
		p += sizeof(struct xts_wire_endpoint);
	}
	p = put_number(p, d, XTS_DATAGRAM_HOP_LIMIT, d->hop_limit);
	p = put_number(p, d, XTS_DATAGRAM_TRAFFIC_CLASS, d->traffic_class);
	p = put_numbers(p, d, XTS_DATAGRAM_TIMESTAMP_NS, (uint32_t)(d->timestamp_ns >> 32), (uint32_t)d->timestamp_ns);
	p = put_number(p, d, XTS_DATAGRAM_SPEC_DST, d->spec_dst);
	if (HAS(d, XTS_DATAGRAM_ERROR)) {
		put_error(put_item(p, XTS_DATAGRAM_ERROR, ERROR_BYTES), &d->error);
		p += ITEM_BYTES + ERROR_BYTES;
	}
	put_stamps(p, d);
	return bytes;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool get_error(struct xts_datagram_error *e, const uint8_t *p)
{
	struct xts_endpoint offender;

	xts_endpoint_get(&offender, p + 16);
	if (offender.ip_version != 0 && offender.ip_version != 4 && offender.ip_version != 6)
		return false;
	*e = (struct xts_datagram_error){
		.error = xts_get32(p),
		.origin = p[4],
		.type = p[5],
		.code = p[6],
		.info = xts_get32(p + 8),
		.data = xts_get32(p + 12),
		.offender = offender,
	};
	return true;
}

/* Reads a control item with time stamps. False: it is another item, or has the wrong length. */
static bool get_stamp(struct xts_datagram *d, uint16_t type, const uint8_t *p, uint16_t bytes)
{
	if (type == XTS_DATAGRAM_TIMESTAMP_NS && bytes == 8) {
		d->timestamp_ns = xts_get64(p);
	} else if (type == XTS_DATAGRAM_STAMPING && bytes == 16) {
		d->software_ns = xts_get64(p);
		d->hardware_ns = xts_get64(p + 8);
	} else if (type == XTS_DATAGRAM_STAMP_PKTINFO && bytes == 8) {
		d->stamp_interface = xts_get32(p);
		d->stamp_bytes = xts_get32(p + 4);
	} else if (type == XTS_DATAGRAM_STAMP_SEND && bytes == 4) {
		d->stamp_send = xts_get32(p);
	} else if (type == XTS_DATAGRAM_STAMP_ID && bytes == 4) {
		d->stamp_id = xts_get32(p);
	} else {
		return false;
	}
	return true;
}

/* Reads one control item. False: this version does not know it. */
static bool get_item(struct xts_datagram *d, uint16_t type, const uint8_t *p, uint16_t bytes)
{
	struct xts_endpoint endpoint;

	if (type == XTS_DATAGRAM_PKTINFO && bytes == sizeof(struct xts_wire_endpoint)) {
		xts_endpoint_get(&endpoint, p);
		if (endpoint.ip_version != 4 && endpoint.ip_version != 6)
			return false;
		d->pktinfo = endpoint;
	} else if (type == XTS_DATAGRAM_HOP_LIMIT && bytes == 4) {
		d->hop_limit = xts_get32(p);
	} else if (type == XTS_DATAGRAM_TRAFFIC_CLASS && bytes == 4) {
		d->traffic_class = xts_get32(p);
	} else if (type == XTS_DATAGRAM_SPEC_DST && bytes == 4) {
		d->spec_dst = xts_get32(p);
	} else if (type == XTS_DATAGRAM_ERROR && bytes == ERROR_BYTES) {
		if (!get_error(&d->error, p))
			return false;
	} else if (!get_stamp(d, type, p, bytes)) {
		return false;
	}
	d->controls |= 1u << type;
	return true;
}

static int get_items(struct xts_datagram *d, const uint8_t *p, uint32_t left)
{
	while (left) {
		uint16_t type, bytes;

		if (left < ITEM_BYTES)
			return -EBADMSG;
		type = xts_get16(p);
		bytes = xts_get16(p + 2);
		p += ITEM_BYTES;
		left -= ITEM_BYTES;
		if (padded(bytes) > left)
			return -EBADMSG;
		if (!get_item(d, type, p, bytes))
			d->unknown = true;
		p += padded(bytes);
		left -= padded(bytes);
	}
	return 0;
}

int xts_datagram_read(struct xts_datagram *d, const void *from, uint32_t bytes)
{
	*d = (struct xts_datagram){ 0 };
	if (xts_datagram_record_decode(&d->record, from, bytes))
		return -EBADMSG;
	if (d->record.control_bytes > bytes - XTS_DATAGRAM_RECORD_BYTES)
		return -EBADMSG;
	if (get_items(d, (const uint8_t *)from + XTS_DATAGRAM_RECORD_BYTES, d->record.control_bytes))
		return -EBADMSG;
	return (int)(XTS_DATAGRAM_RECORD_BYTES + d->record.control_bytes);
}

/* --- the payload of a message ------------------------------------------------------------------------------------- */

static void skip(struct xts_datagram_cursor *cursor, uint32_t bytes)
{
	while (cursor->pieces && bytes >= cursor->piece->iov_len - cursor->at) {
		bytes -= (uint32_t)cursor->piece->iov_len - cursor->at;
		cursor->piece++;
		cursor->pieces--;
		cursor->at = 0;
	}
	cursor->at += bytes;
}

void xts_datagram_begin(struct xts_datagram_cursor *cursor, const struct xts_rx_frame *frame, uint32_t offset,
			uint32_t length)
{
	*cursor = (struct xts_datagram_cursor){ .piece = frame->segment, .pieces = frame->segments, .left = length };
	skip(cursor, offset);
}

uint32_t xts_datagram_data(struct xts_datagram_cursor *cursor, uint32_t bytes, struct iovec *iov, uint32_t *count)
{
	uint32_t lent = 0, filled = 0;

	if (bytes > cursor->left)
		bytes = cursor->left;
	while (lent < bytes && filled < *count && cursor->pieces) {
		size_t here = cursor->piece->iov_len - cursor->at;
		uint32_t part = here < bytes - lent ? (uint32_t)here : bytes - lent;

		iov[filled++] = (struct iovec){ .iov_base = (uint8_t *)cursor->piece->iov_base + cursor->at,
						.iov_len = part };
		lent += part;
		skip(cursor, part);
	}
	cursor->left -= lent;
	*count = filled;
	return lent;
}

/* Copies the next bytes, as far as they are here, and advances. */
static uint32_t take_copy(struct xts_datagram_cursor *cursor, uint8_t *to, uint32_t bytes)
{
	struct iovec iov[XTS_SEGMENTS_MAX];
	uint32_t count = XTS_SEGMENTS_MAX, copied = 0;

	(void)xts_datagram_data(cursor, bytes, iov, &count);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(to + copied, iov[i].iov_base, iov[i].iov_len);
		copied += (uint32_t)iov[i].iov_len;
	}
	return copied;
}

int xts_datagram_next(struct xts_datagram_cursor *cursor, struct xts_datagram *d)
{
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
	struct xts_datagram_cursor ahead = *cursor;
	struct xts_datagram_record record;
	uint32_t copied;
	int bytes;

	if (!cursor->left)
		return 0;
	copied = take_copy(&ahead, head, XTS_DATAGRAM_RECORD_BYTES);
	if (!xts_datagram_record_decode(&record, head, copied))
		copied += take_copy(&ahead, head + copied, record.control_bytes);
	bytes = xts_datagram_read(d, head, copied);
	if (bytes >= 0)
		*cursor = ahead;
	return bytes < 0 ? bytes : 1;
}
