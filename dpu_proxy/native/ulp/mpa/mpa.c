/*
 * MPA, the framing of RDMA over TCP (RFC 5044): after the start-up frames, which the application handles, a stream of
 * FPDUs
 *
 *     ULPDU_Length (2) | ULPDU | padding to a multiple of 4 | CRC32C (4)
 *
 * If both sides agreed, a marker of four bytes is at every 512th byte of the stream, counted from the first FPDU: two
 * zero bytes, and the distance back to the ULPDU_Length field of its FPDU. A marker exactly between two FPDUs belongs
 * to the second and has distance 0. The CRC covers the FPDU with its markers.
 *
 * A received ULPDU goes to the host as it comes, except its last byte, which waits until the CRC has been checked. On
 * send, what the host offers is encoded into a buffer; an FPDU has at most 64 KiB. Each direction is a layer of its
 * own, with or without markers.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "mpa_move.h"
#include "ulp/protocols.h"
#include "wire/wire.h"

#define INTERVAL 512u
#define MARKER_BYTES 4u
#define LENGTH_BYTES 2u
#define CRC_BYTES 4u
#define ULPDU_BYTES_MAX 65535u
#define ULPDU_BYTES_MAX_MARKERS 64768u /* so that a marker's 16 bits can point back to the beginning */

static uint32_t padding_of(uint32_t bytes)
{
	return (4 - (LENGTH_BYTES + bytes) % 4) % 4;
}

static uint32_t ulpdu_max(const struct mpa_stream *s)
{
	return s->markers ? ULPDU_BYTES_MAX_MARKERS : ULPDU_BYTES_MAX;
}

static bool marker_due(const struct mpa_stream *s)
{
	return s->markers && s->position % INTERVAL == 0;
}

/* Bytes until the next marker. */
static size_t run_of(const struct mpa_stream *s, size_t bytes)
{
	size_t run = INTERVAL - s->position % INTERVAL;

	return s->markers && run < bytes ? run : bytes;
}

static uint16_t pointer_of(const struct mpa_stream *s)
{
	return s->begin == UINT64_MAX ? 0 : (uint16_t)(s->position - s->begin);
}

