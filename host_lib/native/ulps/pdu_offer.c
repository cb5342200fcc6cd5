/*
 * PDUs that a callback decides about: see core/receive_callback.h.
 *
 * A PDU comes in any number of messages, and is assembled in the receive buffer as usual. When it is complete, a
 * contiguous copy is made for the callback. If the program does not want the PDU queued, it is removed from the end of
 * the buffer. Its entry then stays in the list, as that of a PDU of which nothing has come, and is used for the next
 * PDU. A PDU that is longer than half of the window is delivered in parts as it comes (pdu.c): once a part of it has
 * been read, no callback is asked.
 */
#include "core/received_data.h"
#include "core/channel.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/transfer.h"
#include "ulps/pdu.h"

bool pdu_is_offered(const struct xts_sock *s, const struct pdu *p)
{
	return s->callback && s->seqpacket && p->whole && !p->stream && !p->read;
}

/* The bytes of p are the last of the unread ones, or the first after skip. NULL: no memory. */
static struct offered *copy(struct xts_sock *s, const struct pdu *p, uint32_t skip)
{
	struct offered *out = offered_make(p->bytes);
	struct about about = { 0 };
	struct iovec data;

	if (!out)
		return NULL;
	about.control = out->control;
	about.room = sizeof out->control;
	(void)pdu_control_put(p, &about); /* there is room for it */
	out->packet = (struct xts_packet){
		.data = out->data,
		.bytes = p->bytes,
		.control = out->control,
		.control_bytes = about.used,
	};
	offered_address(s, out, &s->peer);
	out->credits = p->bytes + p->messages * XTS_PDU_CREDITS;
	data = (struct iovec){ out->data, p->bytes };
	if (p->bytes)
		buffer_copy(s, skip, &data, 0, p->bytes);
	return out;
}

struct offered *pdu_offered(struct xts_sock *s)
{
	return copy(s, s->cold->pdu_first, 0);
}

/* Removes a complete PDU that is not to be queued. */
static void unqueue(struct xts_sock *s, struct pdu *p)
{
	struct pdu *next = p->next;
	uint32_t bytes = p->bytes;

	buffer_drop_last(s, bytes);
	*p = (struct pdu){ .next = next };
	recv_was_read(s, bytes);
}

void pdu_offer(struct xts_sock *s)
{
	struct pdu *p = s->cold->pdu_last;
	struct offered *copied;

	if (s->pushing || !pdu_is_offered(s, p))
		return; /* during a push it goes back to the proxy */
	copied = copy(s, p, s->unread - p->bytes);
	if (!copied)
		return; /* without memory it stays queued, so that nothing is lost */
	switch (callback_ask(s, copied)) {
	case XTS_PACKET_RECV:
		offered_free(copied);
		return;
	case XTS_PACKET_HOLD:
		unqueue(s, p);
		callback_hold(s, copied);
		return;
	default:
		unqueue(s, p);
		pdu_give_back(s, copied->credits);
		offered_free(copied);
	}
}
