/* The checks that each request is answered exactly once, in builds with XTS_DEBUG. tickets.h has the theory. */
#include "channel/tickets.h"

#ifdef XTS_DEBUG

#include <stdio.h>
#include <stdlib.h>

#include "channel/channel.h"
#include "connection/socket_kind.h"

enum { TICKET_NONE, TICKET_CONNECT, TICKET_CLOSE };

static _Noreturn void broken(const char *what, const char *whose, uint32_t id)
{
	fprintf(stderr, "xts: ticket of %s %u: %s\n", whose, id, what);
	abort();
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

void tickets_call_begins(struct channel *ch)
{
	ch->replies_made = 0;
}

void tickets_replied(struct channel *ch)
{
	ch->replies_made++;
}

static bool goes_on_later(const struct channel *ch)
{
	return ch->continuation.replies_later;
}

void tickets_call_ends(const struct channel *ch, uint8_t type, enum command_result result)
{
	uint32_t wanted = result == COMMAND_REPLIES && !goes_on_later(ch) ? 1 : 0;

	if (ch->link.state == XTS_LINK_UP && ch->epoch_live && ch->replies_made != wanted)
		broken(wanted ? "no reply, or several" : "a reply that nobody waits for", xts_type_name(type),
		       ch->queue_id);
}

void tickets_call_goes_on(const struct channel *ch, uint8_t type, bool replied)
{
	if (ch->replies_made != (replied ? 1 : 0))
		broken("it went on, and has no reply, or several", xts_type_name(type), ch->queue_id);
}

/* --- connections -------------------------------------------------------------------------------------------------- */

void ticket_for_connect(struct connection *c)
{
	if (c->ticket != TICKET_NONE)
		broken("CONNECT is accepted while another request waits", "connection", c->proxy_id);
	c->ticket = TICKET_CONNECT;
}

void ticket_for_close(struct connection *c)
{
	c->ticket = TICKET_CLOSE; /* also for a CONNECT that was not answered yet */
}

static void answered(struct connection *c, uint8_t ticket)
{
	if (c->ticket != ticket)
		broken(c->ticket ? "it is for another request" : "an answer that nobody waits for", "connection",
		       c->proxy_id);
	c->ticket = TICKET_NONE;
}

void ticket_connect_answered(struct connection *c)
{
	answered(c, TICKET_CONNECT);
}

void ticket_close_answered(struct connection *c)
{
	answered(c, TICKET_CLOSE);
}

/* Does a host wait for its requests? Not when their epoch has ended, which takes a while for many connections; the next
 * one may have begun by then. */
static bool has_requester(const struct connection *c)
{
	return c->channel && c->channel->epoch_live && !c->channel->ending;
}

/* Is there what will answer CONNECT? */
static bool connect_will_be_answered(const struct connection *c)
{
	return c->state == CONNECTION_CONNECTING ? !c->tcp.error : c->connect_reply;
}

static bool close_will_be_answered(const struct connection *c)
{
	return c->close_reply || kind_of(c)->close_goes_on(c);
}

void ticket_check(const struct connection *c)
{
	if (c->state == CONNECTION_FREED || !has_requester(c))
		return;
	if ((c->connect_reply || c->close_reply) && list_empty(&c->ready))
		broken("it has an answer to send, and no turn to send it", "connection", c->proxy_id);
	if (c->ticket == TICKET_CONNECT && !connect_will_be_answered(c))
		broken("nothing will answer its CONNECT", "connection", c->proxy_id);
	if (c->ticket == TICKET_CLOSE && !close_will_be_answered(c))
		broken("nothing will answer its CLOSE", "connection", c->proxy_id);
}

void ticket_end(const struct connection *c)
{
	if (c->ticket != TICKET_NONE && has_requester(c))
		broken("it is freed before its request is answered", "connection", c->proxy_id);
}

#endif
