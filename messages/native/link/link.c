/* The link state machine; link.h has the theory of operation. */
#include "link/link.h"
#include "decorators/parts.h"

/* The last is sent after 127 times ping_ms: a peer may be out of reach for as long as that. */
#define PINGS_MAX 8u
#define HELLO_REPEAT_NS (50ull * 1000 * 1000)

enum link_due {
	DUE_HELLO = 1,
	DUE_HELLO_ACK = 2,
	DUE_PING = 4,
	DUE_PONG = 8,
	DUE_GOODBYE = 16,
	DUE_TOKEN = 32,
	DUE_CLOCK = 64,
	DUE_CLOCK_ACK = 128,
	DUE_CATCH_UP = 256,
	DUE_CAUGHT_UP = 512,
	DUE_REPLACED = 1024,
};

static uint64_t ms_to_ns(uint32_t ms)
{
	return (uint64_t)ms * 1000 * 1000;
}

/* Frames sent and not acknowledged; frames delivered and not recycled. Their types make them modulo 256. */
static uint8_t in_flight(const struct xts_link *link)
{
	return (uint8_t)(link->sent - link->acked);
}

static uint8_t unrecycled(const struct xts_link *link)
{
	return (uint8_t)(link->received - link->recycled);
}

static bool ack_due(const struct xts_link *link)
{
	return link->state == XTS_LINK_UP && (uint8_t)(link->recycled - link->acked_to_peer) >= link->frame_window / 4;
}

static bool window_valid(uint32_t frames)
{
	return frames >= XTS_FRAME_WINDOW_MIN && frames <= XTS_FRAME_WINDOW_MAX;
}

/* Of a packet. Short ones do where longer frames come in parts. */
static bool size_valid(uint32_t bytes, uint64_t features)
{
	uint32_t least = features & XTS_FEATURE_PARTS ? XTS_FRAME_BYTES_LEAST : XTS_FRAME_BYTES_SINGLE;

	return bytes >= least && bytes <= XTS_FRAME_BYTES_MAX;
}

/* A HELLO is due, and the token before it. */
static uint16_t hello_due(const struct xts_link *link)
{
	return link->config.token_bytes ? DUE_TOKEN | DUE_HELLO : DUE_HELLO;
}

static bool token_valid(const struct xts_link_config *config)
{
	return !config->token_bytes || (config->role == XTS_LINK_HOST && config->token &&
					config->token_bytes >= XTS_TOKEN_BYTES - XTS_HEAD_BYTES &&
					config->token_bytes <= XTS_LINK_CONTROL_BYTES_MAX - XTS_HEAD_BYTES);
}

int xts_link_init(struct xts_link *link, const struct xts_link_config *config, uint64_t now_ns)
{
	if (!window_valid(config->frame_window) || !size_valid(config->largest_message, config->features) ||
	    (config->role != XTS_LINK_HOST && config->role != XTS_LINK_PROXY) || !token_valid(config))
		return -EINVAL;
	memset(link, 0, sizeof *link);
	link->config = *config;
	if (!link->config.ethertype)
		link->config.ethertype = XTS_ETHERTYPE;
	link->state = XTS_LINK_OPENING;
	link->opened_ns = link->heard_ns = now_ns;
	if (config->role == XTS_LINK_HOST) {
		link->epoch = config->epoch;
		link->due = hello_due(link);
		if (config->token_bytes)
			link->config.features |= XTS_FEATURE_TOKEN;
	}
	return 0;
}

/* The link goes down; any other frame that was due is dropped. */
static void go_down(struct xts_link *link, int error, bool tell_peer)
{
	link->state = XTS_LINK_DOWN;
	link->error = error;
	link->violation = NULL;
	link->due = tell_peer && link->epoch ? DUE_GOODBYE : 0;
	link->goodbye_epoch = link->epoch;
	link->goodbye_error = (uint16_t)error;
}

