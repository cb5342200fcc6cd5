/* CRC32C (Castagnoli), the digest of NVMe/TCP, MPA and iSCSI (RFC 3720 12.1). */
#ifndef XTS_ULP_CRC32C_H
#define XTS_ULP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The digest of what crc is the digest of (0: of nothing) followed by these bytes. On the wire it is in little-endian
 * order. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* Its two ways, for tests: by table anywhere, and by the CPU's instruction (0 and *there false where it has none). */
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes, int *there);

#endif
