/* The frames that the link itself sends. link.h has the theory of operation. */
#include "link/link_inside.h"

static size_t control(struct xts_link *link, uint8_t *frame, uint16_t due, uint8_t type, uint16_t error, size_t bytes)
{
	link->due &= (uint16_t)~due;
	memset(frame, 0, bytes);
	xts_head_encode(frame, type, 0, error, 0);
	link_fill_ethernet(link, frame);
	link->acked_to_peer = link->recycled;
	return bytes;
}

static size_t write_hello(struct xts_link *link, uint8_t *frame, uint64_t now_ns)
{
	const struct xts_link_config *config = &link->config;
	struct xts_hello hello = {
		.version = XTS_WIRE_VERSION,
		.frame_window = config->frame_window,
		.largest_message = config->largest_message,
		.features = config->features,
		.required = config->required,
		.epoch = config->epoch,
		.pid = config->pid,
	};

	control(link, frame, DUE_HELLO, XTS_LINK_HELLO, 0, XTS_HELLO_BYTES);
	xts_hello_encode(frame, &hello);
	link->hello_ns = now_ns;
	return XTS_HELLO_BYTES;
}

static size_t write_hello_ack(struct xts_link *link, uint8_t *frame)
{
	bool up = link->state == XTS_LINK_UP;
	struct xts_hello_ack ack = {
		.version = XTS_WIRE_VERSION,
		.frame_window = up ? link->frame_window : link->config.frame_window,
		.largest_message = up ? link->packet_bytes : link->config.largest_message,
		.features = up ? link->features : link->config.features,
		.epoch = link->epoch,
		.sockets_max = link->config.sockets_max,
	};

	control(link, frame, DUE_HELLO_ACK, XTS_LINK_HELLO_ACK, up ? 0 : (uint16_t)link->error, XTS_HELLO_ACK_BYTES);
	xts_hello_ack_encode(frame, &ack);
	return XTS_HELLO_ACK_BYTES;
}

static size_t write_token(struct xts_link *link, uint8_t *frame)
{
	size_t bytes = XTS_HEAD_BYTES + link->config.token_bytes;

	control(link, frame, DUE_TOKEN, XTS_LINK_TOKEN, 0, bytes);
	memcpy(frame + XTS_HEAD_BYTES, link->config.token, link->config.token_bytes);
	return bytes;
}

/* The token of the request is the time at which it is sent. */
static size_t write_clock(struct xts_link *link, uint8_t *frame, uint64_t now_ns)
{
	struct xts_clock clock = { .token = now_ns };

	control(link, frame, DUE_CLOCK, XTS_LINK_CLOCK, 0, XTS_CLOCK_BYTES);
	link->clock_token = now_ns;
	xts_clock_encode(frame, &clock);
	return XTS_CLOCK_BYTES;
}

static size_t write_replaced(struct xts_link *link, uint8_t *frame)
{
	struct xts_replaced m = { .epoch = link->epoch, .ticket = link->replaced_ticket };

	link->replaced_said = true;
	control(link, frame, DUE_REPLACED, XTS_LINK_REPLACED, 0, XTS_REPLACED_BYTES);
	xts_replaced_encode(frame, &m);
	return XTS_REPLACED_BYTES;
}

static size_t write_clock_ack(struct xts_link *link, uint8_t *frame)
{
	struct xts_clock_ack ack = { .token = link->clock_token };

	control(link, frame, DUE_CLOCK_ACK, XTS_LINK_CLOCK_ACK, 0, XTS_CLOCK_ACK_BYTES);
	link->config.clock(link->config.clock_context, &ack);
	xts_clock_ack_encode(frame, &ack);
	return XTS_CLOCK_ACK_BYTES;
}

static size_t write_catch_up(struct xts_link *link, uint8_t *frame)
{
	struct xts_catch_up m = { .token = link->catch_up_token };

	control(link, frame, DUE_CATCH_UP, XTS_LINK_CATCH_UP, 0, XTS_CATCH_UP_BYTES);
	xts_catch_up_encode(frame, &m);
	return XTS_CATCH_UP_BYTES;
}

static size_t write_caught_up(struct xts_link *link, uint8_t *frame)
{
	struct xts_caught_up m = { .token = link->catch_up_token };

	control(link, frame, DUE_CAUGHT_UP, XTS_LINK_CAUGHT_UP, 0, XTS_CAUGHT_UP_BYTES);
	link->catch_up_token = 0;
	xts_caught_up_encode(frame, &m);
	return XTS_CAUGHT_UP_BYTES;
}

size_t xts_link_control(struct xts_link *link, void *frame, uint64_t now_ns)
{
	struct xts_ping ping;
	struct xts_pong pong;
	struct xts_goodbye goodbye;

	if (link->due & DUE_TOKEN)
		return write_token(link, frame);
	if (link->due & DUE_HELLO)
		return write_hello(link, frame, now_ns);
	if (link->due & DUE_HELLO_ACK)
		return write_hello_ack(link, frame);
	if (link->due & DUE_GOODBYE) {
		control(link, frame, DUE_GOODBYE, XTS_LINK_GOODBYE, link->goodbye_error, XTS_GOODBYE_BYTES);
		goodbye.epoch = link->goodbye_epoch;
		xts_goodbye_encode(frame, &goodbye);
		return XTS_GOODBYE_BYTES;
	}
	if (link->due & DUE_PONG) {
		control(link, frame, DUE_PONG, XTS_LINK_PONG, 0, XTS_PONG_BYTES);
		pong.token = link->pong_token;
		xts_pong_encode(frame, &pong);
		return XTS_PONG_BYTES;
	}
	if (link->due & DUE_PING) {
		control(link, frame, DUE_PING, XTS_LINK_PING, 0, XTS_PING_BYTES);
		ping.token = ++link->ping_token;
		xts_ping_encode(frame, &ping);
		return XTS_PING_BYTES;
	}
	if (link->due & DUE_CLOCK)
		return write_clock(link, frame, now_ns);
	if (link->due & DUE_CLOCK_ACK)
		return write_clock_ack(link, frame);
	if (link->due & DUE_CATCH_UP)
		return write_catch_up(link, frame);
	if (link->due & DUE_CAUGHT_UP)
		return write_caught_up(link, frame);
	if (link->due & DUE_REPLACED)
		return write_replaced(link, frame);
	if (link_ack_due(link)) {
		link->stats.sent_acks++;
		return control(link, frame, 0, XTS_LINK_FRAME_ACK, 0, XTS_FRAME_ACK_BYTES);
	}
	return 0;
}

bool xts_link_control_due(const struct xts_link *link)
{
	return link->due || link_ack_due(link);
}