static enum xts_link_verdict violation(struct xts_link *link, uint64_t *counter, const char *what)
{
	++*counter;
	go_down(link, EPROTO, true);
	link->violation = what;
	return XTS_LINK_CLOSED;
}

/* Processes the acknowledgement that every frame carries; false: it is for frames that were never sent. */
static bool take_ack(struct xts_link *link, uint8_t frame_ack)
{
	if ((uint8_t)(frame_ack - link->acked) > in_flight(link))
		return false;
	link->acked = frame_ack;
	return true;
}

static void open_epoch(struct xts_link *link, uint64_t epoch, uint16_t window, uint32_t packet_bytes, uint64_t features)
{
	uint32_t room = packet_bytes - link->config.head_bytes;
	bool parts = features & XTS_FEATURE_PARTS && xts_parts_needed(packet_bytes);

	link->state = XTS_LINK_UP;
	link->error = 0;
	link->epoch = epoch;
	link->frame_window = window;
	link->packet_bytes = packet_bytes;
	link->largest_message = parts ? xts_parts_frame_bytes(room) : room;
	link->features = features;
	link->sent = link->acked = link->received = link->recycled = link->acked_to_peer = 0;
	link->traffic = false;
	if (link->config.role == XTS_LINK_PROXY)
		link->replaced_ticket = 0;
	link->replaced_said = false;
	link->pinged_ns = 0;
	link->clock_token = 0;
	link->catch_up_token = 0;
}

/* Refuses a HELLO: the answer carries the error, and the link waits for another HELLO. */
static enum xts_link_verdict refuse_hello(struct xts_link *link, const struct xts_hello *hello, int error)
{
	bool was_up = link->state == XTS_LINK_UP;

	link->state = XTS_LINK_OPENING;
	link->error = error;
	link->epoch = hello->epoch;
	link->due = DUE_HELLO_ACK;
	return was_up ? XTS_LINK_CLOSED : XTS_LINK_CONSUMED;
}

/* The host has said it to the process that has died, and has been up since, perhaps: it would be up twice. It repeats
 * what is not answered. */
static bool is_hello_of_before(const struct xts_link *link, const struct xts_hello *hello)
{
	return link->replaced_ticket && !link->replaced_said && hello->epoch == link->epoch;
}

static enum xts_link_verdict receive_hello(struct xts_link *link, const struct xts_hello *hello)
{
	const struct xts_link_config *config = &link->config;
	const struct xts_token *token = link->token_here ? &link->token : NULL;
	uint64_t features = config->features & ~(config->admit ? 0 : XTS_FEATURE_TOKEN);
	int error;

	link->stats.hellos++;
	link->token_here = false;
	if (is_hello_of_before(link, hello)) {
		link->stats.dropped_stale++;
		return XTS_LINK_DROPPED;
	}
	if (hello->epoch == link->epoch && link->state == XTS_LINK_UP) {
		if (link->traffic)
			return violation(link, &link->stats.sequence_errors, "HELLO in an epoch that has had messages");
		link->due |= DUE_HELLO_ACK;
		return XTS_LINK_CONSUMED;
	}
	if (hello->epoch == link->epoch && link->state == XTS_LINK_DOWN) {
		link->due |= DUE_GOODBYE; /* the peer does not know that this epoch has ended */
		return XTS_LINK_CONSUMED;
	}
	if (hello->version != XTS_WIRE_VERSION)
		return refuse_hello(link, hello, EPROTONOSUPPORT);
	if (hello->required & ~config->features)
		return refuse_hello(link, hello, EOPNOTSUPP);
	if (!window_valid(hello->frame_window) || !size_valid(hello->largest_message, hello->features) || !hello->epoch)
		return refuse_hello(link, hello, EINVAL);
	if (!size_valid(hello->largest_message, features))
		return refuse_hello(link, hello, EMSGSIZE);
	error = config->admit ? config->admit(config->admit_context, hello, token, link->token_payload) : 0;
	if (error)
		return refuse_hello(link, hello, error);
	open_epoch(link, hello->epoch,
		   hello->frame_window < config->frame_window ? hello->frame_window : config->frame_window,
		   hello->largest_message < config->largest_message ? hello->largest_message : config->largest_message,
		   hello->features & features);
	link->config.pid = hello->pid;
	link->due = DUE_HELLO_ACK;
	return XTS_LINK_OPENED;
}

