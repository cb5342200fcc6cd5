/* What a DNS answer says about a question, read with the C library's own parser (libresolv): answer.c. */
#ifndef XTS_NSS_ANSWER_H
#define XTS_NSS_ANSWER_H

#include <arpa/nameser.h>
#include <resolv.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_ADDRESSES_MAX 512u
#define ANSWER_ALIASES_MAX 16u /* length of a chain of CNAMEs; a longer one is a loop */

struct answer {
	char name[NS_MAXDNAME]; /* the canonical name, at the end of the aliases */
	char aliases[ANSWER_ALIASES_MAX][NS_MAXDNAME];
	unsigned alias_count;
	unsigned count; /* number of addresses or, for a PTR question, names */
	uint8_t addresses[ANSWER_ADDRESSES_MAX][16];
	char host[NS_MAXDNAME]; /* the first name, for a PTR question */
	uint32_t ttl;           /* the smallest of all records */
};

/* Reads the answer to a question of this type (ns_t_a, ns_t_aaaa, ns_t_ptr) about this name. 0, or the number of
 * netdb.h (h_errno): HOST_NOT_FOUND, NO_DATA, TRY_AGAIN, NO_RECOVERY. */
int answer_read(struct answer *answer, const uint8_t *message, int bytes, ns_type type, const char *name);

#endif
