/* Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_REQUEST_ENCODE_H
#define XTS_REQUEST_ENCODE_H

#include "wire/wire.h"

/* The fields of all requests. */
struct request_fields {
	uint32_t xts_socket;
	uint32_t token;
	uint32_t post_credits;
	uint32_t domain;
	uint32_t backlog;
	struct xts_endpoint local;
	int32_t level;
	int32_t option;
	uint32_t length;
	uint32_t request;
	uint64_t key;
	uint32_t keep_ms;
	uint32_t unread;
	uint32_t purpose;
	uint64_t received_bytes;
	uint64_t sent_bytes;
	uint32_t fin_sent;
	struct xts_endpoint peer;
	uint32_t receive_bytes;
};

/* Encodes the fields that a request of this type has, behind the head. Returns the bytes of both; 0: no
 * request has this type. */
/* NOLINTNEXTLINE(readability-function-size): one case for each request */
static inline uint32_t request_encode(uint8_t *frame, uint8_t type, const struct request_fields *r)
{
	switch (type) {
	case XTS_CMD_LISTEN: {
		struct xts_listen m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.post_credits = r->post_credits,
			.domain = r->domain,
			.backlog = r->backlog,
		};

		xts_listen_encode(frame, &m);
		return XTS_LISTEN_BYTES;
	}
	case XTS_CMD_BIND: {
		struct xts_bind m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.domain = r->domain,
			.local = r->local,
		};

		xts_bind_encode(frame, &m);
		return XTS_BIND_BYTES;
	}
	case XTS_CMD_SETSOCKOPT: {
		struct xts_setsockopt m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.domain = r->domain,
			.level = r->level,
			.option = r->option,
			.length = r->length,
		};

		xts_setsockopt_encode(frame, &m);
		return XTS_SETSOCKOPT_BYTES;
	}
	case XTS_CMD_GETSOCKOPT: {
		struct xts_getsockopt m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.domain = r->domain,
			.level = r->level,
			.option = r->option,
			.length = r->length,
		};

		xts_getsockopt_encode(frame, &m);
		return XTS_GETSOCKOPT_BYTES;
	}
	case XTS_CMD_IOCTL: {
		struct xts_ioctl m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.domain = r->domain,
			.request = r->request,
			.length = r->length,
		};

		xts_ioctl_encode(frame, &m);
		return XTS_IOCTL_BYTES;
	}
	case XTS_CMD_SHARE: {
		struct xts_share m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.key = r->key,
			.keep_ms = r->keep_ms,
		};

		xts_share_encode(frame, &m);
		return XTS_SHARE_BYTES;
	}
	case XTS_CMD_PARK: {
		struct xts_park m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.key = r->key,
			.keep_ms = r->keep_ms,
		};

		xts_park_encode(frame, &m);
		return XTS_PARK_BYTES;
	}
	case XTS_CMD_CLAIM: {
		struct xts_claim m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.key = r->key,
			.post_credits = r->post_credits,
			.unread = r->unread,
		};

		xts_claim_encode(frame, &m);
		return XTS_CLAIM_BYTES;
	}
	case XTS_CMD_TAKE: {
		struct xts_take m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.key = r->key,
			.post_credits = r->post_credits,
			.purpose = r->purpose,
		};

		xts_take_encode(frame, &m);
		return XTS_TAKE_BYTES;
	}
	case XTS_CMD_RESUME: {
		struct xts_resume m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.key = r->key,
			.post_credits = r->post_credits,
			.unread = r->unread,
			.received_bytes = r->received_bytes,
			.sent_bytes = r->sent_bytes,
			.fin_sent = r->fin_sent,
		};

		xts_resume_encode(frame, &m);
		return XTS_RESUME_BYTES;
	}
	case XTS_CMD_SHUT_LISTENER: {
		struct xts_shut_listener m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
		};

		xts_shut_listener_encode(frame, &m);
		return XTS_SHUT_LISTENER_BYTES;
	}
	case XTS_CMD_OPEN_DATAGRAM: {
		struct xts_open_datagram m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.post_credits = r->post_credits,
			.domain = r->domain,
			.local = r->local,
			.peer = r->peer,
			.receive_bytes = r->receive_bytes,
		};

		xts_open_datagram_encode(frame, &m);
		return XTS_OPEN_DATAGRAM_BYTES;
	}
	case XTS_CMD_CONNECT_DATAGRAM: {
		struct xts_connect_datagram m = {
			.xts_socket = r->xts_socket,
			.token = r->token,
			.peer = r->peer,
		};

		xts_connect_datagram_encode(frame, &m);
		return XTS_CONNECT_DATAGRAM_BYTES;
	}
	case XTS_CMD_QUERY_NAME: {
		struct xts_query_name m = {
			.token = r->token,
			.length = r->length,
		};

		xts_query_name_encode(frame, &m);
		return XTS_QUERY_NAME_BYTES;
	}
	default:
		return 0;
	}
}

#endif
