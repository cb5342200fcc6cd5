/* Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_COMMAND_DISPATCH_H
#define XTS_COMMAND_DISPATCH_H

#include "wire/wire.h"

struct batch_entry;
struct channel;

/* What becomes of a message's frame. */
enum command_result {
	COMMAND_DONE,       /* its credit is to be returned at once */
	COMMAND_REPLIES,    /* a reply, which waits its turn, will return the credit */
	COMMAND_KEPT,       /* it stays in the batch until the flush */
	COMMAND_UNFINISHED, /* the channel has it until the rest is done, in later turns */
	COMMAND_MALFORMED,  /* no host that keeps to the protocol sends it */
};

enum command_result command_connect(struct channel *ch, const struct xts_head *head, const struct xts_connect *m,
				    struct batch_entry *e);
enum command_result command_listen(struct channel *ch, const struct xts_head *head, const struct xts_listen *m,
				   struct batch_entry *e);
enum command_result command_newconn_ack(struct channel *ch, const struct xts_head *head, const struct xts_newconn_ack *m,
					struct batch_entry *e);
enum command_result command_send(struct channel *ch, const struct xts_head *head, const struct xts_send *m,
				 struct batch_entry *e);
enum command_result command_bind(struct channel *ch, const struct xts_head *head, const struct xts_bind *m,
				 struct batch_entry *e);
enum command_result command_setsockopt(struct channel *ch, const struct xts_head *head, const struct xts_setsockopt *m,
				       struct batch_entry *e);
enum command_result command_getsockopt(struct channel *ch, const struct xts_head *head, const struct xts_getsockopt *m,
				       struct batch_entry *e);
enum command_result command_ioctl(struct channel *ch, const struct xts_head *head, const struct xts_ioctl *m,
				  struct batch_entry *e);
enum command_result command_share(struct channel *ch, const struct xts_head *head, const struct xts_share *m,
				  struct batch_entry *e);
enum command_result command_park(struct channel *ch, const struct xts_head *head, const struct xts_park *m,
				 struct batch_entry *e);
enum command_result command_claim(struct channel *ch, const struct xts_head *head, const struct xts_claim *m,
				  struct batch_entry *e);
enum command_result command_send_pdu(struct channel *ch, const struct xts_head *head, const struct xts_send_pdu *m,
				     struct batch_entry *e);
enum command_result command_give_back(struct channel *ch, const struct xts_head *head, const struct xts_give_back *m,
				      struct batch_entry *e);
enum command_result command_take(struct channel *ch, const struct xts_head *head, const struct xts_take *m,
				 struct batch_entry *e);
enum command_result command_return(struct channel *ch, const struct xts_head *head, const struct xts_return *m,
				   struct batch_entry *e);
enum command_result command_cancel(struct channel *ch, const struct xts_head *head, const struct xts_cancel *m,
				   struct batch_entry *e);
enum command_result command_move_ack(struct channel *ch, const struct xts_head *head, const struct xts_move_ack *m,
				     struct batch_entry *e);
enum command_result command_resume(struct channel *ch, const struct xts_head *head, const struct xts_resume *m,
				   struct batch_entry *e);
enum command_result command_shut_listener(struct channel *ch, const struct xts_head *head, const struct xts_shut_listener *m,
					  struct batch_entry *e);
enum command_result command_open_datagram(struct channel *ch, const struct xts_head *head, const struct xts_open_datagram *m,
					  struct batch_entry *e);
enum command_result command_connect_datagram(struct channel *ch, const struct xts_head *head, const struct xts_connect_datagram *m,
					     struct batch_entry *e);
enum command_result command_send_datagrams(struct channel *ch, const struct xts_head *head, const struct xts_send_datagrams *m,
					   struct batch_entry *e);
enum command_result command_return_datagrams(struct channel *ch, const struct xts_head *head, const struct xts_return_datagrams *m,
					     struct batch_entry *e);
enum command_result command_query_name(struct channel *ch, const struct xts_head *head, const struct xts_query_name *m,
				       struct batch_entry *e);

