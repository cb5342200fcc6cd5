/* Frames that are received again when the process that had them has died; see replay.h. */
#include "turns/replay.h"

#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "processes/move.h"
#include "processes/parked.h"

/* With the lock held. */
static void drop(struct parked *p)
{
	tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, p->tcp.out.spill.bytes);
	spill_free(&p->tcp.out.spill);
}

static void drop_all(struct channel *ch)
{
	registry_lock();
	for (struct list *node = ch->returning.next; node != &ch->returning; node = node->next)
		drop(list_entry(node, struct parked, returning));
	registry_unlock();
}

static void keep(struct channel *ch, uint32_t proxy_id, const struct iovec *iov, int pieces, uint32_t bytes)
{
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(ch->tenant, move_key(ch->moved_ticket, proxy_id), KEYED_PARKED));
	if (p && p->moved && p->state == CONNECTION_ESTABLISHED) {
		if (!tenant_take(p->keyed.tenant, XTS_USE_KEPT_BYTES, bytes))
			drop(p);
		else if (spill_append(&p->tcp.out.spill, iov, pieces, 0)) {
			tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, bytes);
			drop(p);
		}
	}
	registry_unlock();
}

void replay_take(struct channel *ch, const struct xts_head *head, const struct xts_rx_frame *frame, bool follows)
{
	struct batch_entry e = { .frame = *frame, .skip = XTS_SEND_BYTES };
	struct iovec iov[XTS_SEGMENTS_MAX];
	struct xts_send m;

	if (!follows || head->type == XTS_LINK_PART || head->type == XTS_LINK_BUNDLE)
		drop_all(ch);
	if (head->type != XTS_CMD_SEND)
		return;
	if (xts_send_decode(&m, frame->segment[0].iov_base, frame->bytes) || m.length != frame->bytes - XTS_SEND_BYTES) {
		drop_all(ch);
		return;
	}
	if (!m.length)
		return;
	e.bytes = m.length;
	keep(ch, head->id, iov, batch_pieces(&e, iov, XTS_SEGMENTS_MAX), m.length);
}
