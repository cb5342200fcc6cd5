/* How an epoch begins (TOKEN, HELLO, HELLO_ACK), and how it ends (GOODBYE, REPLACED, a violation). link.h has the
 * theory of operation. */
#include "link/link_inside.h"
#include "decorators/parts.h"

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
		link->due = link_hello_due(link);
		if (config->token_bytes)
			link->config.features |= XTS_FEATURE_TOKEN;
	}
	return 0;
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

void link_go_down(struct xts_link *link, int error, bool tell_peer)
{
	link->state = XTS_LINK_DOWN;
	link->error = error;
	link->violation = NULL;
	link->due = tell_peer && link->epoch ? DUE_GOODBYE : 0;
	link->goodbye_epoch = link->epoch;
	link->goodbye_error = (uint16_t)error;
}

enum xts_link_verdict link_violation(struct xts_link *link, uint64_t *counter, const char *what)
{
	++*counter;
	link_go_down(link, EPROTO, true);
	link->violation = what;
	return XTS_LINK_CLOSED;
}

void xts_link_goodbye(struct xts_link *link, int error)
{
	if (link->state == XTS_LINK_DOWN)
		return;
	link_go_down(link, error ? error : ESHUTDOWN, true);
	link->goodbye_error = (uint16_t)error;
}

void xts_link_fail(struct xts_link *link, int error)
{
	if (link->state != XTS_LINK_DOWN)
		link_go_down(link, error, true);
}

void xts_link_violated(struct xts_link *link, const char *what)
{
	if (link->state == XTS_LINK_DOWN)
		return;
	link_go_down(link, EPROTO, true);
	link->violation = what;
}

/* --- its beginning ------------------------------------------------------------------------------------------------ */

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
			return link_violation(link, &link->stats.sequence_errors,
					      "HELLO in an epoch that has had messages");
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
		link_go_down(link, head->error, false);
		return XTS_LINK_CLOSED;
	}
	if (ack->version != XTS_WIRE_VERSION || !window_valid(ack->frame_window) ||
	    ack->frame_window > config->frame_window || !size_valid(ack->largest_message, ack->features) ||
	    ack->largest_message > config->largest_message || (ack->features & ~config->features) ||
	    (config->required & ~ack->features))
		return link_violation(link, &link->stats.malformed, "HELLO_ACK grants what was not asked for");
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
		link_go_down(link, ESHUTDOWN, false); /* the proxy is another one: see tell_of_restart() */
		return XTS_LINK_CLOSED;
	}
	if (goodbye->epoch != link->epoch || !link->epoch || link->state == XTS_LINK_DOWN) {
		link->stats.dropped_stale++;
		return XTS_LINK_DROPPED;
	}
	if (link->config.role == XTS_LINK_HOST && head->error == ERESTART)
		(void)link_take_ack(link, head->frame_ack);
	link_go_down(link, head->error ? head->error : ESHUTDOWN, false);
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
	if (xts_link_replays(link))
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
		return link_violation(link, &link->stats.malformed, "REPLACED without its feature or ticket");
	link_go_down(link, ERESTART, false);
	link->replaced_ticket = m->ticket;
	return XTS_LINK_CLOSED;
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
enum xts_link_verdict link_receive_epoch(struct xts_link *link, const struct xts_head *head, const void *frame,
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
