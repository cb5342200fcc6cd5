/*
 * Received data, until the application reads it. Data stays in the received frame, and is copied once, straight into
 * the caller's buffer. At most half of the frame window is held in this way, so that frame credits keep coming back
 * however slowly an application reads: beyond that the oldest held frame is copied to the heap. Small messages that
 * follow others are gathered in heap buffers, so that many of them cost little more than their bytes. The sockets'
 * windows bound the total of unread data.
 */
#include <stdlib.h>

#include "core/received_data.h"
#include "core/channel.h"
#include "core/receive_callback.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "link/link.h"
#include "common/own_memory.h"
#include "queues/queue.h"

#define SMALL_BYTES 512u /* if data is waiting already, fewer bytes are not worth holding a frame for */
#define HEAP_BYTES_MIN 2048u
#define SPARE_PIECES 128u

void frame_copy(uint8_t *out, const struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes)
{
	for (uint32_t i = 0; i < frame->segments && bytes; i++) {
		size_t length = frame->segment[i].iov_len, n;

		if (offset >= length) {
			offset -= (uint32_t)length;
			continue;
		}
		n = length - offset < bytes ? length - offset : bytes;
		memcpy(out, (const uint8_t *)frame->segment[i].iov_base + offset, n);
		out += n;
		bytes -= (uint32_t)n;
		offset = 0;
	}
}

void frame_recycle(struct stack *st, struct xts_rx_frame *frame)
{
	struct channel *c = st->channel;

	if (frame == c->inner)
		return;
	xts_queue_recycle(c->queue, frame);
	xts_link_recycled(&c->link);
}

/* --- held frames -------------------------------------------------------------------------------------------------- */

int buffer_pool_make(struct channel *c)
{
	unsigned count = c->link.frame_window / 2u;

	c->held = calloc(count, sizeof *c->held);
	if (!c->held)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		c->held[i].newer = c->pool;
		c->pool = &c->held[i];
	}
	return 0;
}

static void held_unlink(struct channel *c, struct held *h)
{
	if (h->older)
		h->older->newer = h->newer;
	else
		c->held_oldest = h->newer;
	if (h->newer)
		h->newer->older = h->older;
	else
		c->held_newest = h->older;
	h->newer = c->pool;
	c->pool = h;
}

static void held_release(struct stack *st, struct held *h)
{
	frame_recycle(st, &h->frame);
	held_unlink(st->channel, h);
}

/* Copies a held frame's unread part to the heap. Without memory the data is lost, so the channel has to end. */
static bool evict(struct channel *c, struct held *h)
{
	struct piece *p = h->piece;
	uint8_t *heap = malloc(p->bytes);

	if (heap)
		frame_copy(heap, &h->frame, p->offset, p->bytes);
	else
		p->bytes = 0;
	p->heap = heap;
	p->capacity = p->bytes;
	p->offset = 0;
	p->held = NULL;
	xts_queue_recycle(c->queue, &h->frame);
	xts_link_recycled(&c->link);
	held_unlink(c, h);
	return heap != NULL;
}

void buffer_evict_all(struct channel *c)
{
	while (c->held_oldest)
		evict(c, c->held_oldest);
}

/* --- a socket's pieces -------------------------------------------------------------------------------------------- */

static struct piece *piece_add(struct xts_sock *s)
{
	struct piece *p = s->stack->spare_pieces;

	if (p) {
		s->stack->spare_pieces = p->next;
		s->stack->spare_piece_count--;
	} else {
		p = malloc(sizeof *p);
		if (!p)
			return NULL;
	}
	memset(p, 0, sizeof *p);
	if (s->last)
		s->last->next = p;
	else
		s->first = p;
	s->last = p;
	return p;
}

static void piece_free(struct xts_sock *s, struct piece *p)
{
	if (p->held)
		held_release(s->stack, p->held);
	xts_release(p->heap);
	if (s->stack->spare_piece_count == SPARE_PIECES) {
		xts_release(p);
		return;
	}
	p->next = s->stack->spare_pieces;
	s->stack->spare_pieces = p;
	s->stack->spare_piece_count++;
}

static void piece_drop_first(struct xts_sock *s)
{
	struct piece *p = s->first;

	s->first = p->next;
	if (!s->first)
		s->last = NULL;
	piece_free(s, p);
}

/* Room for this many bytes at the end of the last piece, or of a new one; NULL: no memory. They count as received. */
static uint8_t *heap_room(struct xts_sock *s, uint32_t bytes)
{
	struct piece *p = s->last;
	uint8_t *room;

	if (!p || p->held || p->capacity - p->offset - p->bytes < bytes) {
		uint32_t capacity = bytes < HEAP_BYTES_MIN ? HEAP_BYTES_MIN : bytes;
		uint8_t *heap = malloc(capacity);

		p = heap ? piece_add(s) : NULL;
		if (!p) {
			free(heap);
			return NULL;
		}
		p->heap = heap;
		p->capacity = capacity;
	}
	room = p->heap + p->offset + p->bytes;
	p->bytes += bytes;
	return room;
}

