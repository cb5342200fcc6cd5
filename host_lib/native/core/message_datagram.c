/* Messages about datagram sockets. This host offers no feature DATAGRAM yet: no proxy that keeps to the protocol sends
 * them, and one that does loses its channel. */
#include <errno.h>

#include "core/channel.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/stack.h"

static bool not_asked_for(struct stack *st)
{
	channel_fail(st, EPROTO);
	return false;
}

bool message_open_datagram_ack(struct stack *st, const struct xts_head *head, const struct xts_open_datagram_ack *m,
			       struct xts_rx_frame *frame)
{
	(void)head;
	(void)m;
	(void)frame;
	return not_asked_for(st);
}

bool message_connect_datagram_ack(struct stack *st, const struct xts_head *head, const struct xts_connect_datagram_ack *m,
				  struct xts_rx_frame *frame)
{
	(void)head;
	(void)m;
	(void)frame;
	return not_asked_for(st);
}

bool message_recv_datagrams(struct stack *st, const struct xts_head *head, const struct xts_recv_datagrams *m,
			    struct xts_rx_frame *frame)
{
	(void)head;
	(void)m;
	(void)frame;
	return not_asked_for(st);
}