static enum xts_link_verdict receive_hello_ack(struct xts_link *link, const struct xts_head *head,
					       const struct xts_hello_ack *ack)
{
	const struct xts_link_config *config = &link->config;

	if (ack->epoch != link->epoch || link->state == XTS_LINK_DOWN) {
		link->stats.dropped_stale++;
		return XTS_LINK_DROPPED;
	}
	if (link->state == XTS_LINK_UP)
		return XTS_LINK_CONSUMED; /* the answer to a repeated HELLO */
	if (head->error) {
		link->refusal = config->features & XTS_FEATURE_REFUSAL ? head->flags : 0;
		go_down(link, head->error, false);
		return XTS_LINK_CLOSED;
	}
	if (ack->version != XTS_WIRE_VERSION || !window_valid(ack->frame_window) ||
	    ack->frame_window > config->frame_window || !size_valid(ack->largest_message, ack->features) ||
	    ack->largest_message > config->largest_message || (ack->features & ~config->features) ||
	    (config->required & ~ack->features))
		return violation(link, &link->stats.malformed, "HELLO_ACK grants what was not asked for");
	open_epoch(link, ack->epoch, ack->frame_window, ack->largest_message, ack->features);
	link->sockets_max = ack->sockets_max;
	link->due = 0;
	return XTS_LINK_OPENED;
}

static enum xts_link_verdict receive_goodbye(struct xts_link *link, const struct xts_head *head,
					     const struct xts_goodbye *goodbye)
{
	if (!goodbye->epoch && head->error == ENOTCONN && link->config.role == XTS_LINK_HOST &&
	    link->state == XTS_LINK_UP) {
		go_down(link, ESHUTDOWN, false); /* the proxy is another one: see tell_of_restart() */
		return XTS_LINK_CLOSED;
	}
	if (goodbye->epoch != link->epoch || !link->epoch || link->state == XTS_LINK_DOWN) {
		link->stats.dropped_stale++;
		return XTS_LINK_DROPPED;
	}
	if (link->config.role == XTS_LINK_HOST && head->error == ERESTART)
		(void)take_ack(link, head->frame_ack);
	go_down(link, head->error ? head->error : ESHUTDOWN, false);
	return XTS_LINK_CLOSED;
}

void xts_link_expect(struct xts_link *link, uint64_t epoch)
{
	if (link->state == XTS_LINK_OPENING && !link->epoch)
		link->epoch = epoch;
}

void xts_link_replace(struct xts_link *link, uint64_t epoch, uint64_t ticket)
{
	xts_link_expect(link, epoch);
	link->replaced_ticket = ticket;
}

void xts_link_replay_ends(struct xts_link *link)
{
	if (link->replaced_ticket && !link->replaced_said)
		link->due |= DUE_REPLACED;
}

/* The process that had this epoch has died. What it had sent is here, since frames arrive in order. */
static enum xts_link_verdict receive_replaced(struct xts_link *link, const struct xts_replaced *m)
{
	if (m->epoch == link->epoch && link->state == XTS_LINK_OPENING) {
		link->replaced_ticket = m->ticket; /* the next one has died as well, before it answered HELLO */
		return XTS_LINK_CONSUMED;
	}
	if (m->epoch != link->epoch || link->state != XTS_LINK_UP) {
		link->stats.dropped_stale++;
		return XTS_LINK_DROPPED;
	}
	if (!m->ticket || !(link->features & (XTS_FEATURE_RESUME | XTS_FEATURE_RESUME_RELAYED)))
		return violation(link, &link->stats.malformed, "REPLACED without its feature or ticket");
	go_down(link, ERESTART, false);
	link->replaced_ticket = m->ticket;
	return XTS_LINK_CLOSED;
}

