/* What both kinds of receive callbacks have in common: see core/receive_callback.h. */
#include <stdlib.h>

#include "core/address.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "common/own_memory.h"

static _Thread_local const struct stack *asking;

bool callback_is_asking(const struct stack *st)
{
	return asking == st;
}

const struct stack *callback_stack(void)
{
	return asking;
}

int callback_make(struct xts_sock *s)
{
	if (!s->callback)
		s->callback = calloc(1, sizeof *s->callback);
	return s->callback ? 0 : -ENOMEM;
}

void callback_free(struct xts_sock *s)
{
	xts_release(s->callback);
	s->callback = NULL;
}

void callback_dropped(struct xts_sock *s)
{
	struct receive_callback *c = s->callback;

	if (!c)
		return;
	c->decided = false;
	c->asked = NULL;
	c->drops++;
	c->held = 0;
}

struct offered *offered_make(uint32_t bytes)
{
	struct offered *p = malloc(sizeof *p + bytes);

	if (p)
		p->room = bytes;
	return p;
}

void offered_free(struct offered *p)
{
	free(p);
}

void offered_address(struct xts_sock *s, struct offered *p, const struct xts_endpoint *from)
{
	p->packet.address = (const struct sockaddr *)&p->address;
	p->packet.address_bytes = address_bytes(s->family, from, &p->address, sizeof p->address);
	p->packet.s = (int)s->id;
}

enum xts_packet_verdict callback_ask(struct xts_sock *s, const struct offered *p)
{
	struct receive_callback *c = s->callback;
	enum xts_packet_verdict verdict;

	if (!callback_has_function(s))
		return XTS_PACKET_RECV; /* the callback was removed meanwhile */
	asking = s->stack;
	verdict = c->function(&p->packet, c->context);
	asking = NULL;
	return verdict;
}

void callback_hold(struct xts_sock *s, struct offered *p)
{
	p->drops = s->callback->drops;
	s->callback->held += p->credits;
}
