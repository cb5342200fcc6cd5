/*
 * libFuzzer target: a link of each role, joined back to back, to which the input adds
 * arbitrary frames, losses and time.
 *
 * The input is a program of one-byte operations with their arguments. Whatever it does: memory is safe, no more frame
 * credits than the window exist, control frames end, a link that is down stays down (the proxy's until a HELLO) with an
 * errno, and what a link delivers was within its window.
 */
#include <stdlib.h>

#include "ensure.h"
#include "input.h"
#include "link/link.h"
#include "steps.h"

#define FRAMES_MAX 512
#define HEAD_MAX 128

struct frame {
	uint8_t data[HEAD_MAX];
	size_t bytes;
};

/* Frames on their way to one end. */
struct pipe {
	struct frame frame[FRAMES_MAX];
	unsigned first, count;
};

struct end {
	struct xts_link link;
	struct pipe inbox;
	unsigned held; /* delivered in this epoch and not recycled */
};

static void put(struct pipe *pipe, const void *data, size_t bytes)
{
	struct frame *f;

	if (pipe->count == FRAMES_MAX)
		return; /* a full queue loses frames */
	f = &pipe->frame[(pipe->first + pipe->count++) % FRAMES_MAX];
	f->bytes = bytes;
	memcpy(f->data, data, bytes < HEAD_MAX ? bytes : HEAD_MAX);
}

static void check(const struct end *end)
{
	const struct xts_link *link = &end->link;
	unsigned credits = xts_link_credits(link);

	if (link->state == XTS_LINK_UP) {
		ENSURE(link->frame_window >= XTS_FRAME_WINDOW_MIN && link->frame_window <= link->config.frame_window);
		ENSURE(link->largest_message >= XTS_FRAME_BYTES_SINGLE);
		ENSURE(link->largest_message <= link->config.largest_message);
		ENSURE(!(link->features & ~link->config.features));
		ENSURE(credits <= link->frame_window);
		ENSURE(end->held <= link->frame_window);
		ENSURE(link->error == 0);
	} else {
		ENSURE(credits == 0);
	}
	if (link->state == XTS_LINK_DOWN)
		ENSURE(link->error > 0 && link->error < 65536);
}

static void receive(struct end *end, const uint8_t *data, size_t bytes, uint64_t now_ns)
{
	/* Exactly as many bytes as promised, so that AddressSanitizer sees a step beyond. */
	size_t head_bytes = bytes < HEAD_MAX ? bytes : HEAD_MAX;
	uint8_t *copy = malloc(head_bytes ? head_bytes : 1);
	enum xts_link_state before = end->link.state;
	struct xts_head head;
	enum xts_link_verdict verdict;

	ENSURE(copy);
	memcpy(copy, data, head_bytes);
	verdict = xts_link_receive(&end->link, copy, head_bytes, bytes, now_ns, &head);
	free(copy);
	switch (verdict) {
	case XTS_LINK_DELIVER:
		ENSURE(before == XTS_LINK_UP && end->link.state == XTS_LINK_UP);
		ENSURE(xts_type_sequenced(head.type) && bytes >= xts_type_bytes(head.type));
		ENSURE(end->link.config.role == XTS_LINK_HOST ? xts_type_to_host(head.type) :
								xts_type_to_proxy(head.type));
		end->held++;
		break;
	case XTS_LINK_OPENED:
		ENSURE(end->link.state == XTS_LINK_UP);
		end->held = 0;
		break;
	case XTS_LINK_CLOSED:
		ENSURE(before != XTS_LINK_DOWN && end->link.state != XTS_LINK_UP && end->link.error);
		end->held = 0;
		break;
	default:
		ENSURE(end->link.state == before || end->link.config.role == XTS_LINK_PROXY);
	}
}

static void pump(struct end *end, struct end *peer, uint64_t now_ns)
{
	uint8_t frame[HEAD_MAX];
	size_t bytes;

	for (unsigned n = 0; (bytes = xts_link_control(&end->link, frame, now_ns)); n++) {
		ENSURE(n < 8 && bytes <= sizeof frame && bytes == xts_type_bytes(frame[14]));
		ENSURE(!xts_type_sequenced(frame[14]));
		put(&peer->inbox, frame, bytes);
	}
	ENSURE(!xts_link_control_due(&end->link));
}

static void send(struct end *end, struct end *peer)
{
	bool host = end->link.config.role == XTS_LINK_HOST;
	uint8_t frame[XTS_SEND_BYTES] = { 0 };

	if (!xts_link_credits(&end->link))
		return;
	xts_head_encode(frame, host ? XTS_CMD_SEND : XTS_REPLY_RECV, 0, 0, 1);
	xts_link_seal(&end->link, frame);
	put(&peer->inbox, frame, sizeof frame);
}

