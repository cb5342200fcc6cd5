/* Received data until the application reads it: received_data.c. */
#ifndef XTS_RECEIVED_DATA_H
#define XTS_RECEIVED_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "queues/queue.h"

struct channel;
struct stack;
struct xts_sock;

/* A received frame that is not recycled until its data has been read. */
struct held {
	struct held *older, *newer; /* list of all held frames of a channel, or of the pool (newer only) */
	struct piece *piece;
	struct xts_rx_frame frame;
};

/* A run of received data, in a held frame or in a heap buffer. */
struct piece {
	struct piece *next;
	struct held *held; /* NULL: in the heap buffer */
	uint8_t *heap;
	uint32_t offset, bytes; /* the unread part, counted from the beginning of the frame or buffer */
	uint32_t capacity;      /* size of the heap buffer */
};

void buffer_append(struct xts_sock *s, struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes);
/* The same, copied from memory that the caller keeps; false: no memory. */
bool buffer_append_copy(struct xts_sock *s, const struct iovec *iov, uint32_t count);
size_t buffer_copy(struct xts_sock *s, uint32_t skip, const struct iovec *out, size_t out_skip, size_t bytes);
/* appends heap, which the buffer owns from now on; 0 or -ENOMEM */
int buffer_take_over(struct xts_sock *s, uint8_t *heap, uint32_t bytes);
void buffer_consume(struct xts_sock *s, uint32_t bytes);
void buffer_drop_last(struct xts_sock *s, uint32_t bytes); /* the last bytes that have come */
void buffer_drop(struct xts_sock *s);
int buffer_pool_make(struct channel *c);
void buffer_evict_all(struct channel *c);
/* Copies a part of a frame's bytes, which it has. */
void frame_copy(uint8_t *out, const struct xts_rx_frame *frame, uint32_t offset, uint32_t bytes);
void frame_recycle(struct stack *st, struct xts_rx_frame *frame);

#endif