/* Decodes a message and has it carried out. frame: the first piece of e's frame, which has frame_bytes in all. */
/* NOLINTNEXTLINE(readability-function-size): one case for each message */
static inline enum command_result command_dispatch(struct channel *ch, uint64_t features, const struct xts_head *head,
						   const void *frame, size_t frame_bytes, struct batch_entry *e)
{
	if (xts_type_feature(head->type) & ~features)
		return COMMAND_MALFORMED;
	switch (head->type) {
	case XTS_CMD_CONNECT: {
		struct xts_connect m;

		if (xts_connect_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_connect(ch, head, &m, e);
	}
	case XTS_CMD_LISTEN: {
		struct xts_listen m;

		if (xts_listen_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_listen(ch, head, &m, e);
	}
	case XTS_CMD_NEWCONN_ACK: {
		struct xts_newconn_ack m;

		if (xts_newconn_ack_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_newconn_ack(ch, head, &m, e);
	}
	case XTS_CMD_SEND: {
		struct xts_send m;

		if (xts_send_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_send(ch, head, &m, e);
	}
	case XTS_CMD_BIND: {
		struct xts_bind m;

		if (xts_bind_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_bind(ch, head, &m, e);
	}
	case XTS_CMD_SETSOCKOPT: {
		struct xts_setsockopt m;

		if (xts_setsockopt_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_setsockopt(ch, head, &m, e);
	}
	case XTS_CMD_GETSOCKOPT: {
		struct xts_getsockopt m;

		if (xts_getsockopt_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_getsockopt(ch, head, &m, e);
	}
	case XTS_CMD_IOCTL: {
		struct xts_ioctl m;

		if (xts_ioctl_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_ioctl(ch, head, &m, e);
	}
	case XTS_CMD_SHARE: {
		struct xts_share m;

		if (xts_share_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_share(ch, head, &m, e);
	}
	case XTS_CMD_PARK: {
		struct xts_park m;

		if (xts_park_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_park(ch, head, &m, e);
	}
	case XTS_CMD_CLAIM: {
		struct xts_claim m;

		if (xts_claim_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_claim(ch, head, &m, e);
	}
	case XTS_CMD_SEND_PDU: {
		struct xts_send_pdu m;

		if (xts_send_pdu_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_send_pdu(ch, head, &m, e);
	}
	case XTS_CMD_GIVE_BACK: {
		struct xts_give_back m;

		if (xts_give_back_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_give_back(ch, head, &m, e);
	}
	case XTS_CMD_TAKE: {
		struct xts_take m;

		if (xts_take_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_take(ch, head, &m, e);
	}
	case XTS_CMD_RETURN: {
		struct xts_return m;

		if (xts_return_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_return(ch, head, &m, e);
	}
	case XTS_CMD_CANCEL: {
		struct xts_cancel m;

		if (xts_cancel_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_cancel(ch, head, &m, e);
	}
	case XTS_CMD_MOVE_ACK: {
		struct xts_move_ack m;

		if (xts_move_ack_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_move_ack(ch, head, &m, e);
	}
	case XTS_CMD_RESUME: {
		struct xts_resume m;

		if (xts_resume_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_resume(ch, head, &m, e);
	}
	case XTS_CMD_SHUT_LISTENER: {
		struct xts_shut_listener m;

		if (xts_shut_listener_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_shut_listener(ch, head, &m, e);
	}
	case XTS_CMD_OPEN_DATAGRAM: {
		struct xts_open_datagram m;

		if (xts_open_datagram_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_open_datagram(ch, head, &m, e);
	}
	case XTS_CMD_CONNECT_DATAGRAM: {
		struct xts_connect_datagram m;

		if (xts_connect_datagram_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_connect_datagram(ch, head, &m, e);
	}
	case XTS_CMD_SEND_DATAGRAMS: {
		struct xts_send_datagrams m;

		if (xts_send_datagrams_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_send_datagrams(ch, head, &m, e);
	}
	case XTS_CMD_RETURN_DATAGRAMS: {
		struct xts_return_datagrams m;

		if (xts_return_datagrams_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_return_datagrams(ch, head, &m, e);
	}
	case XTS_CMD_QUERY_NAME: {
		struct xts_query_name m;

		if (xts_query_name_decode(&m, frame, frame_bytes))
			return COMMAND_MALFORMED;
		return command_query_name(ch, head, &m, e);
	}
	default:
		return COMMAND_MALFORMED;
	}
}

#endif