static int mpa_set(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct mpa *m = l->state;
	uint32_t start = 0;
	int r;

	switch (a->type) {
	case XTS_MPA_MARKERS_RX:
		return ulp_attribute_flag(l, a, "MARKERS_RX", &m->from.markers);
	case XTS_MPA_MARKERS_TX:
		return ulp_attribute_flag(l, a, "MARKERS_TX", &m->to.markers);
	case XTS_MPA_NO_CRC:
		return ulp_attribute_flag(l, a, "NO_CRC", &m->no_crc);
	case XTS_MPA_START_OFFSET:
		r = ulp_attribute_u32(l, a, "START_OFFSET", &start);
		if (!r && start % 4)
			r = ulp_refuse(l, EINVAL,
				       "START_OFFSET must be a multiple of 4, as the length of an FPDU is, not %u",
				       start);
		m->from.position = m->to.position = start;
		return r;
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int mpa_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct mpa *m = calloc(1, sizeof *m);

	if (!m)
		return ulp_refuse(l, ENOMEM, "no memory for mpa");
	l->state = m;
	m->from.begin = m->to.begin = UINT64_MAX;
	return ulp_attributes(l, attributes, bytes, mpa_set);
}

/* --- received ----------------------------------------------------------------------------------------------------- */

static int marker_read(struct ulp_layer *l, struct mpa *m)
{
	uint16_t pointer;
	int error = ulp_in_gather(&m->in, l, m->marker, &m->marker_got, MARKER_BYTES);

	if (error)
		return error;
	m->marker_got = 0;
	pointer = xts_get16(m->marker + 2) & 0xfffcu;
	if (pointer != pointer_of(&m->from))
		return ulp_fail(l, XTS_FAULT_RECORD,
				"a marker points back %u bytes, but its FPDU began %u bytes before it", pointer,
				pointer_of(&m->from));
	m->from.crc = crc32c(m->from.crc, m->marker, MARKER_BYTES);
	m->from.position += MARKER_BYTES;
	return 0;
}

/* Reads the stream without its markers, as ulp_in_read() does. covered: the CRC covers these bytes. */
static ssize_t stream_read(struct ulp_layer *l, struct mpa *m, void *out, size_t bytes, size_t room, bool covered)
{
	ssize_t n;

	if (marker_due(&m->from)) {
		int error = marker_read(l, m);

		if (error)
			return error;
	}
	n = ulp_in_read(&m->in, l, out, run_of(&m->from, bytes), room);
	if (n < 0)
		return n;
	m->from.position += (uint64_t)n;
	if (covered)
		m->from.crc = crc32c(m->from.crc, out, (size_t)n);
	return n;
}

static int gather(struct ulp_layer *l, struct mpa *m, uint8_t *out, uint32_t *got, uint32_t want, bool covered)
{
	while (*got < want) {
		ssize_t n = stream_read(l, m, out + *got, want - *got, 0, covered);

		if (n < 0)
			return (int)n;
		if (m->from.begin == UINT64_MAX)
			m->from.begin = m->from.position - (uint64_t)n;
		*got += (uint32_t)n;
	}
	return 0;
}

static int length_read(struct ulp_layer *l, struct mpa *m)
{
	int error;

	if (m->length_got == LENGTH_BYTES)
		return 0;
	error = gather(l, m, m->length, &m->length_got, LENGTH_BYTES, true);
	if (error == -ENODATA && (m->length_got || m->marker_got || m->from.crc))
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended in the header of an FPDU");
	if (error)
		return error;
	m->bytes = xts_get16(m->length);
	m->given = m->trailer_got = 0;
	if (m->bytes > ulpdu_max(&m->from))
		return ulp_fail(l, XTS_FAULT_LENGTH, "a ULPDU of %u bytes: with markers there are at most %u", m->bytes,
				ulpdu_max(&m->from));
	return 0;
}

static int trailer_check(struct ulp_layer *l, struct mpa *m)
{
	uint32_t padding = padding_of(m->bytes), crc;
	int error = gather(l, m, m->trailer, &m->trailer_got, padding, true);

	if (!error)
		error = gather(l, m, m->trailer, &m->trailer_got, padding + CRC_BYTES, false);
	if (error)
		return error;
	memcpy(&crc, m->trailer + padding, sizeof crc);
	if (!m->no_crc && le32toh(crc) != m->from.crc)
		return ulp_fail(l, XTS_FAULT_DIGEST, "the CRC of an FPDU with %u bytes is wrong", m->bytes);
	m->from.crc = 0;
	m->from.begin = UINT64_MAX;
	m->length_got = 0;
	return 0;
}

/* Reads from the ULPDU; the last byte is held until the CRC has been verified. */
static ssize_t ulpdu_read(struct ulp_layer *l, struct mpa *m, uint8_t *out, size_t room)
{
	size_t left = m->bytes - m->given, n = 0;
	int error;

	if (m->held) {
		out[n++] = m->last;
	} else {
		while (n < left && n < room) {
			ssize_t got = stream_read(l, m, out + n, left < room ? left - n : room - n, room - n, true);

			if (got < 0 && n)
				return (ssize_t)n; /* the next read finds the error behind these bytes */
			if (got < 0)
				return got;
			n += (size_t)got;
		}
		if (n < left)
			return (ssize_t)n;
	}
	error = trailer_check(l, m);
	m->held = error == -EAGAIN && n;
	if (!error)
		return (ssize_t)n;
	if (!m->held)
		return error;
	m->last = out[n - 1];
	return n > 1 ? (ssize_t)n - 1 : -EAGAIN;
}

static ssize_t mpa_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct mpa *m = l->state;
	int error = length_read(l, m);
	ssize_t n = error ? error : ulpdu_read(l, m, out, room);

	if (!error && n == -ENODATA)
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended inside an FPDU");
	if (n < 0)
		return n;
	m->given += (uint32_t)n;
	*mark = (struct ulp_mark){ .pdu = true, .more = m->given < m->bytes, .record_bytes = m->bytes };
	return n;
}

static bool mpa_pending(const struct ulp_layer *l)
{
	const struct mpa *m = l->state;

	return ulp_in_pending(&m->in, l);
}

/* --- sent --------------------------------------------------------------------------------------------------------- */

/* Room has been reserved. */
static void stream_put(struct mpa *m, const struct iovec *iov, int pieces, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		uint8_t *to = m->out.data + m->out.first + m->out.bytes;
		size_t run;

		if (marker_due(&m->to)) {
			xts_put16(to, 0);
			xts_put16(to + 2, pointer_of(&m->to));
			run = MARKER_BYTES;
		} else {
			run = run_of(&m->to, bytes - at);
			at += ulp_iov_copy(to, iov, pieces, at, run);
			if (m->to.begin == UINT64_MAX)
				m->to.begin = m->to.position;
		}
		m->to.crc = crc32c(m->to.crc, to, run);
		m->to.position += run;
		m->out.bytes += (uint32_t)run;
	}
}

static void bytes_put(struct mpa *m, const void *data, size_t bytes)
{
	struct iovec piece = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };

	stream_put(m, &piece, 1, bytes);
}

