/* A lookup: queries to the device's name servers by xts_query_name(), for each name of the search list: search.c. */
#ifndef XTS_NSS_SEARCH_H
#define XTS_NSS_SEARCH_H

#include "answer.h"

/* Not a number of netdb.h: the proxy looks up no names for us, or there is none. */
#define LOOKUP_UNSERVED (-2)

/* Looks up a name, with the search list of resolv.conf(5), until one exists. types has 1 or 2 types, and answers an
 * entry for each. 0: at least one of them has an answer; else LOOKUP_UNSERVED, or the result of answer_read() for the
 * first. */
int lookup_host(struct answer *answers, const ns_type *types, unsigned count, const char *name);
/* The name of an address, in answer->host. */
int lookup_address(struct answer *answer, const uint8_t *address, int family);

#endif
