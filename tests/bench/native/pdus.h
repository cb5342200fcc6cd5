/* PDUs that the peer sends and a client without offload has to take apart itself. */
#ifndef BENCH_PDUS_H
#define BENCH_PDUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NVMe/TCP C2HData (NVM Express TCP Transport 1.0, 3.6.2.10): header, its digest, 32 KB of data, their digest. */
#define NVME_HEADER_BYTES 24u
#define NVME_DATA_BYTES 32768u
#define NVME_PDUS 8u
#define NVME_STREAM_BYTES (NVME_PDUS * (NVME_HEADER_BYTES + NVME_DATA_BYTES + 8u))
#define NVME_HEADER_DIGEST 1u
#define NVME_DATA_DIGEST 2u

/* HTTP/2 (RFC 9113): SETTINGS and HEADERS once, then DATA frames. */
#define HTTP2_FRAME_BYTES 1024u /* of payload */
#define HTTP2_FRAMES 128u
#define HTTP2_STREAM_BYTES (256u + HTTP2_FRAMES * (9u + HTTP2_FRAME_BYTES))

/* Fills in NVME_PDUS PDUs; returns their length. */
size_t nvme_stream(uint8_t *out, bool digests);
/* Fills in the beginning (*once bytes) and HTTP2_FRAMES frames; returns the length of all. */
size_t http2_stream(uint8_t *out, size_t *once);
/* CRC32C of bytes, by the processor's instruction where there is one. */
uint32_t bench_crc32c(const void *data, size_t bytes);

#endif
