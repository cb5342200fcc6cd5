/* CRC32C (Castagnoli), the digest of NVMe/TCP, MPA and iSCSI (RFC 3720 12.1). */
#ifndef XTS_CRC32C_H
#define XTS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Extends a digest: crc is the digest of the bytes so far (0: none yet), and the result is the digest of those and of
 * these bytes. On the wire a digest is little-endian. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two implementations, for tests: by table, which works anywhere, and by the CPU's instruction (returns 0 with
 * *there false if the CPU has none). */
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes, int *there);

#endif
