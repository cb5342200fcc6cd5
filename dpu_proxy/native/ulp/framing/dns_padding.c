/*
 * Padding of DNS messages, in their OPT record. To find this record, all sections have to be parsed: questions and
 * records begin with a name of unknown length. Padding makes the OPT record longer and so moves the records behind it.
 * A compressed name that points to one of them would break. So a message is padded only if its OPT record is the last.
 */
#include <stdbool.h>
#include <string.h>

#include "dns_padding.h"
#include "wire/wire.h"

#define HEADER_BYTES 12u
#define RECORD_BYTES 10u /* type, class, TTL, length of the data */
#define OPTION_BYTES 4u  /* code and length */
#define TYPE_OPT 41u
#define OPTION_PADDING 12u

/* The offset of the first byte after a name; 0: the name does not end. */
static uint32_t name_end(const uint8_t *message, uint32_t bytes, uint32_t at)
{
	while (at < bytes) {
		uint8_t label = message[at];

		if (!label)
			return at + 1;
		if (label >= 0xc0)
			return at + 2;
		if (label > 63)
			return 0;
		at += 1u + label;
	}
	return 0;
}

/* The offset of the OPT record's fixed part if it is the last record; else 0. */
static uint32_t opt_find(const uint8_t *message, uint32_t bytes)
{
	uint32_t at = HEADER_BYTES, opt = 0;
	uint32_t questions = xts_get16(message + 4);
	uint32_t records = (uint32_t)xts_get16(message + 6) + xts_get16(message + 8) + xts_get16(message + 10);

	while (questions--) {
		at = name_end(message, bytes, at);
		if (!at || bytes - at < 4 || at > bytes)
			return 0;
		at += 4;
	}
	while (records--) {
		uint32_t name = at;

		at = name_end(message, bytes, at);
		if (!at || at > bytes || bytes - at < RECORD_BYTES)
			return 0;
		opt = xts_get16(message + at) == TYPE_OPT && !message[name] ? at : 0;
		at += RECORD_BYTES + xts_get16(message + at + 8);
		if (at > bytes)
			return 0;
	}
	return at == bytes ? opt : 0;
}

static bool padded_already(const uint8_t *options, uint32_t bytes)
{
	for (uint32_t at = 0; at + OPTION_BYTES <= bytes; at += OPTION_BYTES + xts_get16(options + at + 2))
		if (xts_get16(options + at) == OPTION_PADDING)
			return true;
	return false;
}

uint32_t dns_pad(uint8_t *message, uint32_t bytes, uint32_t room, uint16_t block)
{
	uint32_t opt = bytes > HEADER_BYTES ? opt_find(message, bytes) : 0, data, padding;

	if (!opt || bytes + OPTION_BYTES > room)
		return bytes;
	data = xts_get16(message + opt + 8);
	if (padded_already(message + opt + RECORD_BYTES, data))
		return bytes;
	padding = (block - (bytes + OPTION_BYTES) % block) % block;
	if (bytes + OPTION_BYTES + padding > room)
		padding = room - bytes - OPTION_BYTES;
	xts_put16(message + opt + 8, (uint16_t)(data + OPTION_BYTES + padding));
	xts_put16(message + bytes, OPTION_PADDING);
	xts_put16(message + bytes + 2, (uint16_t)padding);
	memset(message + bytes + OPTION_BYTES, 0, padding);
	return bytes + OPTION_BYTES + padding;
}
