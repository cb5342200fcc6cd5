/* Frames that are received again when the process that had them has died; see replay.h. */
#include "turns/replay.h"

#include <errno.h>

#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "processes/held_arrived.h"
#include "processes/move.h"
#include "processes/parked.h"
#include "pushed/pushed_kept.h"
#include "relay/mux.h"

/* With the lock held. */
static void drop(struct parked *p)
{
	p->heard.torn = true;
	tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, p->tcp.out.spill.bytes);
	outgoing_free(&p->tcp.out);
	if (p->heard.settled)
		p->tcp.fin_wanted = false;
}

/* Of one host, all that waits for it. */
static void drop_all(struct channel *ch, uint64_t ticket)
{
	registry_lock();
	for (struct list *node = ch->returning.next; node != &ch->returning; node = node->next) {
		struct parked *p = list_entry(node, struct parked, returning);

		if ((p->keyed.key ^ ticket) >> 32 == 0)
			drop(p);
	}
	registry_unlock();
}

/* Whose frames these are. */
struct of_host {
	struct channel *ch; /* that has what waits for it */
	struct xts_tenant *tenant;
	uint64_t ticket;
	struct heard_frames *heard;
};

/* With the lock held. */
static void append(struct parked *p, const struct iovec *iov, int pieces, uint32_t bytes)
{
	uint32_t number = p->heard.settled ? (uint32_t)p->tcp.out.sent_bytes + p->tcp.out.spill.bytes : 0;

	if (!tenant_take(p->keyed.tenant, XTS_USE_KEPT_BYTES, bytes)) {
		drop(p);
	} else if (spill_append(&p->tcp.out.spill, iov, pieces, number)) {
		tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, bytes);
		drop(p);
	}
}

/* For protocols, which have taken all that was counted before. With the lock held. */
static void append_run(struct parked *p, const struct run *r, const struct iovec *iov, int pieces)
{
	pushed_tears(p->tcp.pushed); /* this frame may be given back now */
	if (!tenant_take(p->keyed.tenant, XTS_USE_KEPT_BYTES, r->bytes)) {
		drop(p);
	} else if (outgoing_append(&p->tcp.out, r, iov, pieces)) {
		tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, r->bytes);
		drop(p);
	}
}

/* What a message of data says. */
struct message {
	struct run run;
	const struct xts_send_pdu *pdu; /* NULL: bytes of a stream */
};

static bool is_wrong(struct parked *p, const struct message *m)
{
	return m->pdu ? pushed_check_pdu(p->tcp.pushed, m->pdu, m->run.mark.more) != NULL : p->tcp.pushed->pdu_open;
}

static void keep(const struct of_host *h, const struct xts_head *head, const struct message *m, const struct iovec *iov,
		 int pieces)
{
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(h->tenant, move_key(h->ticket, head->id), KEYED_PARKED));
	if (p && p->moved && p->state == CONNECTION_ESTABLISHED) {
		bool is_new = heard_more(p, h->heard, m->run.bytes, head->flags);

		if (m->pdu && !p->heard.kept)
			drop(p);
		else if (!p->heard.kept && m->run.bytes)
			append(p, iov, pieces, m->run.bytes);
		else if (p->heard.kept && is_new && (m->pdu || m->run.bytes) && is_wrong(p, m))
			drop(p);
		else if (p->heard.kept && is_new && (m->pdu || m->run.bytes))
			append_run(p, &m->run, iov, pieces);
		if (p->heard.settled)
			heard_again(p);
	}
	registry_unlock();
}

/* Who has ended says no more that nobody else has a connection. */
static void name(const struct of_host *h, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	struct xts_share m;
	struct parked *p;

	if (xts_share_decode(&m, frame->segment[0].iov_base, frame->bytes))
		return;
	registry_lock();
	p = parked_of(registry_find(h->tenant, move_key(h->ticket, head->id), KEYED_PARKED));
	if (p && p->moved && p->state == CONNECTION_ESTABLISHED)
		held_is_told(p, m.key, m.keep_ms);
	registry_unlock();
}

static void take_pdu(const struct of_host *h, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	struct batch_entry e = { .frame = *frame, .skip = XTS_SEND_PDU_BYTES };
	struct iovec iov[XTS_SEGMENTS_MAX];
	struct message of = { 0 };
	struct xts_send_pdu m;

	if (xts_send_pdu_decode(&m, frame->segment[0].iov_base, frame->bytes)) {
		drop_all(h->ch, h->ticket);
		return;
	}
	e.bytes = of.run.bytes = m.length;
	of.pdu = &m;
	pushed_mark_of(&of.run.mark, &m, head->flags & XTS_FLAG_MORE);
	keep(h, head, &of, iov, batch_pieces(&e, iov, XTS_SEGMENTS_MAX));
}

static void take(const struct of_host *h, const struct xts_head *head, const struct xts_rx_frame *frame, bool follows)
{
	struct batch_entry e = { .frame = *frame, .skip = XTS_SEND_BYTES };
	struct iovec iov[XTS_SEGMENTS_MAX];
	struct message of = { 0 };
	struct xts_send m;

	if (!heard_frame(h->heard, head, follows) || head->type == XTS_LINK_PART || head->type == XTS_LINK_BUNDLE)
		drop_all(h->ch, h->ticket);
	if (head->type == XTS_CMD_SHARE)
		name(h, head, frame);
	if (head->type == XTS_CMD_SEND_PDU)
		take_pdu(h, head, frame);
	if (head->type != XTS_CMD_SEND)
		return;
	if (xts_send_decode(&m, frame->segment[0].iov_base, frame->bytes) || m.length != frame->bytes - XTS_SEND_BYTES) {
		drop_all(h->ch, h->ticket);
		return;
	}
	e.bytes = of.run.bytes = m.length;
	keep(h, head, &of, iov, batch_pieces(&e, iov, XTS_SEGMENTS_MAX));
}

/* --- behind a relay ----------------------------------------------------------------------------------------------- */

static void take_inner(struct channel *trunk, struct move_replayed *of, const struct xts_rx_frame *frame)
{
	const struct of_host h = { .ch = trunk, .tenant = of->tenant, .ticket = of->ticket, .heard = &of->heard };
	const void *first = frame->segment[0].iov_base;
	struct xts_goodbye goodbye;
	struct xts_head head;

	if (xts_head_decode(&head, first, frame->segment[0].iov_len) || !xts_type_to_proxy(head.type))
		return;
	if (head.type != XTS_LINK_GOODBYE)
		take(&h, &head, frame, xts_link_replay_follows(&of->replay, &head));
	else if (!xts_goodbye_decode(&goodbye, first, frame->segment[0].iov_len) && goodbye.epoch == of->epoch &&
		 !of->ended)
		of->ended = head.error ? head.error : ESHUTDOWN;
}

static void take_carried(struct channel *trunk, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	struct move_replayed *of = move_expected_replayed(trunk, head->id);
	struct xts_rx_frame inner;

	if (of && !xts_mux_inner(&inner, frame))
		take_inner(trunk, of, &inner);
}

void replay_take(struct channel *ch, const struct xts_head *head, const struct xts_rx_frame *frame, bool follows)
{
	const struct of_host h = { .ch = ch, .tenant = ch->tenant, .ticket = ch->moved_ticket, .heard = &ch->heard };

	if (head->type != XTS_RELAY_CARRIED) {
		take(&h, head, frame, follows);
		return;
	}
	take_carried(ch, head, frame);
}

void replay_ends(struct channel *ch)
{
	if (!ch->heard.over)
		heard_deliver(ch);
	ch->heard.over = true;
	xts_link_replay_ends(&ch->link);
}
