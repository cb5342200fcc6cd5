/*
 * DNS messages, as far as the proxy parses them (RFC 1035, RFC 6891): may a query be passed on, and is a message the
 * answer to it (RFC 5452)? These are functions of bytes, without state. The rest of a message concerns only the host
 * and the name server.
 */
#ifndef XTS_NAME_MESSAGE_H
#define XTS_NAME_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#define NAME_HEADER_BYTES 12u
#define NAME_BYTES_MAX 255u /* length of a name in a message */
#define NAME_TEXT_BYTES 256u
/* How much a name server may put into one datagram. More would be fragmented on its way (RFC 9715), so it comes over
 * TCP. */
#define NAME_DATAGRAM_BYTES_MAX 1232u

/* The result (RCODE), in the last byte of the flags. */
enum { NAME_OK = 0, NAME_FORMERR = 1, NAME_SERVFAIL = 2, NAME_NOTIMP = 4, NAME_REFUSED = 5 };

/* Is it a standard query: one question of class IN, and nothing else except an OPT record? Returns the length of its
 * question, or 0. If the OPT record gives a larger datagram size, sets that to NAME_DATAGRAM_BYTES_MAX. */
uint32_t name_query_check(uint8_t *query, uint32_t bytes);

/* Is it the answer to this query, with the same ID and question? Names are compared without regard to case. A server
 * that does not understand the query may leave the question out. */
bool name_answers(const uint8_t *answer, uint32_t bytes, const uint8_t *query, uint32_t question_bytes);

static inline bool name_is_cut(const uint8_t *answer)
{
	return answer[2] & 0x02;
}

static inline uint8_t name_result(const uint8_t *answer)
{
	return answer[3] & 0x0f;
}

static inline void name_set_id(uint8_t *message, uint16_t id)
{
	message[0] = (uint8_t)(id >> 8);
	message[1] = (uint8_t)id;
}

static inline uint16_t name_id(const uint8_t *message)
{
	return (uint16_t)(message[0] << 8 | message[1]);
}

/* Is the name of the question the domain, or below it? The domain is in wire form, in lower case. */
bool name_is_within(const uint8_t *query, const uint8_t *domain, uint32_t domain_bytes);
/* The name of the question as text for people; characters that do not print become '?'. */
void name_text(const uint8_t *query, char text[NAME_TEXT_BYTES]);

#endif
