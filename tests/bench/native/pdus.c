/* Streams of PDUs of NVMe/TCP and HTTP/2, and CRC32C; see pdus.h. */
#include "pdus.h"

#include <string.h>

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t bench_crc32c(const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint64_t crc = UINT32_MAX, word;

	for (; bytes >= 8; at += 8, bytes -= 8) {
		memcpy(&word, at, 8);
		crc = __builtin_ia32_crc32di(crc, word);
	}
	while (bytes--)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
	return ~(uint32_t)crc;
}
#else
uint32_t bench_crc32c(const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint32_t crc = UINT32_MAX;

	while (bytes--) {
		crc ^= *at++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}
#endif

static void put_le32(uint8_t *out, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		out[i] = (uint8_t)(v >> (8 * i));
}

size_t nvme_stream(uint8_t *out, bool digests)
{
	uint8_t *at = out;

	for (uint32_t i = 0; i < NVME_PDUS; i++) {
		uint8_t *header = at;
		uint32_t data_at = NVME_HEADER_BYTES + (digests ? 4 : 0);

		memset(header, 0, NVME_HEADER_BYTES);
		header[0] = 7; /* C2HData */
		header[1] = digests ? NVME_HEADER_DIGEST | NVME_DATA_DIGEST : 0;
		header[2] = NVME_HEADER_BYTES;
		header[3] = (uint8_t)data_at;
		put_le32(header + 4, data_at + NVME_DATA_BYTES + (digests ? 4 : 0));
		put_le32(header + 12, i * NVME_DATA_BYTES); /* DATAO */
		put_le32(header + 16, NVME_DATA_BYTES);     /* DATAL */
		at += NVME_HEADER_BYTES;
		if (digests) {
			put_le32(at, bench_crc32c(header, NVME_HEADER_BYTES));
			at += 4;
		}
		for (uint32_t k = 0; k < NVME_DATA_BYTES; k++)
			at[k] = (uint8_t)(k * 31 + i);
		if (digests)
			put_le32(at + NVME_DATA_BYTES, bench_crc32c(at, NVME_DATA_BYTES));
		at += NVME_DATA_BYTES + (digests ? 4 : 0);
	}
	return (size_t)(at - out);
}

static uint8_t *frame(uint8_t *at, uint32_t bytes, uint8_t type, uint8_t flags, uint8_t stream)
{
	const uint8_t header[9] = {
		(uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8), (uint8_t)bytes, type, flags, 0, 0, 0, stream
	};

	memcpy(at, header, sizeof(header));
	return at + sizeof(header);
}

size_t http2_stream(uint8_t *out, size_t *once)
{
	uint8_t *at = frame(out, 0, 4, 0, 0); /* SETTINGS */

	at = frame(at, 0, 4, 1, 0); /* and the acknowledgement of the client's */
	at = frame(at, 1, 1, 4, 1); /* HEADERS: END_HEADERS */
	*at++ = 0x88;               /* :status 200, of the static table (RFC 7541) */
	*once = (size_t)(at - out);
	for (uint32_t i = 0; i < HTTP2_FRAMES; i++) {
		at = frame(at, HTTP2_FRAME_BYTES, 0, 0, 1);
		memset(at, (int)i, HTTP2_FRAME_BYTES);
		at += HTTP2_FRAME_BYTES;
	}
	return (size_t)(at - out);
}