static bool append_heap(struct xts_sock *s, const struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes)
{
	uint8_t *room = heap_room(s, bytes);

	if (room)
		frame_copy(room, frame, offset, bytes);
	return room != NULL;
}

bool buffer_append_copy(struct xts_sock *s, const struct iovec *iov, uint32_t count)
{
	uint32_t bytes = 0;
	uint8_t *room;

	for (uint32_t i = 0; i < count; i++)
		bytes += (uint32_t)iov[i].iov_len;
	room = heap_room(s, bytes);
	if (!room)
		return false;
	s->unread += bytes;
	for (uint32_t i = 0; i < count; i++) {
		memcpy(room, iov[i].iov_base, iov[i].iov_len);
		room += iov[i].iov_len;
	}
	return true;
}

static bool append_held(struct xts_sock *s, const struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes)
{
	struct channel *c = s->stack->channel;
	struct piece *p;
	struct held *h;

	if (!c->pool && !evict(c, c->held_oldest))
		return false;
	p = piece_add(s);
	if (!p)
		return false;
	h = c->pool;
	c->pool = h->newer;
	h->frame.bytes = frame->bytes;
	h->frame.segments = frame->segments;
	h->frame.cookie = frame->cookie;
	memcpy(h->frame.segment, frame->segment, frame->segments * sizeof frame->segment[0]);
	h->piece = p;
	h->newer = NULL;
	h->older = c->held_newest;
	if (h->older)
		h->older->newer = h;
	else
		c->held_oldest = h;
	c->held_newest = h;
	p->held = h;
	p->offset = offset;
	p->bytes = bytes;
	return true;
}

/* Takes the frame over, and holds or recycles it. A message that came gathered with others has no frame to hold. */
void buffer_append(struct xts_sock *s, struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes)
{
	struct stack *st = s->stack;
	bool kept;

	s->unread += bytes;
	if ((s->first && bytes <= SMALL_BYTES) || frame == st->channel->inner) {
		kept = append_heap(s, frame, offset, bytes);
		frame_recycle(st, frame);
	} else {
		kept = append_held(s, frame, offset, bytes);
	}
	if (!kept)
		channel_fail(st, ENOMEM);
}

int buffer_take_over(struct xts_sock *s, uint8_t *heap, uint32_t bytes)
{
	struct piece *p = piece_add(s);

	if (!p)
		return -ENOMEM;
	p->heap = heap;
	p->bytes = p->capacity = bytes;
	s->unread += bytes;
	return 0;
}

static size_t piece_copy(const struct piece *p, uint32_t skip, uint8_t *out, size_t bytes)
{
	size_t n = p->bytes - skip < bytes ? p->bytes - skip : bytes;

	if (p->held)
		frame_copy(out, &p->held->frame, p->offset + skip, (uint32_t)n);
	else
		memcpy(out, p->heap + p->offset + skip, n);
	return n;
}

/* Copies unread data, from byte skip on, into out, from its byte out_skip on. */
size_t buffer_copy(struct xts_sock *s, uint32_t skip, const struct iovec *out, size_t out_skip, size_t bytes)
{
	struct piece *p = s->first;
	size_t done = 0;

	while (p && skip >= p->bytes) {
		skip -= p->bytes;
		p = p->next;
	}
	while (p && done < bytes) {
		size_t room, n;

		while (out_skip >= out->iov_len) {
			out_skip -= out->iov_len;
			out++;
		}
		room = out->iov_len - out_skip;
		n = piece_copy(p, skip, (uint8_t *)out->iov_base + out_skip, room < bytes - done ? room : bytes - done);
		done += n;
		out_skip += n;
		skip += (uint32_t)n;
		while (p && skip >= p->bytes) {
			skip -= p->bytes;
			p = p->next;
		}
	}
	return done;
}

void buffer_consume(struct xts_sock *s, uint32_t bytes)
{
	s->unread -= bytes;
	while (bytes) {
		struct piece *p = s->first;

		if (p->bytes > bytes) {
			p->offset += bytes;
			p->bytes -= bytes;
			return;
		}
		bytes -= p->bytes;
		piece_drop_first(s);
	}
}

void buffer_drop_last(struct xts_sock *s, uint32_t bytes)
{
	uint32_t keep = s->unread - bytes;
	struct piece *p = s->first, *last = NULL, *next;

	s->unread = keep;
	for (; p && keep >= p->bytes; p = p->next) {
		keep -= p->bytes;
		last = p;
	}
	if (p && keep) {
		p->bytes = keep;
		last = p;
		p = p->next;
	}
	if (last)
		last->next = NULL;
	else
		s->first = NULL;
	s->last = last;
	for (; p; p = next) {
		next = p->next;
		piece_free(s, p);
	}
}

void buffer_drop(struct xts_sock *s)
{
	while (s->first)
		piece_drop_first(s);
	kind_of(s)->drop(s);
	callback_dropped(s);
	s->unread = 0;
}
