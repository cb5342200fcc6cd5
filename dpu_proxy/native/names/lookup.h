/* A lookup (names.h), shared by names.c, which begins and ends it, and lookup.c, which asks servers. */
#ifndef XTS_LOOKUP_H
#define XTS_LOOKUP_H

#include "channel/channel.h"

#define LOOKUP_PREFIX_BYTES 2u /* over TCP a length precedes the message */

struct lookup {
	struct watch watch; /* first: epoll's pointer */
	struct list member, noted, answered;
	struct timer timer; /* of the current try */
	struct channel *channel;
	struct xts_tenant *tenant;  /* charged for it; a reference */
	struct xts_endpoint server; /* of the current try */
	int fd;
	bool tcp, asked; /* over TCP: the query has been sent */
	bool late;       /* the current try has timed out */
	bool any_silent; /* a server did not answer in time */
	uint32_t tries, wrong;
	uint32_t token;
	uint16_t host_id;
	int error; /* of the answer, positive */
	uint8_t *answer;
	uint32_t answer_bytes; /* bytes allocated and charged */
	uint32_t got;          /* over TCP: bytes received, the prefix included */
	uint8_t length[LOOKUP_PREFIX_BYTES];
	uint32_t question_bytes;
	uint32_t query_bytes;
	uint8_t query[];
};

/* --- lookup.c: asking servers --------------------------------------------------------------------- */

/* Asks the next server; ends the lookup when all have been asked `attempts` times. */
void lookup_try_next(struct lookup *l);
/* The lookup's socket has an event, or the current try has timed out. */
void lookup_goes_on(struct lookup *l);

/* --- names.c ------------------------------------------------------------------------------------------------------ */

/* The current try is over: closes its socket and cancels its timer. */
void lookup_close_socket(struct lookup *l);
void lookup_drop_answer(struct lookup *l);
/* Ends the lookup: the host gets the answer, or this error (positive). */
void lookup_finish(struct lookup *l, int error);

#endif
