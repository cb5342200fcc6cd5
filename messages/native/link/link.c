/* The link state machine: frames that come and go in an epoch. link.h has the theory of operation. */
#include "link/link_inside.h"

/* --- receiving ---------------------------------------------------------------------------------------------------- */

/* The link's own frames on an open link, but those that end it. */
static enum xts_link_verdict receive_control(struct xts_link *link, const struct xts_head *head, const void *frame,
					     size_t bytes)
{
	struct xts_ping ping;
	struct xts_pong pong;

	switch (head->type) {
	case XTS_LINK_FRAME_ACK:
		link->stats.received_acks++;
		return XTS_LINK_CONSUMED;
	case XTS_LINK_PING:
		if (xts_ping_decode(&ping, frame, bytes))
			return link_violation(link, &link->stats.malformed, "a malformed PING");
		link->pong_token = ping.token;
		link->due |= DUE_PONG;
		return XTS_LINK_CONSUMED;
	case XTS_LINK_PONG:
		/* Any frame shows that the peer is alive, so a PONG with an old token is as good. */
		if (xts_pong_decode(&pong, frame, bytes))
			return link_violation(link, &link->stats.malformed, "a malformed PONG");
		return XTS_LINK_CONSUMED;
	case XTS_LINK_CLOCK:
		return link_receive_clock(link, frame, bytes);
	case XTS_LINK_CLOCK_ACK:
		return link_receive_clock_ack(link, frame, bytes);
	case XTS_LINK_CATCH_UP:
		return link_receive_catch_up(link, frame, bytes);
	case XTS_LINK_CAUGHT_UP:
		return link_receive_caught_up(link, frame, bytes);
	default:
		link->stats.malformed++; /* a control type of a later version, which can be ignored */
		return XTS_LINK_DROPPED;
	}
}

/* One for a group is for the bridge that is between. */
static bool is_foreign(const struct xts_link *link, const uint8_t *frame)
{
	return frame[0] & 1 || memcmp(frame + 6, link->config.peer_mac, 6) ||
	       xts_get16(frame + 12) != link->config.ethertype;
}

/* A frame has come, and this proxy has had no epoch so far: it is of an epoch of the proxy before, whose end the host
 * has not noticed. GOODBYE with epoch 0 tells it. Frames arrive in order, so a host whose new epoch is up has this
 * answer behind it. */
static void tell_of_restart(struct xts_link *link)
{
	if (link->replaced_said)
		link->due |= DUE_REPLACED;
	if (link->config.role != XTS_LINK_PROXY || link->epoch)
		return;
	link->goodbye_epoch = 0;
	link->goodbye_error = ENOTCONN;
	link->due |= DUE_GOODBYE;
}

/* A frame has come that nobody carries out. MOVE_ACK may cross the end of its epoch, and says nothing then. */
static void count_early(struct xts_link *link, uint8_t type)
{
	link->stats.dropped_early++;
	link->lost_early |= (xts_type_sequenced(type) && type != XTS_CMD_MOVE_ACK) || type == XTS_LINK_PART;
}

/* A frame that was sent to the process which has died. */
static enum xts_link_verdict replay(struct xts_link *link, const struct xts_head *head)
{
	link->replay_follows = xts_link_replay_follows(&link->replay, head);
	return XTS_LINK_REPLAYED;
}

enum xts_link_verdict xts_link_receive(struct xts_link *link, const void *head, size_t head_bytes, size_t frame_bytes,
				       uint64_t now_ns, struct xts_head *out)
{
	bool right_way;
	size_t fixed;

	if (head_bytes > frame_bytes)
		head_bytes = frame_bytes;
	if (xts_head_decode(out, head, head_bytes)) {
		link->stats.malformed++;
		return XTS_LINK_DROPPED;
	}
	if (is_foreign(link, head)) {
		link->stats.dropped_foreign++;
		return XTS_LINK_DROPPED;
	}
	right_way = link->config.role == XTS_LINK_HOST ? xts_type_to_host(out->type) : xts_type_to_proxy(out->type);
	fixed = xts_type_bytes(out->type);
	if (right_way && head_bytes >= fixed &&
	    (out->type == XTS_LINK_TOKEN || out->type == XTS_LINK_HELLO || out->type == XTS_LINK_HELLO_ACK ||
	     out->type == XTS_LINK_GOODBYE || out->type == XTS_LINK_REPLACED)) {
		link->heard_ns = now_ns;
		return link_receive_epoch(link, out, head, head_bytes);
	}
	if (right_way && head_bytes >= fixed && out->type == XTS_LINK_OVER)
		return XTS_LINK_SAID; /* not the process's: it does not show that this lives */
	if (out->type == XTS_LINK_PROBE) {
		/* Of an agent, for an XDP program that is not told of addresses here. */
		link->stats.dropped_foreign++;
		return XTS_LINK_DROPPED;
	}
	if (link->state != XTS_LINK_UP) {
		count_early(link, out->type);
		tell_of_restart(link);
		return link->replaced_ticket && right_way ? replay(link, out) : XTS_LINK_DROPPED;
	}
	link->heard_ns = now_ns;
	link->pinged_ns = 0;
	if (!fixed && !xts_type_sequenced(out->type))
		return receive_control(link, out, head, head_bytes);
	if (!fixed || !right_way || head_bytes < fixed)
		return link_violation(link, &link->stats.malformed,
				      "an unknown or short message, or one of the other direction");
	if (out->seqno != link->received)
		return link_violation(link, &link->stats.sequence_errors, "a message out of order");
	if (!link_take_ack(link, out->frame_ack))
		return link_violation(link, &link->stats.credit_errors, "an acknowledgement of what was never sent");
	if (!xts_type_sequenced(out->type))
		return receive_control(link, out, head, head_bytes);
	if (link_unrecycled(link) >= link->frame_window)
		return link_violation(link, &link->stats.credit_errors, "more messages than the window");
	link->received++;
	link->traffic = true;
	link->stats.received_frames++;
	return XTS_LINK_DELIVER;
}

void xts_link_recycled(struct xts_link *link)
{
	if (link->state == XTS_LINK_UP && link_unrecycled(link))
		link->recycled++;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

unsigned xts_link_credits(const struct xts_link *link)
{
	if (link->state != XTS_LINK_UP || (link->due & DUE_HELLO_ACK))
		return 0; /* nothing may be sent before the HELLO_ACK: the peer would drop it */
	return (unsigned)link->frame_window - link_in_flight(link);
}

unsigned xts_link_peer_credits(const struct xts_link *link)
{
	return (unsigned)link->frame_window - (uint8_t)(link->received - link->acked_to_peer);
}

unsigned xts_link_unacknowledged(const struct xts_link *link)
{
	return link_in_flight(link);
}

void link_fill_ethernet(const struct xts_link *link, uint8_t *frame)
{
	memcpy(frame, link->config.peer_mac, 6);
	memcpy(frame + 6, link->config.local_mac, 6);
	xts_put16(frame + 12, link->config.ethertype);
	xts_put8(frame + 15, link->sent);
	xts_put8(frame + 16, link->recycled);
}

void xts_link_seal(struct xts_link *link, void *frame)
{
	link_fill_ethernet(link, frame);
	link->acked_to_peer = link->recycled;
	link->sent++;
	link->stats.sent_frames++;
}