unsigned xts_link_unacknowledged(const struct xts_link *link)
{
	return in_flight(link);
}

/* Keeps the token until the HELLO that follows it. */
static enum xts_link_verdict receive_token(struct xts_link *link, const void *frame)
{
	if (link->config.admit)
		memcpy(link->token_payload, (const uint8_t *)frame + XTS_TOKEN_BYTES, link->token.length);
	link->token_here = link->config.admit;
	return XTS_LINK_CONSUMED;
}

/* TOKEN, HELLO, HELLO_ACK, REPLACED and GOODBYE have no sequence number: they begin and end the sequence. */
static enum xts_link_verdict receive_epoch(struct xts_link *link, const struct xts_head *head, const void *frame,
					   size_t bytes)
{
	union {
		struct xts_hello hello;
		struct xts_hello_ack ack;
		struct xts_goodbye goodbye;
		struct xts_replaced replaced;
	} m;

	switch (head->type) {
	case XTS_LINK_TOKEN:
		link->token_here = false;
		if (!xts_token_decode(&link->token, frame, bytes))
			return receive_token(link, frame);
		break;
	case XTS_LINK_HELLO:
		if (!xts_hello_decode(&m.hello, frame, bytes))
			return receive_hello(link, &m.hello);
		break;
	case XTS_LINK_HELLO_ACK:
		if (!xts_hello_ack_decode(&m.ack, frame, bytes))
			return receive_hello_ack(link, head, &m.ack);
		break;
	case XTS_LINK_REPLACED:
		if (!xts_replaced_decode(&m.replaced, frame, bytes))
			return receive_replaced(link, &m.replaced);
		break;
	default:
		if (!xts_goodbye_decode(&m.goodbye, frame, bytes))
			return receive_goodbye(link, head, &m.goodbye);
	}
	link->stats.malformed++; /* a field is out of range: dropped, since the frame belongs to no epoch */
	return XTS_LINK_DROPPED;
}

/* CLOCK: the answer's time is written when the answer leaves. */
static enum xts_link_verdict receive_clock(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_clock clock;

	if (xts_clock_decode(&clock, frame, bytes))
		return violation(link, &link->stats.malformed, "a malformed CLOCK");
	if (link->config.clock) {
		link->clock_token = clock.token;
		link->due |= DUE_CLOCK_ACK;
	}
	return XTS_LINK_CONSUMED;
}

static enum xts_link_verdict receive_clock_ack(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_clock_ack ack;

	if (xts_clock_ack_decode(&ack, frame, bytes))
		return violation(link, &link->stats.malformed, "a malformed CLOCK_ACK");
	if (link->config.clock && link->clock_token && ack.token == link->clock_token) {
		link->clock_token = 0;
		link->config.clock(link->config.clock_context, &ack);
	}
	return XTS_LINK_CONSUMED;
}

/* CATCH_UP, at a proxy that has it in force. A request replaces an earlier one that is not answered yet, so a host that
 * sends many gets one answer. */
static enum xts_link_verdict receive_catch_up(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_catch_up m;

	if (xts_catch_up_decode(&m, frame, bytes) || !m.token || !(link->features & XTS_FEATURE_CATCH_UP))
		return violation(link, &link->stats.malformed, "a malformed CATCH_UP");
	link->catch_up_token = m.token;
	link->catch_up_new = true;
	link->due &= (uint16_t)~DUE_CAUGHT_UP;
	return XTS_LINK_CONSUMED;
}

/* Only the answer to the request that is open counts. */
static enum xts_link_verdict receive_caught_up(struct xts_link *link, const void *frame, size_t bytes)
{
	struct xts_caught_up m;

	if (xts_caught_up_decode(&m, frame, bytes))
		return violation(link, &link->stats.malformed, "a malformed CAUGHT_UP");
	if (link->catch_up_token && m.token == link->catch_up_token)
		link->catch_up_token = 0;
	return XTS_LINK_CONSUMED;
}

