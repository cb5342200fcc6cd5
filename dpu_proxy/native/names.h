/*
 * Lookups: the proxy asks the device's name servers what hosts want to know.
 *
 * Theory of operation
 *
 * A host sends a DNS query in a message (QUERY_NAME) and gets the answer of a name server in another (NAME_ACK). It
 * chooses neither the server nor the addresses and ports between which the query travels: the operator names the
 * servers ([names] of the configuration), so that hosts need no permission to reach them, and nothing else there can be
 * reached in this way. One query makes one answer, to the host that has asked.
 *
 * Each try has a socket of its own, connected to the server, whose port the kernel chooses at random, and an ID of its
 * own at random; the host's ID is put back into the answer. What comes from elsewhere the kernel drops; what has another
 * ID or question is counted and dropped, and after NAMES_WRONG_MAX of them the server is asked over TCP, which cannot be
 * guessed (RFC 5452). A truncated answer is asked for again over TCP. A server that is silent, cannot be reached or does
 * not serve us is left for the next; each is asked so often (attempts), and then the host gets ETIMEDOUT or EHOSTUNREACH.
 *
 * The frame credit of a query goes back at once: a silent server must not keep the host's other messages from leaving.
 * What bounds lookups is their number, for each channel (NAMES_MAX) and each tenant (XTS_USE_LOOKUPS), and what each
 * takes is charged to the tenant. An answer is state of the lookup until a frame credit is there to send it. A lookup
 * ends with its channel's epoch.
 */
#ifndef XTS_NAMES_H
#define XTS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "worker.h"

#define NAMES_MAX 128u      /* lookups under way, of one channel */
#define NAMES_WRONG_MAX 16u /* answers that are none, in one try */

struct channel;
struct watch;

/* Of a channel. */
struct names {
	struct list lookups;
	struct list noted;    /* of them: something has happened, and waits for its turn */
	struct list answered; /* of them: to be told to the host */
	uint32_t count;
};

void names_init(struct names *names);
/* The socket of a lookup has an event. */
void names_event(struct watch *watch);
/* Carries out what was noted, some of it at least, until the turn is over. True: there was some. */
bool names_turn(struct channel *ch);
/* Sends answers while there are frame credits; true when any was sent. */
bool names_send(struct channel *ch);
/* Ends one of the lookups; false: there is none. */
bool names_end_one(struct channel *ch);

/* May the tenant look up the name of this query? */
bool names_allowed(const struct xts_names_config *config, uint32_t tenant, const uint8_t *query);

#endif
