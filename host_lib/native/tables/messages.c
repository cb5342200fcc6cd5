/* Which function handles which message, as generated from the table of messages. */
#include "core/message.h"
#include "core/message_dispatch.h"

int message_handle(struct stack *st, const struct xts_head *head, const void *frame, size_t frame_bytes,
		   struct xts_rx_frame *f)
{
	return message_dispatch(st, head, frame, frame_bytes, f);
}
