/* The program's side of receive callbacks: core/receive_callback.h. */
#include <sys/epoll.h>

#include "core/channel.h"
#include "core/error.h"
#include "core/receive_callback.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "ulps/pdu.h"
#include "waiting/mirror.h"
#include "xts.h"
#include "xts_private.h"

/* function NULL: no callback, or the reader is asked. */
static int set_callback(struct xts_sock *s, xts_recv_callback function, void *context, bool of_reader)
{
	int r;

	if (!s)
		return -EBADF;
	if (!kind_of(s)->has_packets && !s->seqpacket) {
		last_error_note(EOPNOTSUPP, "a receive callback is asked about datagrams and PDUs, and this is a stream");
		return -EOPNOTSUPP;
	}
	r = callback_make(s);
	if (r)
		return r;
	s->callback->function = function;
	s->callback->context = context;
	s->callback->of_reader = of_reader;
	if (!of_reader && !s->callback->asked)
		s->callback->decided = false;
	return 0;
}

static int set_by_number(int number, xts_recv_callback function, void *context, bool of_reader)
{
	struct stack *st = stack_enter_of(number);
	int r = set_callback(table_use(st, number), function, context, of_reader);

	stack_leave(st);
	return finish_of(number, r);
}

int xts_register_recv_callback(int number, xts_recv_callback callback, void *context)
{
	return set_by_number(number, callback, context, false);
}

int xts_ask_reader(int number, bool on)
{
	return set_by_number(number, NULL, NULL, on);
}

/* --- packets that the program holds ------------------------------------------------------------------------------- */

static void give_back(struct stack *st, struct offered *p)
{
	struct xts_sock *s = p->credits ? table_open(st, p->packet.s) : NULL;

	if (s && s->callback && s->callback->drops == p->drops) {
		s->callback->held -= p->credits;
		kind_of(s)->packet_give_back(s, p->credits);
	}
	p->credits = 0;
}

/* Frees its credits. */
static void give_back_packet(struct offered *p)
{
	struct stack *st = table_stack(p->packet.s);
	const struct stack *asking = callback_stack();

	if (asking && (!st || st == asking)) { /* inside a callback, where this thread has the lock */
		give_back((struct stack *)(uintptr_t)asking, p);
		return;
	}
	st = stack_enter_of(p->packet.s);
	give_back(st, p);
	stack_leave(st);
}

void xts_packet_release(const struct xts_packet *packet)
{
	struct offered *p = (struct offered *)(uintptr_t)packet; /* packet is its first member */

	if (p->credits)
		give_back_packet(p);
}

void xts_packet_free(const struct xts_packet *packet)
{
	if (!packet)
		return;
	xts_packet_release(packet);
	offered_free((struct offered *)(uintptr_t)packet);
}

/* --- asking the reader -------------------------------------------------------------------------------------------- */

static int undecided(struct xts_sock *s, const struct xts_packet **out)
{
	struct receive_callback *c;
	struct offered *p;

	if (!s)
		return -EBADF;
	c = s->callback;
	if (c && c->asked && pthread_equal(c->reader, pthread_self())) {
		*out = &c->asked->packet; /* asked before, but a signal has kept the thread from deciding */
		return 1;
	}
	if (!c || !c->of_reader || c->decided || c->asked)
		return 0;
	if (!kind_of(s)->packet_is_here(s))
		return 0;
	p = kind_of(s)->packet_offered(s);
	if (!p)
		return -ENOMEM;
	p->credits = 0; /* counted only once the program has the packet */
	c->asked = p;
	c->reader = pthread_self();
	*out = &p->packet;
	return 1;
}

int xts_packet_asks(int number, const struct xts_packet **out)
{
	struct stack *st = stack_enter_of(number);
	int r = undecided(table_use(st, number), out);

	stack_leave(st);
	return finish_of(number, r);
}

/* Removes the first packet from the queue. */
static void unqueue(struct xts_sock *s, struct offered *p, bool held)
{
	uint32_t credits = kind_of(s)->packet_take(s);

	if (held) {
		p->credits = credits;
		callback_hold(s, p);
		pdu_make_room(s);
	} else {
		kind_of(s)->packet_give_back(s, credits);
	}
	if (s->mirror)
		mirror_dirty(s);
}

void xts_packet_decided(const struct xts_packet *packet, enum xts_packet_verdict verdict)
{
	struct offered *p = (struct offered *)(uintptr_t)packet;
	struct stack *st = stack_enter_of(p->packet.s);
	struct xts_sock *s = table_open(st, p->packet.s);

	if (s && s->callback && s->callback->asked == p) {
		s->callback->asked = NULL;
		if (verdict == XTS_PACKET_RECV)
			s->callback->decided = true;
		else
			unqueue(s, p, verdict == XTS_PACKET_HOLD);
		/* other threads may have waited for this decision, and there may be more packets */
		socket_changed(s, EPOLLIN);
	}
	stack_leave(st);
}