/* A frame out of the input, made plausible: addresses and EtherType fit unless the first byte says otherwise. */
static void inject(struct end *end, struct input *in, uint64_t now_ns)
{
	uint8_t frame[HEAD_MAX] = { 0 };
	uint8_t how = take(in);
	size_t bytes = take(in) % (HEAD_MAX + 1);

	for (size_t i = 14; i < bytes; i++)
		frame[i] = take(in);
	if (!(how & 1)) {
		memcpy(frame + 6, end->link.config.peer_mac, 6);
		xts_put16(frame + 12, end->link.config.ethertype);
	}
	if (how & 2)
		frame[15] = end->link.received;
	if (how & 4)
		frame[16] = end->link.acked;
	if (how & 8) /* the epoch in force, where a GOODBYE has it */
		xts_put64(frame + XTS_HEAD_BYTES, end->link.epoch);
	receive(end, frame, how & 16 ? bytes + 5000 : bytes, now_ns);
}

static void start(struct end *end, enum xts_link_role role, struct input *in)
{
	struct xts_link_config config = {
		.role = role,
		.local_mac = { 2, 0, 0, 0, 0, role == XTS_LINK_HOST ? 1 : 2 },
		.peer_mac = { 2, 0, 0, 0, 0, role == XTS_LINK_HOST ? 2 : 1 },
		.frame_window = (uint16_t)(XTS_FRAME_WINDOW_MIN +
					   take(in) % (XTS_FRAME_WINDOW_MAX - XTS_FRAME_WINDOW_MIN + 1)),
		.largest_message = take(in) & 1 ? XTS_FRAME_BYTES_MAX : XTS_FRAME_BYTES_SINGLE,
		.features = take(in),
		.epoch = role == XTS_LINK_HOST ? 1u + take(in) : 0,
		.ping_ms = take(in),
		.dead_ms = 4u * take(in),
	};

	if (role == XTS_LINK_HOST)
		config.required = config.features & take(in);
	ENSURE(!xts_link_init(&end->link, &config, 1));
	end->held = 0;
}

static void step(struct end *end, struct end *peer, struct input *in, uint64_t *now_ns)
{
	uint8_t op = take(in);
	struct frame f;

	switch (op % 16) {
	case 0:
		inject(end, in, *now_ns);
		break;
	case 1:
	case 2:
		send(end, peer);
		break;
	case 3:
	case 4:
	case 5:
		if (!end->inbox.count)
			break;
		f = end->inbox.frame[end->inbox.first];
		end->inbox.first = (end->inbox.first + 1) % FRAMES_MAX;
		end->inbox.count--;
		receive(end, f.data, f.bytes, *now_ns);
		break;
	case 6:
	case 7:
		if (end->held && end->held--)
			xts_link_recycled(&end->link);
		break;
	case 8:
	case 9:
		pump(end, peer, *now_ns);
		break;
	case 10:
		*now_ns += (uint64_t)take(in) * 10 * 1000 * 1000;
		if (xts_link_tick(&end->link, *now_ns) == XTS_LINK_CLOSED) {
			ENSURE(end->link.state == XTS_LINK_DOWN);
			end->held = 0;
		}
		break;
	case 11: /* lost */
		if (end->inbox.count) {
			end->inbox.first = (end->inbox.first + 1) % FRAMES_MAX;
			end->inbox.count--;
		}
		break;
	case 12: /* repeated, later */
		if (end->inbox.count) {
			f = end->inbox.frame[end->inbox.first];
			put(&end->inbox, f.data, f.bytes);
		}
		break;
	case 13:
		xts_link_watch(&end->link, take(in) & 1, *now_ns);
		break;
	case 14:
		if (take(in) == 7) {
			xts_link_goodbye(&end->link, take(in));
			end->held = 0;
		}
		break;
	default: /* a new process on the host's side, with its own epoch */
		if (end->link.config.role == XTS_LINK_HOST && take(in) == 7)
			start(end, XTS_LINK_HOST, in);
	}
	ENSURE(xts_link_deadline_ns(&end->link) != 0);
	check(end);
	check(peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct end end[2];
	struct input in = { data, bytes };
	uint64_t now_ns = 1;

	memset(end, 0, sizeof end);
	start(&end[0], XTS_LINK_HOST, &in);
	start(&end[1], XTS_LINK_PROXY, &in);
	if (take(&in) & 1) { /* most interesting things happen after opening */
		pump(&end[0], &end[1], now_ns);
		end[1].inbox.count = 0;
		receive(&end[1], end[1].inbox.frame[end[1].inbox.first].data, XTS_HELLO_BYTES, now_ns);
		pump(&end[1], &end[0], now_ns);
	}
	while (in.bytes) {
		uint8_t who = *in.data >> 7;

		step_begins(&in, data);
		step(&end[who], &end[1 - who], &in, &now_ns);
	}
	steps_ran(data, bytes);
	return 0;
}