/* The link's own frames on an open link, but those that end it. */
static enum xts_link_verdict receive_control(struct xts_link *link, const struct xts_head *head, const void *frame,
					     size_t bytes)
{
	struct xts_ping ping;
	struct xts_pong pong;

	switch (head->type) {
	case XTS_LINK_FRAME_ACK:
		link->stats.received_acks++;
		return XTS_LINK_CONSUMED;
	case XTS_LINK_PING:
		if (xts_ping_decode(&ping, frame, bytes))
			return violation(link, &link->stats.malformed, "a malformed PING");
		link->pong_token = ping.token;
		link->due |= DUE_PONG;
		return XTS_LINK_CONSUMED;
	case XTS_LINK_PONG:
		/* Any frame shows that the peer is alive, so a PONG with an old token is as good. */
		if (xts_pong_decode(&pong, frame, bytes))
			return violation(link, &link->stats.malformed, "a malformed PONG");
		return XTS_LINK_CONSUMED;
	case XTS_LINK_CLOCK:
		return receive_clock(link, frame, bytes);
	case XTS_LINK_CLOCK_ACK:
		return receive_clock_ack(link, frame, bytes);
	case XTS_LINK_CATCH_UP:
		return receive_catch_up(link, frame, bytes);
	case XTS_LINK_CAUGHT_UP:
		return receive_caught_up(link, frame, bytes);
	default:
		link->stats.malformed++; /* a control type of a later version, which can be ignored */
		return XTS_LINK_DROPPED;
	}
}

static bool is_foreign(const struct xts_link *link, const uint8_t *frame)
{
	return memcmp(frame + 6, link->config.peer_mac, 6) || xts_get16(frame + 12) != link->config.ethertype;
}

/* A frame has come, and this proxy has had no epoch so far: it is of an epoch of the proxy before, whose end the host
 * has not noticed. GOODBYE with epoch 0 tells it. Frames arrive in order, so a host whose new epoch is up has this
 * answer behind it. */
static void tell_of_restart(struct xts_link *link)
{
	if (link->replaced_said)
		link->due |= DUE_REPLACED;
	if (link->config.role != XTS_LINK_PROXY || link->epoch)
		return;
	link->goodbye_epoch = 0;
	link->goodbye_error = ENOTCONN;
	link->due |= DUE_GOODBYE;
}

/* A frame that was sent to the process which has died. */
static enum xts_link_verdict replay(struct xts_link *link, const struct xts_head *head)
{
	link->replay_follows = xts_link_replay_follows(&link->replay, head);
	return XTS_LINK_REPLAYED;
}

enum xts_link_verdict xts_link_receive(struct xts_link *link, const void *head, size_t head_bytes, size_t frame_bytes,
				       uint64_t now_ns, struct xts_head *out)
{
	bool right_way;
	size_t fixed;

	if (head_bytes > frame_bytes)
		head_bytes = frame_bytes;
	if (xts_head_decode(out, head, head_bytes)) {
		link->stats.malformed++;
		return XTS_LINK_DROPPED;
	}
	if (is_foreign(link, head)) {
		link->stats.dropped_foreign++;
		return XTS_LINK_DROPPED;
	}
	right_way = link->config.role == XTS_LINK_HOST ? xts_type_to_host(out->type) : xts_type_to_proxy(out->type);
	fixed = xts_type_bytes(out->type);
	if (right_way && head_bytes >= fixed &&
	    (out->type == XTS_LINK_TOKEN || out->type == XTS_LINK_HELLO || out->type == XTS_LINK_HELLO_ACK ||
	     out->type == XTS_LINK_GOODBYE || out->type == XTS_LINK_REPLACED)) {
		link->heard_ns = now_ns;
		return receive_epoch(link, out, head, head_bytes);
	}
	if (link->state != XTS_LINK_UP) {
		link->stats.dropped_early++;
		tell_of_restart(link);
		return link->replaced_ticket && right_way ? replay(link, out) : XTS_LINK_DROPPED;
	}
	link->heard_ns = now_ns;
	link->pinged_ns = 0;
	if (!fixed && !xts_type_sequenced(out->type))
		return receive_control(link, out, head, head_bytes);
	if (!fixed || !right_way || head_bytes < fixed)
		return violation(link, &link->stats.malformed,
				 "an unknown or short message, or one of the other direction");
	if (out->seqno != link->received)
		return violation(link, &link->stats.sequence_errors, "a message out of order");
	if (!take_ack(link, out->frame_ack))
		return violation(link, &link->stats.credit_errors, "an acknowledgement of what was never sent");
	if (!xts_type_sequenced(out->type))
		return receive_control(link, out, head, head_bytes);
	if (unrecycled(link) >= link->frame_window)
		return violation(link, &link->stats.credit_errors, "more messages than the window");
	link->received++;
	link->traffic = true;
	link->stats.received_frames++;
	return XTS_LINK_DELIVER;
}

