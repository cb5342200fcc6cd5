/* Questions of the host to the proxy: what its clock says, and whether all that had come for the host before the
 * question has been sent (CATCH_UP). link.h has the theory of operation. */
#include "link/link_inside.h"

/* --- clock -------------------------------------------------------------------------------------------------------- */

void xts_link_ask_clock(struct xts_link *link)
{
	if (link->config.role == XTS_LINK_HOST && link->config.clock && link->state == XTS_LINK_UP &&
	    link->features & XTS_FEATURE_STAMPS)
		link->due |= DUE_CLOCK;
}

/* CLOCK: the answer's time is written when the answer leaves. */
enum xts_link_verdict link_receive_clock(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_clock clock;

	if (xts_clock_decode(&clock, frame, bytes))
		return link_violation(link, &link->stats.malformed, "a malformed CLOCK");
	if (link->config.clock) {
		link->clock_token = clock.token;
		link->due |= DUE_CLOCK_ACK;
	}
	return XTS_LINK_CONSUMED;
}

enum xts_link_verdict link_receive_clock_ack(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_clock_ack ack;

	if (xts_clock_ack_decode(&ack, frame, bytes))
		return link_violation(link, &link->stats.malformed, "a malformed CLOCK_ACK");
	if (link->config.clock && link->clock_token && ack.token == link->clock_token) {
		link->clock_token = 0;
		link->config.clock(link->config.clock_context, &ack);
	}
	return XTS_LINK_CONSUMED;
}

/* --- catch-up ----------------------------------------------------------------------------------------------------- */

bool xts_link_catch_up(struct xts_link *link)
{
	if (link->config.role != XTS_LINK_HOST || link->state != XTS_LINK_UP ||
	    !(link->features & XTS_FEATURE_CATCH_UP) || link->catch_up_token)
		return false;
	link->catch_up_token = ++link->catch_ups;
	link->due |= DUE_CATCH_UP;
	return true;
}

/* CATCH_UP, at a proxy that has it in force. A request replaces an earlier one that is not answered yet, so a host that
 * sends many gets one answer. */
enum xts_link_verdict link_receive_catch_up(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_catch_up m;

	if (xts_catch_up_decode(&m, frame, bytes) || !m.token || !(link->features & XTS_FEATURE_CATCH_UP))
		return link_violation(link, &link->stats.malformed, "a malformed CATCH_UP");
	link->catch_up_token = m.token;
	link->catch_up_new = true;
	link->due &= (uint16_t)~DUE_CAUGHT_UP;
	return XTS_LINK_CONSUMED;
}

/* Only the answer to the request that is open counts. */
enum xts_link_verdict link_receive_caught_up(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_caught_up m;

	if (xts_caught_up_decode(&m, frame, bytes))
		return link_violation(link, &link->stats.malformed, "a malformed CAUGHT_UP");
	if (link->catch_up_token && m.token == link->catch_up_token)
		link->catch_up_token = 0;
	return XTS_LINK_CONSUMED;
}

bool xts_link_catching_up(const struct xts_link *link)
{
	return link->state == XTS_LINK_UP && link->catch_up_token && !(link->due & DUE_CAUGHT_UP);
}

bool xts_link_catch_up_begins(struct xts_link *link)
{
	bool begins = xts_link_catching_up(link) && link->catch_up_new;

	link->catch_up_new = false;
	return begins;
}

void xts_link_caught_up(struct xts_link *link)
{
	if (xts_link_catching_up(link))
		link->due |= DUE_CAUGHT_UP;
}
