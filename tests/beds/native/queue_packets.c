/*
 * A kind of queue for tests that the product does not have: packets over a Unix socket pair. It is added to the
 * registry alone (xts_queue_kind_add()), to show that nothing else has to know a kind.
 *
 * A frame is one packet, sent by the kick; what the socket does not take waits for the next one. Frames are received
 * into buffers of our own, so that they can be kept and given back in any order.
 */
#include "queues/queue_kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUMBER 200u
#define SLOTS_MAX 512u
#define SEND_BUFFER (16 << 20)

enum slot_state { FREE, TAKEN, WAITING };

struct packet_queue {
	struct xts_queue base;
	int fd;
	uint32_t slots, buffers;
	uint8_t *memory;
	uint8_t state[SLOTS_MAX];
	bool retained[SLOTS_MAX], lent[SLOTS_MAX];
	/* submitted, and not sent yet */
	uint32_t waiting_slot[SLOTS_MAX], waiting_bytes[SLOTS_MAX], first, count;
};

extern const struct xts_queue_kind xts_queue_packets;

static struct packet_queue *packets_of(struct xts_queue *q)
{
	return (struct packet_queue *)q;
}

static uint8_t *memory_of(struct packet_queue *q, uint32_t place)
{
	return q->memory + (size_t)place * q->base.largest_message;
}

static int packets_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct packet_queue *q = packets_of(base);

	for (uint32_t i = 0; i < q->slots; i++) {
		if (q->state[i] != FREE)
			continue;
		q->state[i] = TAKEN;
		slot->index = i;
		slot->data = memory_of(q, i);
		slot->capacity = base->largest_message;
		return 0;
	}
	base->stats.tx_no_slot++;
	return -EAGAIN;
}

static void packets_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct packet_queue *q = packets_of(base);
	uint32_t place = (q->first + q->count++) % SLOTS_MAX;

	q->state[slot->index] = WAITING;
	q->waiting_slot[place] = slot->index;
	q->waiting_bytes[place] = bytes;
	base->stats.tx_frames++;
	base->stats.tx_bytes += bytes;
}

static void packets_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	packets_of(base)->state[slot->index] = FREE;
}

static int packets_kick(struct xts_queue *base)
{
	struct packet_queue *q = packets_of(base);

	while (q->count) {
		uint32_t slot = q->waiting_slot[q->first];

		base->stats.kicks++;
		if (send(q->fd, memory_of(q, slot), q->waiting_bytes[q->first], MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ENXIO;
		q->state[slot] = q->retained[slot] ? TAKEN : FREE;
		q->first = (q->first + 1) % SLOTS_MAX;
		q->count--;
	}
	return 0;
}

static int packets_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct packet_queue *q = packets_of(base);
	uint32_t i = 0;
	ssize_t got;

	while (i < q->buffers && q->lent[i])
		i++;
	if (i == q->buffers)
		return 0;
	got = recv(q->fd, memory_of(q, q->slots + i), base->largest_message, MSG_DONTWAIT | MSG_TRUNC);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
	if (!got)
		return -EPIPE;
	if (got > (ssize_t)base->largest_message) {
		base->stats.rx_invalid++;
		return 0;
	}
	q->lent[i] = true;
	frame->bytes = (uint32_t)got;
	frame->segments = 1;
	frame->cookie = i;
	frame->segment[0].iov_base = memory_of(q, q->slots + i);
	frame->segment[0].iov_len = (size_t)got;
	base->stats.rx_frames++;
	base->stats.rx_bytes += (uint64_t)got;
	return 1;
}

static void packets_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	packets_of(base)->lent[frame->cookie] = false;
}

static int packets_arm(struct xts_queue *base)
{
	base->stats.sleeps++;
	return 0; /* the socket is readable as long as something is there */
}

static void packets_disarm(struct xts_queue *base)
{
	base->stats.wakeups++;
}

static void packets_close(struct xts_queue *base)
{
	close(packets_of(base)->fd);
	free(packets_of(base)->memory);
	free(base);
}

