/* Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_MESSAGE_DISPATCH_H
#define XTS_MESSAGE_DISPATCH_H

#include "wire/wire.h"

#include <stdbool.h>

struct stack;
struct xts_rx_frame;

/* Each returns whether it has taken over the frame. */

bool message_connect_ack(struct stack *st, const struct xts_head *head, const struct xts_connect_ack *m,
			 struct xts_rx_frame *f);
bool message_listen_ack(struct stack *st, const struct xts_head *head, const struct xts_listen_ack *m,
			struct xts_rx_frame *f);
bool message_newconn(struct stack *st, const struct xts_head *head, const struct xts_newconn *m,
		     struct xts_rx_frame *f);
bool message_recv(struct stack *st, const struct xts_head *head, const struct xts_recv *m,
		  struct xts_rx_frame *f);
bool message_bind_ack(struct stack *st, const struct xts_head *head, const struct xts_bind_ack *m,
		      struct xts_rx_frame *f);
bool message_sockopt_ack(struct stack *st, const struct xts_head *head, const struct xts_sockopt_ack *m,
			 struct xts_rx_frame *f);
bool message_ioctl_ack(struct stack *st, const struct xts_head *head, const struct xts_ioctl_ack *m,
		       struct xts_rx_frame *f);
bool message_share_ack(struct stack *st, const struct xts_head *head, const struct xts_share_ack *m,
		       struct xts_rx_frame *f);
bool message_park_ack(struct stack *st, const struct xts_head *head, const struct xts_park_ack *m,
		      struct xts_rx_frame *f);
bool message_claim_ack(struct stack *st, const struct xts_head *head, const struct xts_claim_ack *m,
		       struct xts_rx_frame *f);
bool message_recv_pdu(struct stack *st, const struct xts_head *head, const struct xts_recv_pdu *m,
		      struct xts_rx_frame *f);
bool message_take_ack(struct stack *st, const struct xts_head *head, const struct xts_take_ack *m,
		      struct xts_rx_frame *f);
bool message_yield(struct stack *st, const struct xts_head *head, const struct xts_yield *m,
		   struct xts_rx_frame *f);
bool message_gathered(struct stack *st, const struct xts_head *head, const struct xts_gathered *m,
		      struct xts_rx_frame *f);
bool message_move(struct stack *st, const struct xts_head *head, const struct xts_move *m,
		  struct xts_rx_frame *f);
bool message_shut_listener_ack(struct stack *st, const struct xts_head *head, const struct xts_shut_listener_ack *m,
			       struct xts_rx_frame *f);
bool message_listening(struct stack *st, const struct xts_head *head, const struct xts_listening *m,
		       struct xts_rx_frame *f);
bool message_open_datagram_ack(struct stack *st, const struct xts_head *head, const struct xts_open_datagram_ack *m,
			       struct xts_rx_frame *f);
bool message_connect_datagram_ack(struct stack *st, const struct xts_head *head, const struct xts_connect_datagram_ack *m,
				  struct xts_rx_frame *f);
bool message_recv_datagrams(struct stack *st, const struct xts_head *head, const struct xts_recv_datagrams *m,
			    struct xts_rx_frame *f);
bool message_name_ack(struct stack *st, const struct xts_head *head, const struct xts_name_ack *m,
		      struct xts_rx_frame *f);

/* Decodes a message and has it carried out. frame: a copy of the beginning of f, which has frame_bytes in all. 1: f has
 * been taken over, 0: it has not; -EBADMSG: no proxy that keeps to the protocol sends it. */
/* NOLINTNEXTLINE(readability-function-size): one case for each message */
static inline int message_dispatch(struct stack *st, const struct xts_head *head, const void *frame, size_t frame_bytes,
				   struct xts_rx_frame *f)
{
	switch (head->type) {
	case XTS_REPLY_CONNECT_ACK: {
		struct xts_connect_ack m;

		if (xts_connect_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_connect_ack(st, head, &m, f);
	}
	case XTS_REPLY_LISTEN_ACK: {
		struct xts_listen_ack m;

		if (xts_listen_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_listen_ack(st, head, &m, f);
	}
	case XTS_REPLY_NEWCONN: {
		struct xts_newconn m;

		if (xts_newconn_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_newconn(st, head, &m, f);
	}
	case XTS_REPLY_RECV: {
		struct xts_recv m;

		if (xts_recv_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_recv(st, head, &m, f);
	}
	case XTS_REPLY_BIND_ACK: {
		struct xts_bind_ack m;

		if (xts_bind_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_bind_ack(st, head, &m, f);
	}
	case XTS_REPLY_SOCKOPT_ACK: {
		struct xts_sockopt_ack m;

		if (xts_sockopt_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_sockopt_ack(st, head, &m, f);
	}
	case XTS_REPLY_IOCTL_ACK: {
		struct xts_ioctl_ack m;

		if (xts_ioctl_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_ioctl_ack(st, head, &m, f);
	}
	case XTS_REPLY_SHARE_ACK: {
		struct xts_share_ack m;

		if (xts_share_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_share_ack(st, head, &m, f);
	}
	case XTS_REPLY_PARK_ACK: {
		struct xts_park_ack m;

		if (xts_park_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_park_ack(st, head, &m, f);
	}
	case XTS_REPLY_CLAIM_ACK: {
		struct xts_claim_ack m;

		if (xts_claim_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_claim_ack(st, head, &m, f);
	}
	case XTS_REPLY_RECV_PDU: {
		struct xts_recv_pdu m;

		if (xts_recv_pdu_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_recv_pdu(st, head, &m, f);
	}
	case XTS_REPLY_TAKE_ACK: {
		struct xts_take_ack m;

		if (xts_take_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_take_ack(st, head, &m, f);
	}
	case XTS_REPLY_YIELD: {
		struct xts_yield m;

		if (xts_yield_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_yield(st, head, &m, f);
	}
	case XTS_REPLY_GATHERED: {
		struct xts_gathered m;

		if (xts_gathered_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_gathered(st, head, &m, f);
	}
	case XTS_REPLY_MOVE: {
		struct xts_move m;

		if (xts_move_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_move(st, head, &m, f);
	}
	case XTS_REPLY_SHUT_LISTENER_ACK: {
		struct xts_shut_listener_ack m;

		if (xts_shut_listener_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_shut_listener_ack(st, head, &m, f);
	}
	case XTS_REPLY_LISTENING: {
		struct xts_listening m;

		if (xts_listening_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_listening(st, head, &m, f);
	}
	case XTS_REPLY_OPEN_DATAGRAM_ACK: {
		struct xts_open_datagram_ack m;

		if (xts_open_datagram_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_open_datagram_ack(st, head, &m, f);
	}
	case XTS_REPLY_CONNECT_DATAGRAM_ACK: {
		struct xts_connect_datagram_ack m;

		if (xts_connect_datagram_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_connect_datagram_ack(st, head, &m, f);
	}
	case XTS_REPLY_RECV_DATAGRAMS: {
		struct xts_recv_datagrams m;

		if (xts_recv_datagrams_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_recv_datagrams(st, head, &m, f);
	}
	case XTS_REPLY_NAME_ACK: {
		struct xts_name_ack m;

		if (xts_name_ack_decode(&m, frame, frame_bytes))
			return -EBADMSG;
		return message_name_ack(st, head, &m, f);
	}
	default:
		return -EBADMSG;
	}
}

#endif
