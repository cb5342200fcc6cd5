/* Bytes that the last host of a connection has not read, and gives back after parking it (RETURN; parked.h). */
#include <sys/uio.h>

#include "processes/parked.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "wire/wire.h"

static struct ulp_mark mark_of(const struct xts_return *m, bool more)
{
	struct ulp_mark mark = { .pdu = m->kind == 2 };

	if (!mark.pdu)
		return mark;
	mark.more = more;
	mark.control_bytes = (uint8_t)m->control_bytes;
	mark.control_type = m->control_type;
	mark.record_bytes = m->record_bytes;
	xts_put64(mark.control, m->control_high);
	xts_put64(mark.control + 8, m->control_low);
	return mark;
}

static void all_is_returned(struct parked *p)
{
	list_remove(&p->returning);
	p->returner = NULL;
	returned_join(&p->coming, &p->tcp.returned);
	p->tcp.returned = p->coming;
	p->coming = (struct returned){ 0 };
}

/* Only PDUs may be empty, and only connections with protocols on the receive side have PDUs. */
static bool is_possible(const struct parked *p, const struct xts_return *m)
{
	if (m->kind == 2)
		return p->tcp.pushed && ulp_stack_receives(p->tcp.pushed->stack) && m->length <= p->may_return;
	return m->length <= p->may_return && (m->kind ? m->length > 0 : !m->length);
}

bool parked_return(struct channel *ch, const struct xts_return *m, bool more, const struct batch_entry *e)
{
	struct ulp_mark mark = mark_of(m, more);
	struct iovec iov[XTS_SEGMENTS_MAX];
	struct parked *p;
	bool possible;

	registry_lock();
	p = parked_of(registry_find(ch->tenant, m->key, KEYED_PARKED));
	possible = p && p->returner == ch && is_possible(p, m);
	if (possible && !m->kind) {
		all_is_returned(p);
	} else if (possible) {
		p->may_return -= m->length;
		if (returned_add(&p->coming, p->keyed.tenant, &mark, iov, batch_pieces(e, iov, XTS_SEGMENTS_MAX),
				 m->length)) {
			ch->worker->stats.refused_limit++;
			parked_end(&p->keyed); /* without these bytes the stream would have a gap */
		}
	}
	registry_unlock();
	return possible;
}

bool parked_is_returned(struct channel *ch)
{
	bool any = false;

	registry_lock();
	for (struct list *node = ch->returning.next; node != &ch->returning && !any; node = node->next)
		any = list_entry(node, struct parked, returning)->returner;
	registry_unlock();
	return any;
}

void parked_is_left(struct parked *p)
{
	if (p->coming.last) {
		parked_end(&p->keyed);
		return;
	}
	list_remove(&p->returning);
	p->returner = NULL;
	p->died = true;
}
