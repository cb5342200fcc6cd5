/* A lookup (names.h) as names.c and lookup.c see it: the former has its beginning and its end, the latter asks servers. */
#ifndef XTS_LOOKUP_H
#define XTS_LOOKUP_H

#include "channel.h"

#define LOOKUP_PREFIX_BYTES 2u /* over TCP the length comes first */

struct lookup {
	struct watch watch; /* first: epoll's pointer */
	struct list member, noted, answered;
	struct timer timer; /* of the present try */
	struct channel *channel;
	struct xts_tenant *tenant;  /* charged for it; a reference */
	struct xts_endpoint server; /* of the present try */
	int fd;
	bool tcp, asked; /* over TCP: the query has been sent */
	bool late;       /* the time of the present try is over */
	bool any_silent; /* a server did not answer in time */
	uint32_t tries, wrong;
	uint32_t token;
	uint16_t host_id;
	int error; /* of the answer, positive */
	uint8_t *answer;
	uint32_t answer_bytes; /* allocated, and charged */
	uint32_t got;          /* over TCP: bytes received, the prefix included */
	uint8_t length[LOOKUP_PREFIX_BYTES];
	uint32_t question_bytes;
	uint32_t query_bytes;
	uint8_t query[];
};

/* --- lookup.c: a server is asked, and answers --------------------------------------------------------------------- */

/* Asks the next server; ends the lookup, when all have been asked often enough. */
void lookup_try_next(struct lookup *l);
/* Its socket has an event, or the time of the present try is over. */
void lookup_goes_on(struct lookup *l);

/* --- names.c ------------------------------------------------------------------------------------------------------ */

/* The present try is over: its socket and its timer go. */
void lookup_close_socket(struct lookup *l);
void lookup_drop_answer(struct lookup *l);
/* The host is to get the answer, or (positive) this error. */
void lookup_finish(struct lookup *l, int error);

#endif
