/*
 * libFuzzer target: what the proxy reads of DNS messages. The input is a query and an answer, the first byte is the
 * length of the query, in units of 4. What counts as a query has a question within its bounds, a name that can be shown
 * and compared, and stays a query when it is checked again.
 */
#include <stdlib.h>
#include <string.h>

#include "ensure.h"
#include "names/name_message.h"

static uint8_t *copy_of(const uint8_t *data, size_t bytes) /* for AddressSanitizer */
{
	uint8_t *copy = malloc(bytes ? bytes : 1);

	ENSURE(copy);
	if (bytes)
		memcpy(copy, data, bytes);
	return copy;
}

static void check_query(uint8_t *query, uint32_t bytes, uint32_t question)
{
	static const uint8_t domain[] = "\4test";
	char text[NAME_TEXT_BYTES];

	ENSURE(question <= bytes - NAME_HEADER_BYTES && question >= 5);
	ENSURE(name_query_check(query, bytes) == question);
	name_text(query, text);
	ENSURE(memchr(text, 0, sizeof text));
	for (const char *c = text; *c; c++)
		ENSURE(*c > ' ' && *c <= '~');
	ENSURE(name_is_within(query, query + NAME_HEADER_BYTES, question - 4));
	ENSURE(name_is_within(query, (const uint8_t *)"", 1));
	(void)name_is_within(query, domain, sizeof domain);
	ENSURE(!name_answers(query, bytes, query, question));
	query[2] |= 0x80;
	ENSURE(name_answers(query, bytes, query, question));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint32_t query_bytes, question;
	uint8_t *query, *answer;

	if (!bytes || bytes > 4096)
		return 0;
	query_bytes = data[0] * 4u < bytes - 1 ? data[0] * 4u : (uint32_t)bytes - 1;
	query = copy_of(data + 1, query_bytes);
	answer = copy_of(data + 1 + query_bytes, bytes - 1 - query_bytes);
	question = name_query_check(query, query_bytes);
	if (question) {
		(void)name_answers(answer, (uint32_t)(bytes - 1 - query_bytes), query, question);
		check_query(query, query_bytes, question);
	}
	free(query);
	free(answer);
	return 0;
}
