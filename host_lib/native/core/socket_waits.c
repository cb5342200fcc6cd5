/*
 * What a socket waits for (waits.h), as far as the host knows, for `xts status` and `xts top`.
 *
 * A wait to send lasts from a send that found no room until a sender would be told that there is room, whether a thread
 * sleeps meanwhile or the program tries again by itself. The reason of a wait to receive follows from what there is to
 * read and from which side has sent last, so one look after each change is enough.
 *
 * A look only compares; the clock is read when the reason has changed, which is up to three times in a round trip.
 *
 * The times are only on the status page, where they are shown: a socket whose channel has no page, or whose entry is
 * beyond the page's, has none. What it waits for is in the socket too, since others have the page and may write to it.
 */
#include "core/channel.h"
#include "core/clock.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "attaching/status.h"

/* The place where its waits are shown; NULL: nowhere, and they are not measured. */
static struct xts_status_waits *shown(const struct xts_sock *s)
{
	struct xts_status_waits *waits = s->stack->channel ? s->stack->channel->attachment.waits : NULL;
	uint32_t index = table_place(s);

	return waits && index < XTS_STATUS_ENTRIES ? &waits[index] : NULL;
}

static void begin(struct xts_sock *s, struct xts_status_waits *out)
{
	memset(&out->waits, 0, sizeof out->waits);
	memset(s->waits_for, XTS_WAIT_NONE, sizeof s->waits_for);
	out->xts_socket = s->id;
	out->magic = XTS_WAITS_MAGIC;
}

static void enter(struct xts_sock *s, enum xts_wait_direction direction, enum xts_wait reason)
{
	struct xts_status_waits *out;

	if (!XTS_WAITS_MEASURED || s->waits_for[direction] == reason)
		return;
	out = shown(s);
	if (!out)
		return;
	if (out->magic != XTS_WAITS_MAGIC || out->xts_socket != s->id)
		begin(s, out);
	xts_wait_enter(&out->waits, direction, s->waits_for[direction], reason, now_ns());
	s->waits_for[direction] = (uint8_t)reason;
}

void waits_to_send(struct xts_sock *s)
{
	if (s->no_space)
		enter(s, XTS_WAIT_SENDING, s->refused_for);
}

void waits_may_send(struct xts_sock *s)
{
	enter(s, XTS_WAIT_SENDING, XTS_WAIT_NONE);
}

static enum xts_wait receiving(const struct xts_sock *s)
{
	if (!s->in_use || s->closing || s->lost)
		return XTS_WAIT_NONE;
	if (s->unread)
		return XTS_WAIT_APPLICATION;
	return s->asked ? XTS_WAIT_PEER : XTS_WAIT_NONE;
}

void waits_look(struct xts_sock *s)
{
	enter(s, XTS_WAIT_RECEIVING, receiving(s));
}

void waits_forget(struct xts_sock *s)
{
	struct xts_status_waits *out = shown(s);

	memset(s->waits_for, XTS_WAIT_NONE, sizeof s->waits_for);
	if (out)
		out->magic = 0;
}
