/*
 * Another process of the proxy takes the trunk over (PROTOCOL.md, "Upgrade").
 *
 * Theory of operation. Processes behind the relay have channels of their own, and hear MOVE themselves. When the proxy
 * has everything of theirs, it says MOVE on the trunk. MOVE_ACK is the relay's last message of this epoch: frames of
 * processes wait in their memory from then on. GOODBYE with ERESTART ends the epoch; before it the proxy has said
 * GOODBYE to each process. The trunk's link opens again in place, with the epoch that it has and without a token, and
 * the processes notice nothing of that. What of their frames was lost they see themselves: each GOODBYE says what has
 * come.
 *
 * When the proxy's process has died (PROTOCOL.md, "Crash"), REPLACED ends the epoch, at any moment. Frames arrive in
 * order, so all that it had sent to processes is here. What was sent to it the next process receives again. So there is
 * nothing else to do than to open the link again: the processes hear REPLACED themselves.
 */
#include <errno.h>

#include "relay/mux.h"
#include "relay/relay_inside.h"

#define REOPENING_MS 10000u /* to wait for the answer to HELLO: the next process is there, and may be slow */

void relay_moves(struct relay *r, const struct xts_rx_frame *frame)
{
	struct xts_move m;

	if (xts_move_decode(&m, frame->segment[0].iov_base, frame->segment[0].iov_len) || !m.ticket || r->move.ticket ||
	    !(r->link.features & XTS_FEATURE_MOVE_RELAYED))
		xts_link_fail(&r->link, EPROTO);
	else
		r->move.ticket = m.ticket;
}

static void answer(struct relay *r)
{
	struct xts_move_ack m = { .ticket = r->move.ticket };
	struct xts_tx_slot slot;

	if (!xts_link_credits(&r->link) || xts_queue_acquire(r->trunk, &slot)) {
		r->slot_missing |= xts_link_credits(&r->link) > 0;
		return;
	}
	xts_head_encode(slot.data, XTS_CMD_MOVE_ACK, 0, 0, 0);
	xts_move_ack_encode(slot.data, &m);
	xts_link_seal(&r->link, slot.data);
	xts_queue_submit(r->trunk, &slot, XTS_MOVE_ACK_BYTES);
	r->unkicked = r->move.acked = true;
}

/* All that has come for processes is theirs by now, so no frame of the last epoch is held. */
static void open_again(struct relay *r)
{
	struct xts_link_config config = r->link.config;
	uint64_t now_ns = r->now_ns;

	for (uint32_t i = 0; i < r->count; i++) {
		(void)relay_to_process(r->processes[i]);
		r->processes[i]->hello_of_before |= r->link.replaced_ticket != 0;
	}
	config.token_bytes = 0;
	config.features &= ~XTS_FEATURE_TOKEN;
	config.dead_ms = REOPENING_MS;
	xts_packets_end(&r->packets);
	r->move = (struct relay_move){ 0 };
	(void)xts_link_init(&r->link, &config, now_ns); /* as it was before, which it has accepted */
	xts_link_watch(&r->link, true, now_ns);
}

void relay_move_turn(struct relay *r)
{
	if (!r->move.ticket && !r->link.replaced_ticket)
		return;
	if (r->link.state == XTS_LINK_DOWN && r->link.error == ERESTART)
		open_again(r);
	else if (r->link.state == XTS_LINK_UP && r->move.ticket && !r->move.acked)
		answer(r);
}
