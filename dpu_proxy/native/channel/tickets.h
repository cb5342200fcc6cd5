/*
 * Tickets: each request of a host is answered, or handed on, exactly once.
 *
 * Theory of operation. A host waits for the answer to each request, for ever if need be. So a request must not be lost
 * on a path that is seldom taken, where memory has run out, for example. Builds with XTS_DEBUG check that:
 *
 * - A call is answered by a reply (command_reply()) while it is carried out, or the channel goes on with it in later
 *   turns (continuation.h) and replies then.
 * - CONNECT and CLOSE are answered from the state of the connection. From the moment that one is accepted, the
 *   connection has a ticket for it. Whenever work on the connection is done for the moment, something has to be there
 *   that will answer: TCP or a handshake in progress, or the mark that the answer is to be sent, with the connection on
 *   the ready list. CLOSE takes over the ticket of a CONNECT, and the end of an epoch ends all tickets.
 * - A query for a name is answered from its lookup, which is freed with the answer or with the epoch (names/names.c).
 *
 * What does not hold ends the build with a message. The stress runs and .ci/run's sanitized tests use such a build.
 */
#ifndef XTS_TICKETS_H
#define XTS_TICKETS_H

#include "turns/command_dispatch.h"
#include "connection/connection.h"

#ifdef XTS_DEBUG

/* A message is about to be carried out, or a channel goes on with one. */
void tickets_call_begins(struct channel *ch);
/* It was carried out, with this result. */
void tickets_call_ends(const struct channel *ch, uint8_t type, enum command_result result);
/* A message that was accepted in an earlier turn was gone on with; `replied`: it ends with a reply now. */
void tickets_call_goes_on(const struct channel *ch, uint8_t type, bool replied);
/* A reply is queued. */
void tickets_replied(struct channel *ch);
/* CONNECT or CLOSE is accepted: it will be answered from the state of the connection. */
void ticket_for_connect(struct connection *c);
void ticket_for_close(struct connection *c);
/* CONNECT_ACK or CLOSED leaves. */
void ticket_connect_answered(struct connection *c);
void ticket_close_answered(struct connection *c);
/* Work on the connection is done for the moment. */
void ticket_check(const struct connection *c);
/* It is freed. */
void ticket_end(const struct connection *c);

#else

#define tickets_call_begins(ch) ((void)(ch))
#define tickets_call_ends(ch, type, result) ((void)(ch), (void)(result))
#define tickets_call_goes_on(ch, type, replied) ((void)(ch), (void)(replied))
#define tickets_replied(ch) ((void)(ch))
#define ticket_for_connect(c) ((void)(c))
#define ticket_for_close(c) ((void)(c))
#define ticket_connect_answered(c) ((void)(c))
#define ticket_close_answered(c) ((void)(c))
#define ticket_check(c) ((void)(c))
#define ticket_end(c) ((void)(c))

#endif

#endif
