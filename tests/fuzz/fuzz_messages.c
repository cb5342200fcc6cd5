/*
 * libFuzzer target: the decoders of all messages. The input is a frame. What decodes must lie within the table's limits
 * and the frame's bounds, encode back to the same bytes, and decode again to the same values.
 */
#include "ensure.h"
#include "wire/wire.h"

/* Decodes into zeroed memory, so that padding compares equal, and goes round once. */
#define ROUND_TRIP(stem, TYPE, frame, bytes) \
	do { \
		struct xts_##stem first, again; \
		uint8_t copy[TYPE]; \
		memset(&first, 0, sizeof first); \
		memset(&again, 0, sizeof again); \
		memset(copy, 0, sizeof copy); \
		if (xts_##stem##_decode(&first, frame, bytes)) \
			return 0; \
		ENSURE((bytes) >= (TYPE)); \
		xts_##stem##_encode(copy, &first); \
		if ((bytes) == (TYPE)) { /* a payload length of 0 then, or none */ \
			ENSURE(!xts_##stem##_decode(&again, copy, sizeof copy)); \
			ENSURE(!memcmp(&first, &again, sizeof first)); \
		} \
	} while (0)

#define PAYLOAD_WITHIN(stem, TYPE, frame, bytes) \
	do { \
		struct xts_##stem m; \
		ROUND_TRIP(stem, TYPE, frame, bytes); \
		ENSURE(!xts_##stem##_decode(&m, frame, bytes)); \
		ENSURE(m.length <= (bytes) - (TYPE)); \
		ENSURE(m.length == (bytes) - (TYPE) || (bytes) <= XTS_ETH_MIN_BYTES); \
		for (size_t i = 0; i < m.length; i++) /* for AddressSanitizer */ \
			touched += ((const uint8_t *)(frame))[(TYPE) + i]; \
	} while (0)

static volatile unsigned touched;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct xts_head head;

	if (xts_head_decode(&head, data, bytes)) {
		ENSURE(bytes < XTS_HEAD_BYTES);
		return 0;
	}
	ENSURE((xts_type_bytes(head.type) != 0) == (strcmp(xts_type_name(head.type), "unknown") != 0));
	switch (head.type) {
		/* clang-format off */
	case XTS_CMD_CONNECT: PAYLOAD_WITHIN(connect, XTS_CONNECT_BYTES, data, bytes); break;
	case XTS_REPLY_CONNECT_ACK: ROUND_TRIP(connect_ack, XTS_CONNECT_ACK_BYTES, data, bytes); break;
	case XTS_CMD_LISTEN: ROUND_TRIP(listen, XTS_LISTEN_BYTES, data, bytes); break;
	case XTS_REPLY_LISTEN_ACK: ROUND_TRIP(listen_ack, XTS_LISTEN_ACK_BYTES, data, bytes); break;
	case XTS_REPLY_NEWCONN: ROUND_TRIP(newconn, XTS_NEWCONN_BYTES, data, bytes); break;
	case XTS_CMD_NEWCONN_ACK: ROUND_TRIP(newconn_ack, XTS_NEWCONN_ACK_BYTES, data, bytes); break;
	case XTS_CMD_SEND: PAYLOAD_WITHIN(send, XTS_SEND_BYTES, data, bytes); break;
	case XTS_REPLY_RECV: PAYLOAD_WITHIN(recv, XTS_RECV_BYTES, data, bytes); break;
	case XTS_LINK_HELLO: ROUND_TRIP(hello, XTS_HELLO_BYTES, data, bytes); break;
	case XTS_LINK_HELLO_ACK: ROUND_TRIP(hello_ack, XTS_HELLO_ACK_BYTES, data, bytes); break;
	case XTS_LINK_PING: ROUND_TRIP(ping, XTS_PING_BYTES, data, bytes); break;
	case XTS_LINK_PONG: ROUND_TRIP(pong, XTS_PONG_BYTES, data, bytes); break;
	case XTS_LINK_CLOCK: ROUND_TRIP(clock, XTS_CLOCK_BYTES, data, bytes); break;
	case XTS_LINK_CLOCK_ACK: ROUND_TRIP(clock_ack, XTS_CLOCK_ACK_BYTES, data, bytes); break;
	case XTS_LINK_CATCH_UP: ROUND_TRIP(catch_up, XTS_CATCH_UP_BYTES, data, bytes); break;
	case XTS_LINK_CAUGHT_UP: ROUND_TRIP(caught_up, XTS_CAUGHT_UP_BYTES, data, bytes); break;
	case XTS_REPLY_GATHERED: PAYLOAD_WITHIN(gathered, XTS_GATHERED_BYTES, data, bytes); break;
	case XTS_LINK_GOODBYE: ROUND_TRIP(goodbye, XTS_GOODBYE_BYTES, data, bytes); break;
	case XTS_LINK_BUNDLE: PAYLOAD_WITHIN(bundle, XTS_BUNDLE_BYTES, data, bytes); break;
	case XTS_LINK_PART: PAYLOAD_WITHIN(part, XTS_PART_BYTES, data, bytes); break;
	case XTS_LINK_HEADED: ROUND_TRIP(headed, XTS_HEADED_BYTES, data, bytes); break;
	case XTS_LINK_ARQ: ROUND_TRIP(arq, XTS_ARQ_BYTES, data, bytes); break;
	case XTS_LINK_PROBE: ROUND_TRIP(probe, XTS_PROBE_BYTES, data, bytes); break;
	case XTS_LINK_TOKEN: PAYLOAD_WITHIN(token, XTS_TOKEN_BYTES, data, bytes); break;
	case XTS_CMD_BIND: ROUND_TRIP(bind, XTS_BIND_BYTES, data, bytes); break;
	case XTS_REPLY_BIND_ACK: ROUND_TRIP(bind_ack, XTS_BIND_ACK_BYTES, data, bytes); break;
	case XTS_CMD_SETSOCKOPT: PAYLOAD_WITHIN(setsockopt, XTS_SETSOCKOPT_BYTES, data, bytes); break;
	case XTS_CMD_GETSOCKOPT: PAYLOAD_WITHIN(getsockopt, XTS_GETSOCKOPT_BYTES, data, bytes); break;
	case XTS_REPLY_SOCKOPT_ACK: PAYLOAD_WITHIN(sockopt_ack, XTS_SOCKOPT_ACK_BYTES, data, bytes); break;
	case XTS_CMD_IOCTL: PAYLOAD_WITHIN(ioctl, XTS_IOCTL_BYTES, data, bytes); break;
	case XTS_REPLY_IOCTL_ACK: PAYLOAD_WITHIN(ioctl_ack, XTS_IOCTL_ACK_BYTES, data, bytes); break;
	case XTS_CMD_SHARE: ROUND_TRIP(share, XTS_SHARE_BYTES, data, bytes); break;
	case XTS_REPLY_SHARE_ACK: ROUND_TRIP(share_ack, XTS_SHARE_ACK_BYTES, data, bytes); break;
	case XTS_CMD_PARK: ROUND_TRIP(park, XTS_PARK_BYTES, data, bytes); break;
	case XTS_REPLY_PARK_ACK: ROUND_TRIP(park_ack, XTS_PARK_ACK_BYTES, data, bytes); break;
	case XTS_CMD_CLAIM: ROUND_TRIP(claim, XTS_CLAIM_BYTES, data, bytes); break;
	case XTS_REPLY_CLAIM_ACK: ROUND_TRIP(claim_ack, XTS_CLAIM_ACK_BYTES, data, bytes); break;
	case XTS_CMD_OPEN_DATAGRAM: ROUND_TRIP(open_datagram, XTS_OPEN_DATAGRAM_BYTES, data, bytes); break;
	case XTS_REPLY_OPEN_DATAGRAM_ACK: ROUND_TRIP(open_datagram_ack, XTS_OPEN_DATAGRAM_ACK_BYTES, data, bytes); break;
	case XTS_CMD_CONNECT_DATAGRAM: ROUND_TRIP(connect_datagram, XTS_CONNECT_DATAGRAM_BYTES, data, bytes); break;
	case XTS_REPLY_CONNECT_DATAGRAM_ACK: ROUND_TRIP(connect_datagram_ack, XTS_CONNECT_DATAGRAM_ACK_BYTES, data, bytes); break;
	case XTS_CMD_SEND_DATAGRAMS: PAYLOAD_WITHIN(send_datagrams, XTS_SEND_DATAGRAMS_BYTES, data, bytes); break;
	case XTS_REPLY_RECV_DATAGRAMS: PAYLOAD_WITHIN(recv_datagrams, XTS_RECV_DATAGRAMS_BYTES, data, bytes); break;
	case XTS_CMD_RETURN_DATAGRAMS: PAYLOAD_WITHIN(return_datagrams, XTS_RETURN_DATAGRAMS_BYTES, data, bytes); break;
	case XTS_CMD_SEND_PDU: PAYLOAD_WITHIN(send_pdu, XTS_SEND_PDU_BYTES, data, bytes); break;
	case XTS_REPLY_RECV_PDU: PAYLOAD_WITHIN(recv_pdu, XTS_RECV_PDU_BYTES, data, bytes); break;
	case XTS_CMD_GIVE_BACK: PAYLOAD_WITHIN(give_back, XTS_GIVE_BACK_BYTES, data, bytes); break;
	case XTS_CMD_MOVE_ACK: ROUND_TRIP(move_ack, XTS_MOVE_ACK_BYTES, data, bytes); break;
	case XTS_CMD_RESUME: ROUND_TRIP(resume, XTS_RESUME_BYTES, data, bytes); break;
	case XTS_LINK_OVER: PAYLOAD_WITHIN(over, XTS_OVER_BYTES, data, bytes); break;
	case XTS_LINK_REPLACED: ROUND_TRIP(replaced, XTS_REPLACED_BYTES, data, bytes); break;
	case XTS_REPLY_MOVE: ROUND_TRIP(move, XTS_MOVE_BYTES, data, bytes); break;
	case XTS_CMD_SHUT_LISTENER: ROUND_TRIP(shut_listener, XTS_SHUT_LISTENER_BYTES, data, bytes); break;
	case XTS_REPLY_SHUT_LISTENER_ACK: ROUND_TRIP(shut_listener_ack, XTS_SHUT_LISTENER_ACK_BYTES, data, bytes); break;
	case XTS_REPLY_LISTENING: ROUND_TRIP(listening, XTS_LISTENING_BYTES, data, bytes); break;
	case XTS_CMD_CANCEL: ROUND_TRIP(cancel, XTS_CANCEL_BYTES, data, bytes); break;
	case XTS_CMD_TAKE: ROUND_TRIP(take, XTS_TAKE_BYTES, data, bytes); break;
	case XTS_REPLY_TAKE_ACK: ROUND_TRIP(take_ack, XTS_TAKE_ACK_BYTES, data, bytes); break;
	case XTS_REPLY_YIELD: ROUND_TRIP(yield, XTS_YIELD_BYTES, data, bytes); break;
	case XTS_CMD_RETURN: PAYLOAD_WITHIN(return, XTS_RETURN_BYTES, data, bytes); break;
	case XTS_RELAY_CARRIED: PAYLOAD_WITHIN(carried, XTS_CARRIED_BYTES, data, bytes); break;
	case XTS_CMD_QUERY_NAME: PAYLOAD_WITHIN(query_name, XTS_QUERY_NAME_BYTES, data, bytes); break;
	case XTS_REPLY_NAME_ACK: PAYLOAD_WITHIN(name_ack, XTS_NAME_ACK_BYTES, data, bytes); break;
	/* clang-format on */
	default:
		/* A message added to the table must be added here. */
		ENSURE(!xts_type_bytes(head.type) || head.type == XTS_LINK_FRAME_ACK);
	}
	return 0;
}