void xts_link_recycled(struct xts_link *link)
{
	if (link->state == XTS_LINK_UP && unrecycled(link))
		link->recycled++;
}

unsigned xts_link_credits(const struct xts_link *link)
{
	if (link->state != XTS_LINK_UP || (link->due & DUE_HELLO_ACK))
		return 0; /* nothing may be sent before the HELLO_ACK: the peer would drop it */
	return (unsigned)link->frame_window - in_flight(link);
}

static void fill_ethernet(const struct xts_link *link, uint8_t *frame)
{
	memcpy(frame, link->config.peer_mac, 6);
	memcpy(frame + 6, link->config.local_mac, 6);
	xts_put16(frame + 12, link->config.ethertype);
	xts_put8(frame + 15, link->sent);
	xts_put8(frame + 16, link->recycled);
}

void xts_link_seal(struct xts_link *link, void *frame)
{
	fill_ethernet(link, frame);
	link->acked_to_peer = link->recycled;
	link->sent++;
	link->stats.sent_frames++;
}

static size_t control(struct xts_link *link, uint8_t *frame, uint16_t due, uint8_t type, uint16_t error, size_t bytes)
{
	link->due &= (uint16_t)~due;
	memset(frame, 0, bytes);
	xts_head_encode(frame, type, 0, error, 0);
	fill_ethernet(link, frame);
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
	if (ack_due(link)) {
		link->stats.sent_acks++;
		return control(link, frame, 0, XTS_LINK_FRAME_ACK, 0, XTS_FRAME_ACK_BYTES);
	}
	return 0;
}

bool xts_link_control_due(const struct xts_link *link)
{
	return link->due || ack_due(link);
}

/* After a silence of ping_ms; again after as long a time, twice that, and so on: the first ping may have met nobody,
 * and a proxy that is started after it can only answer another one. */
static uint64_t next_ping_ns(const struct xts_link *link)
{
	uint64_t ping_ns = ms_to_ns(link->config.ping_ms);

	if (!link->pinged_ns)
		return link->heard_ns + ping_ns;
	return link->pings < PINGS_MAX ? link->pinged_ns + ping_ns * ((1u << link->pings) - 1) : UINT64_MAX;
}

enum xts_link_verdict xts_link_tick(struct xts_link *link, uint64_t now_ns)
{
	const struct xts_link_config *config = &link->config;