static void packets_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	packets_of(base)->retained[slot->index] = true;
}

static int packets_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	if (packets_of(base)->state[slot->index] == WAITING)
		return -EAGAIN;
	packets_submit(base, slot, bytes);
	return 0;
}

static void packets_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct packet_queue *q = packets_of(base);

	q->retained[slot->index] = false;
	if (q->state[slot->index] == TAKEN)
		q->state[slot->index] = FREE;
}

static const struct xts_queue_ops packets_ops = {
	.kind = "packets",
	.acquire = packets_acquire,
	.submit = packets_submit,
	.abandon = packets_abandon,
	.kick = packets_kick,
	.receive = packets_receive,
	.recycle = packets_recycle,
	.arm = packets_arm,
	.disarm = packets_disarm,
	.close = packets_close,
	.retain = packets_retain,
	.submit_retained = packets_submit_retained,
	.release = packets_release,
};

static bool geometry_ok(const struct xts_attach_reply *g)
{
	return g->frame_window >= XTS_FRAME_WINDOW_MIN && g->frame_window <= XTS_FRAME_WINDOW_MAX &&
	       g->largest_message >= XTS_FRAME_BYTES_SINGLE && g->largest_message <= XTS_FRAME_BYTES_MAX &&
	       xts_queue_kept_of(g->rx_chunks, g->frame_window, 1) >= 0 && g->rx_chunks <= SLOTS_MAX;
}

static int packets_open(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	struct xts_attach_reply *g = &out->geometry;
	int pair[2], bytes = SEND_BUFFER;

	g->magic = XTS_ATTACH_MAGIC;
	g->version = XTS_ATTACH_VERSION;
	g->kind = NUMBER;
	g->ethertype = XTS_ETHERTYPE;
	g->frame_window = options->frame_window;
	g->queue_id = options->queue_id;
	g->largest_message = options->largest_message ? options->largest_message : XTS_FRAME_BYTES_MAX;
	g->rx_chunks = options->frame_window + XTS_CONTROL_RESERVE + options->kept_max;
	memcpy(g->local_mac, (const uint8_t[]){ 2, 'p', 'k', 't', 0, 1 }, 6);
	memcpy(g->peer_mac, (const uint8_t[]){ 2, 'p', 'k', 't', 0, 2 }, 6);
	if (!geometry_ok(g))
		return -EINVAL;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
		out->fds[i][0] = pair[i];
	}
	return 0;
}

static int packets_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	struct packet_queue *q;
	int type = 0;
	socklen_t bytes = sizeof type;

	if (!geometry_ok(g))
		return -EINVAL;
	if (getsockopt(fds[0], SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 || type != SOCK_SEQPACKET)
		return -EBADF;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->slots = g->frame_window + XTS_CONTROL_RESERVE;
	q->buffers = g->rx_chunks;
	q->memory = calloc(q->slots + q->buffers, g->largest_message);
	if (!q->memory) {
		free(q);
		return -ENOMEM;
	}
	q->fd = q->base.wait_fd = fds[0];
	q->base.ops = &packets_ops;
	q->base.largest_message = g->largest_message;
	q->base.frame_window = g->frame_window;
	q->base.kept_max = (uint32_t)xts_queue_kept_of(g->rx_chunks, g->frame_window, 1);
	q->base.traits = xts_queue_packets.traits;
	memcpy(q->base.local_mac, end == XTS_QUEUE_HOST ? g->local_mac : g->peer_mac, 6);
	memcpy(q->base.peer_mac, end == XTS_QUEUE_HOST ? g->peer_mac : g->local_mac, 6);
	*out = &q->base;
	return 0;
}

const struct xts_queue_kind xts_queue_packets = {
	.number = NUMBER,
	.name = "packets",
	.title = "packet",
	.descriptors = 1,
	.traits = XTS_QUEUE_KICK_COSTS | XTS_QUEUE_PACKETS | XTS_QUEUE_DEATH_SHOWS | XTS_QUEUE_RETAINS,
	.open = packets_open,
	.adopt = packets_adopt,
};
