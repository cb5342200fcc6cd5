/* Parses DNS messages; see name_message.h. */
#include "names/name_message.h"

#include <stddef.h>
#include <string.h>

#define LABEL_BYTES_MAX 63u
#define TYPE_OPT 41u
#define TYPE_IXFR 251u
#define TYPE_AXFR 252u /* a whole zone, in many messages */
#define CLASS_IN 1u
#define OPT_FIXED_BYTES 11u /* name (the root), type, size, result and flags, length */

/* A number of 16 bits in network byte order. */
static uint32_t number(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* The length of the name that begins here; 0: it does not end within this many bytes. The question is the first name in
 * its message, so it cannot refer to another (compression). */
static uint32_t name_bytes(const uint8_t *name, uint32_t bytes)
{
	uint32_t at = 0;

	while (at < bytes && at < NAME_BYTES_MAX) {
		if (!name[at])
			return at + 1;
		if (name[at] > LABEL_BYTES_MAX)
			return 0;
		at += 1u + name[at];
	}
	return 0;
}

/* The length of the question, with type and class; 0: it is not a question. */
static uint32_t question_bytes(const uint8_t *question, uint32_t bytes)
{
	uint32_t name = name_bytes(question, bytes);

	return name && bytes - name >= 4 ? name + 4 : 0;
}

/* Checks the OPT record (EDNS) of the host, which has to be the last in the message. */
static bool check_opt(uint8_t *record, uint32_t bytes)
{
	if (bytes < OPT_FIXED_BYTES || record[0] || number(record + 1) != TYPE_OPT ||
	    number(record + 9) != bytes - OPT_FIXED_BYTES)
		return false;
	if (number(record + 3) > NAME_DATAGRAM_BYTES_MAX) {
		record[3] = NAME_DATAGRAM_BYTES_MAX >> 8;
		record[4] = NAME_DATAGRAM_BYTES_MAX & 0xff;
	}
	return true;
}

uint32_t name_query_check(uint8_t *query, uint32_t bytes)
{
	uint32_t question, end;

	/* QR, opcode, TC; AA has no meaning here */
	if (bytes < NAME_HEADER_BYTES || query[2] & 0xfa || name_result(query))
		return 0;
	if (number(query + 4) != 1 || number(query + 6) || number(query + 8) || number(query + 10) > 1)
		return 0;
	question = question_bytes(query + NAME_HEADER_BYTES, bytes - NAME_HEADER_BYTES);
	end = NAME_HEADER_BYTES + question;
	if (!question || number(query + end - 2) != CLASS_IN)
		return 0;
	if (number(query + end - 4) == TYPE_IXFR || number(query + end - 4) == TYPE_AXFR)
		return 0;
	if (number(query + 10) ? !check_opt(query + end, bytes - end) : end != bytes)
		return 0;
	return question;
}

static uint8_t lower(uint8_t letter)
{
	return letter >= 'A' && letter <= 'Z' ? (uint8_t)(letter - 'A' + 'a') : letter;
}

/* Lengths of labels are below 'A', so folding the case does not change them. */
static bool same_name(const uint8_t *a, const uint8_t *b, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (lower(a[i]) != lower(b[i]))
			return false;
	return true;
}

bool name_answers(const uint8_t *answer, uint32_t bytes, const uint8_t *query, uint32_t question)
{
	uint8_t result;

	if (bytes < NAME_HEADER_BYTES || name_id(answer) != name_id(query) || (answer[2] & 0xf8) != 0x80)
		return false;
	result = name_result(answer);
	if (!number(answer + 4))
		return result == NAME_FORMERR || result == NAME_NOTIMP || result == NAME_REFUSED ||
		       result == NAME_SERVFAIL;
	if (number(answer + 4) != 1 || bytes - NAME_HEADER_BYTES < question)
		return false;
	answer += NAME_HEADER_BYTES;
	query += NAME_HEADER_BYTES;
	return same_name(answer, query, question - 4) && !memcmp(answer + question - 4, query + question - 4, 4);
}

bool name_is_within(const uint8_t *query, const uint8_t *domain, uint32_t domain_bytes)
{
	const uint8_t *name = query + NAME_HEADER_BYTES;
	uint32_t bytes = name_bytes(name, NAME_BYTES_MAX);

	while (bytes > domain_bytes) {
		bytes -= 1u + *name;
		name += 1u + *name;
	}
	return bytes == domain_bytes && same_name(name, domain, bytes);
}

void name_text(const uint8_t *query, char text[NAME_TEXT_BYTES])
{
	const uint8_t *name = query + NAME_HEADER_BYTES;
	size_t at = 0;

	for (uint32_t left = name_bytes(name, NAME_BYTES_MAX); left > 1; left -= 1u + *name, name += 1u + *name) {
		for (uint32_t i = 1; i <= *name; i++)
			text[at++] = name[i] > ' ' && name[i] < 0x7f ? (char)name[i] : '?';
		text[at++] = '.';
	}
	text[at ? at - 1 : 0] = 0;
}