static void trailer_put(struct mpa *m)
{
	static const uint8_t zeros[3];
	uint8_t trailer[CRC_BYTES] = { 0 };
	uint32_t crc;

	bytes_put(m, zeros, padding_of(m->pdu_bytes));
	if (marker_due(&m->to)) { /* the marker goes before the CRC, which covers it */
		uint8_t marker[MARKER_BYTES] = { 0 };

		xts_put16(marker + 2, pointer_of(&m->to));
		m->to.crc = crc32c(m->to.crc, marker, sizeof marker);
		m->to.position += sizeof marker;
		ulp_out_put(&m->out, marker, sizeof marker);
	}
	crc = htole32(m->to.crc);
	if (!m->no_crc)
		memcpy(trailer, &crc, sizeof crc);
	ulp_out_put(&m->out, trailer, sizeof trailer);
	m->to.position += sizeof trailer;
	m->to.crc = 0;
	m->to.begin = UINT64_MAX;
}

static int pdu_begin(struct ulp_layer *l, struct mpa *m, size_t bytes, const struct ulp_mark *mark)
{
	size_t length = mark->record_bytes || mark->more ? mark->record_bytes : bytes;

	if (!mark->pdu || (mark->more && !mark->record_bytes))
		return ulp_fail(l, XTS_FAULT_USE, "mpa sends ULPDUs whose length is known when they begin");
	if (length > ulpdu_max(&m->to))
		return ulp_fail(l, XTS_FAULT_USE, "a ULPDU of %zu bytes: at most %u go into an FPDU", length,
				ulpdu_max(&m->to));
	m->pdu_bytes = m->left = (uint32_t)length;
	return 0;
}

static ssize_t mpa_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct mpa *m = l->state;
	size_t bytes = ulp_iov_bytes(iov, pieces);
	int error = ulp_out_flush(&m->out, l);

	if (!error && !m->in_pdu)
		error = pdu_begin(l, m, bytes, mark);
	if (error)
		return error == -EAGAIN ? 0 : error;
	if (bytes > m->left || (!mark->more && bytes < m->left))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU whose length is not the one announced");
	error = ulp_out_reserve(&m->out, l, (uint32_t)(bytes + bytes / (INTERVAL - MARKER_BYTES) * MARKER_BYTES + 32));
	if (error)
		return ulp_memory_fail(l, error, "an FPDU");
	if (!m->in_pdu) {
		uint8_t length[LENGTH_BYTES];

		xts_put16(length, (uint16_t)m->pdu_bytes);
		bytes_put(m, length, sizeof length);
	}
	stream_put(m, iov, pieces, bytes);
	m->left -= (uint32_t)bytes;
	m->in_pdu = m->left || mark->more;
	if (!m->in_pdu)
		trailer_put(m);
	error = ulp_out_flush(&m->out, l);
	return error && error != -EAGAIN ? error : bytes ? (ssize_t)bytes : 1;
}

static int mpa_flush(struct ulp_layer *l)
{
	struct mpa *m = l->state;

	return ulp_out_flush(&m->out, l);
}

static void mpa_close(struct ulp_layer *l)
{
	struct mpa *m = l->state;

	ulp_in_free(&m->in);
	ulp_out_free(&m->out);
	free(m);
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

int mpa_check(const void *made)
{
	const struct mpa *m = made;

	return m->given <= m->bytes && (!m->held || m->given + 1 == m->bytes) && m->left <= m->pdu_bytes ? 0 : -EBADMSG;
}

static ssize_t mpa_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&mpa_record, l, out, room);
}

/* With markers each byte moves them. */
static uint32_t mpa_rests(const struct ulp_layer *l)
{
	const struct mpa *m = l->state;

	return !m->from.markers && !m->to.markers && !m->in.bytes && !m->length_got && !m->held && !m->out.bytes &&
	       !m->in_pdu;
}

static int mpa_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	int r = ulp_state_restore(&mpa_record, l, sizeof(struct mpa), state, bytes);
	struct mpa *m = l->state;

	return r ? r : ulp_out_count(&m->out, l);
}

const struct ulp_protocol ulp_mpa = {
	.id = XTS_ULP_MPA,
	.version = XTS_ULP_MPA_VERSION,
	.name = "mpa",
	.receive = true,
	.send = true,
	.boundaries = true,
	.open = mpa_open,
	.read = mpa_read,
	.pending = mpa_pending,
	.write = mpa_write,
	.flush = mpa_flush,
	.save = mpa_save,
	.restore = mpa_restore,
	.rests = mpa_rests,
	.moves_since = 2,
	.close = mpa_close,
};
