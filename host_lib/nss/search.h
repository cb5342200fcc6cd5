/* A lookup: queries to the device's name servers by xts_query_name(), for each name of the search list: search.c. */
#ifndef XTS_NSS_SEARCH_H
#define XTS_NSS_SEARCH_H

#include "answer.h"

/* No netdb.h number: the proxy looks up no names for us, or there is none. */
#define LOOKUP_UNSERVED (-2)

/* Looks up a name, with the search list of resolv.conf(5), until one exists. types has 1 or 2 types, whose answers go to
 * the array of that length. 0: one of them has something; else LOOKUP_UNSERVED, or as answer_read(), of the first. */
int lookup_host(struct answer *answers, const ns_type *types, unsigned count, const char *name);
/* The name of an address, as answer->host. */
int lookup_address(struct answer *answer, const uint8_t *address, int family);

#endif
