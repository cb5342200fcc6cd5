/* Messages from the proxy: message.c. */
#ifndef XTS_MESSAGE_H
#define XTS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stack;
struct xts_endpoint;
struct xts_head;
struct xts_rx_frame;
struct xts_sock;

/* message_dispatch(): tables/messages.c. */
int message_handle(struct stack *st, const struct xts_head *head, const void *frame, size_t frame_bytes,
		   struct xts_rx_frame *f);
void message_receive(struct stack *st, struct xts_rx_frame *frame, const struct xts_head *head, const uint8_t *copy);
/* the socket that a message is for; NULL: none, which is counted */
struct xts_sock *message_target(struct stack *st, uint32_t id);
/* The reply to a struct call. If it has a value, the value is at offset in the frame, with length bytes. */
void message_reply(struct stack *st, const struct xts_head *head, uint8_t request, uint32_t proxy_id, uint32_t token,
		   const struct xts_endpoint *local, const struct xts_rx_frame *frame, uint32_t offset, uint32_t length);
bool message_credits(struct xts_sock *s, uint32_t post_credits); /* adds post credits; false: the channel has ended */

#endif
