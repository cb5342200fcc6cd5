/*
 * Name lookups: the proxy sends queries of hosts to the device's name servers.
 *
 * Theory of operation
 *
 * A host sends a DNS query in a message (QUERY_NAME) and gets the answer of a name server in another (NAME_ACK). The
 * host chooses neither the server nor the addresses and ports of the query: the operator names the servers ([names] in
 * the configuration), so that hosts need no permission to reach them, and can reach nothing else there in this way. One
 * query gets one answer, which goes to the host that has asked.
 *
 * Each try has its own socket, connected to the server, with a random port chosen by the kernel, and its own random ID;
 * the host's ID is put back into the answer. The kernel drops datagrams from other addresses. Those with another ID or
 * question are counted and dropped, and after NAMES_WRONG_MAX of them the server is asked over TCP, which an attacker
 * cannot guess into (RFC 5452). If an answer is truncated, the server is asked again over TCP. If a server is silent,
 * cannot be reached or does not serve us, the next one is asked. Each is asked `attempts` times; then the host gets
 * ETIMEDOUT or EHOSTUNREACH.
 *
 * The frame credit of a query is returned at once: a silent server must not hold up the host's other messages. The
 * number of lookups is limited instead, for each channel (NAMES_MAX) and each tenant (XTS_USE_LOOKUPS), and their
 * memory is charged to the tenant. An answer is kept in the lookup until there is a frame credit to send it. A lookup
 * ends with its channel's epoch.
 */
#ifndef XTS_NAMES_H
#define XTS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/list.h"
#include "worker/worker.h"

#define NAMES_MAX 128u      /* lookups of one channel at the same time */
#define NAMES_WRONG_MAX 16u /* datagrams in one try that are not the answer */

struct channel;
struct watch;

/* The lookups of a channel. */
struct names {
	struct list lookups;
	struct list noted;    /* lookups with events that wait for a turn */
	struct list answered; /* lookups whose answer has to be sent to the host */
	uint32_t count;
};

/* The socket of a lookup has an event. */
void names_event(struct watch *watch);
/* Handles noted events, at least some of them, until the turn is over. True: there were some. */
bool names_turn(struct channel *ch);
/* Sends answers while there are frame credits; true when any was sent. */
bool names_send(struct channel *ch);
/* Ends one of the lookups; false: there is none. */
bool names_end_one(struct channel *ch);

/* May the tenant look up the name of this query? */
bool names_allowed(const struct xts_names_config *config, uint32_t tenant, const uint8_t *query);

#endif
