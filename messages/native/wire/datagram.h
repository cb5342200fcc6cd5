/*
 * Records of datagrams, which make up the payload of SEND_DATAGRAMS and RECV_DATAGRAMS. Sans-I/O, for both ends.
 *
 * A record is its header (struct xts_datagram_record), control items, and the data. Header and control items are in one
 * message. The data of the last record of a message may continue in the next message of the socket (flag MORE), which
 * then begins with the rest.
 *
 * The pieces of a frame are memory of the peer, which may change while we read. So header and control items are copied
 * once, and checked in the copy. Data is not copied but lent as iovecs, whose lengths are ours.
 */
#ifndef XTS_DATAGRAM_H
#define XTS_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "queues/queue.h"
#include "wire/wire.h"

#define XTS_DATAGRAM_HEAD_BYTES_MAX (XTS_DATAGRAM_RECORD_BYTES + XTS_DATAGRAM_CONTROL_BYTES_MAX)

/* struct sock_extended_err, and the sender of the error. */
struct xts_datagram_error {
	uint32_t error; /* errno */
	uint8_t origin, type, code;
	uint32_t info, data;
	struct xts_endpoint offender; /* ip_version 0: none, the error is local */
};

/* A datagram, or a train of equal ones, without its data. */
struct xts_datagram {
	struct xts_datagram_record record;
	uint32_t controls; /* 1 << XTS_DATAGRAM_*: which of the following are present */
	/* after reading: there was a control item that this version does not know, or of a wrong length */
	bool unknown;
	struct xts_endpoint pktinfo;
	uint32_t hop_limit;
	uint32_t traffic_class;
	uint64_t timestamp_ns;
	uint64_t software_ns, hardware_ns;     /* from STAMPING; 0: none */
	uint32_t stamp_interface, stamp_bytes; /* from STAMP_PKTINFO */
	uint32_t stamp_send, stamp_id;
	uint32_t spec_dst;
	struct xts_datagram_error error;
};

/* The post credits that a record takes. */
static inline uint32_t xts_datagram_credits(const struct xts_datagram_record *record)
{
	return (uint32_t)record->data_bytes + record->control_bytes + XTS_DATAGRAM_CREDITS;
}

/* Sets record.control_bytes to the size of the items that are present. */
void xts_datagram_size_controls(struct xts_datagram *d);

/* Writes header and control items. Returns their size, or 0 if room is too small. Sets record.control_bytes. */
uint32_t xts_datagram_write(void *to, uint32_t room, struct xts_datagram *d);

/* Reads header and control items from private memory. Returns their size, or -EBADMSG. */
int xts_datagram_read(struct xts_datagram *d, const void *from, uint32_t bytes);

/* A reader's position in the payload of one message. */
struct xts_datagram_cursor {
	const struct iovec *piece;
	uint32_t pieces; /* pieces left, including this one */
	uint32_t at;     /* position in piece */
	uint32_t left;   /* bytes of the payload that are left */
};

/* Begins with the payload of length bytes at offset in the frame (the decoder has checked that the frame has them). */
void xts_datagram_begin(struct xts_datagram_cursor *cursor, const struct xts_rx_frame *frame, uint32_t offset,
			uint32_t length);

/* Reads the next record without its data, which must be taken before the next call. 1; 0 at the end of the payload; or
 * -EBADMSG. */
int xts_datagram_next(struct xts_datagram_cursor *cursor, struct xts_datagram *d);

/* Lends up to `bytes` bytes of data as at most *count iovecs, and sets *count to the number used. Returns the number of
 * bytes: less than requested if the payload, or the room for iovecs, ends. XTS_SEGMENTS_MAX iovecs are always
 * enough. */
uint32_t xts_datagram_data(struct xts_datagram_cursor *cursor, uint32_t bytes, struct iovec *iov, uint32_t *count);

#endif
