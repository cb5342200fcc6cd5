/*
 * CRC32C (crc32c.h), computed by the CPU's instruction (SSE 4.2, detected at run time; ARMv8's CRC extension, where
 * compiled for it), eight bytes at a time, in three cycles each. Otherwise computed by tables, also eight bytes at a
 * time ("slicing by 8"): table[k] holds what a byte contributes when k more bytes follow it in the same step.
 */
#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "common/crc32c.h"

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41 with its bits reversed */

static uint32_t table[8][256];

__attribute__((constructor)) static void table_make(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[0][byte] = crc;
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (int k = 1; k < 8; k++)
			table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xff];
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, sizeof value);
	return le64toh(value);
}

uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, p += 8) {
		uint64_t x = load64(p) ^ crc;

		crc = 0;
		for (int k = 0; k < 8; k++)
			crc ^= table[7 - k][x >> 8 * k & 0xff];
	}
	while (bytes--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return ~crc;
}

#if defined(__x86_64__)

static bool has_instruction(void)
{
	return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t bytes)
{
	uint64_t wide = (uint32_t)~crc;

	for (; bytes >= 8; bytes -= 8, p += 8)
		wide = __builtin_ia32_crc32di(wide, load64(p));
	crc = (uint32_t)wide;
	while (bytes--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return ~crc;
}

#elif defined(__ARM_FEATURE_CRC32)

#include <arm_acle.h>

static bool has_instruction(void)
{
	return true;
}

static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t bytes)
{
	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, p += 8)
		crc = __crc32cd(crc, load64(p));
	while (bytes--)
		crc = __crc32cb(crc, *p++);
	return ~crc;
}

#else

static bool has_instruction(void)
{
	return false;
}

static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t bytes)
{
	return crc32c_by_table(crc, p, bytes);
}

#endif

uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes, int *there)
{
	*there = has_instruction();
	return *there ? by_instruction(crc, data, bytes) : 0;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	return has_instruction() ? by_instruction(crc, data, bytes) : crc32c_by_table(crc, data, bytes);
}