	if (link->state == XTS_LINK_OPENING && config->role == XTS_LINK_HOST) {
		if (config->dead_ms && now_ns - link->opened_ns >= ms_to_ns(config->dead_ms)) {
			go_down(link, ETIMEDOUT, false);
			return XTS_LINK_CLOSED;
		}
		if (now_ns - link->hello_ns >= HELLO_REPEAT_NS)
			link->due |= hello_due(link);
	} else if (link->state == XTS_LINK_UP && link->watching && config->ping_ms) {
		link->watched_ns = now_ns;
		if (link->pinged_ns && config->dead_ms && now_ns - link->pinged_ns >= ms_to_ns(config->dead_ms)) {
			go_down(link, ETIMEDOUT, true);
			return XTS_LINK_CLOSED;
		}
		if (now_ns >= next_ping_ns(link)) {
			if (!link->pinged_ns) {
				link->pinged_ns = now_ns;
				link->pings = 0;
			}
			link->pings++;
			link->due |= DUE_PING;
			xts_link_ask_clock(link);
		}
	}
	return XTS_LINK_CONSUMED;
}

void xts_link_ask_clock(struct xts_link *link)
{
	if (link->config.role == XTS_LINK_HOST && link->config.clock && link->state == XTS_LINK_UP &&
	    link->features & XTS_FEATURE_STAMPS)
		link->due |= DUE_CLOCK;
}

bool xts_link_catch_up(struct xts_link *link)
{
	if (link->config.role != XTS_LINK_HOST || link->state != XTS_LINK_UP ||
	    !(link->features & XTS_FEATURE_CATCH_UP) || link->catch_up_token)
		return false;
	link->catch_up_token = ++link->catch_ups;
	link->due |= DUE_CATCH_UP;
	return true;
}

bool xts_link_catching_up(const struct xts_link *link)
{
	return link->state == XTS_LINK_UP && link->catch_up_token && !(link->due & DUE_CAUGHT_UP);
}

bool xts_link_catch_up_begins(struct xts_link *link)
{
	bool begins = xts_link_catching_up(link) && link->catch_up_new;

	link->catch_up_new = false;
	return begins;
}

void xts_link_caught_up(struct xts_link *link)
{
	if (xts_link_catching_up(link))
		link->due |= DUE_CAUGHT_UP;
}

unsigned xts_link_peer_credits(const struct xts_link *link)
{
	return (unsigned)link->frame_window - (uint8_t)(link->received - link->acked_to_peer);
}

uint64_t xts_link_deadline_ns(const struct xts_link *link)
{
	const struct xts_link_config *config = &link->config;

	if (link->state == XTS_LINK_OPENING && config->role == XTS_LINK_HOST) {
		uint64_t repeat_ns = link->hello_ns + HELLO_REPEAT_NS;
		uint64_t dead_ns = link->opened_ns + ms_to_ns(config->dead_ms);

		return config->dead_ms && dead_ns < repeat_ns ? dead_ns : repeat_ns;
	}
	if (link->state != XTS_LINK_UP || !link->watching || !config->ping_ms)
		return UINT64_MAX;
	if (link->pinged_ns && config->dead_ms && link->pinged_ns + ms_to_ns(config->dead_ms) < next_ping_ns(link))
		return link->pinged_ns + ms_to_ns(config->dead_ms);
	return next_ping_ns(link);
}

void xts_link_watch(struct xts_link *link, bool watch, uint64_t now_ns)
{
	if (watch && !link->watching) {
		uint64_t pause_ns = now_ns - link->watched_ns;

		if (pause_ns > ms_to_ns(link->config.ping_ms) / 2) {
			link->heard_ns = link->heard_ns < link->watched_ns ? link->heard_ns + pause_ns : now_ns;
			link->pinged_ns += link->pinged_ns ? pause_ns : 0;
		}
		link->watched_ns = now_ns;
	}
	link->watching = watch;
}

void xts_link_goodbye(struct xts_link *link, int error)
{
	if (link->state == XTS_LINK_DOWN)
		return;
	go_down(link, error ? error : ESHUTDOWN, true);
	link->goodbye_error = (uint16_t)error;
}

void xts_link_fail(struct xts_link *link, int error)
{
	if (link->state != XTS_LINK_DOWN)
		go_down(link, error, true);
}

void xts_link_violated(struct xts_link *link, const char *what)
{
	if (link->state == XTS_LINK_DOWN)
		return;
	go_down(link, EPROTO, true);
	link->violation = what;
}
