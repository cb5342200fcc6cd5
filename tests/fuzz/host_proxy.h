/*
 * fuzz_host.c: what it has of a scene, and how its proxy sends.
 */
#ifndef XTS_FUZZ_HOST_PROXY_H
#define XTS_FUZZ_HOST_PROXY_H

#include "core/process.h"
#include "core/socket.h"
#include "core/stack.h"
#include "memory_queue.h"
#include "xts_private.h"

#define SOCKETS 8u
#define IDS 16u

static struct {
	struct memory_queue *queue; /* of the live attachment, or NULL */
	struct xts_link link;       /* the proxy's */
	uint64_t epoch;
	uint32_t ids[IDS]; /* identifiers of the host's sockets, as the proxy learned them */
	uint32_t id_count, next_proxy_id;
	int sockets[SOCKETS];
	struct memory_frame waiting[WAITING_MAX]; /* answers without a frame credit yet */
	unsigned waiting_count;
} scene;

static void proxy_send(uint8_t *frame, uint32_t bytes)
{
	xts_link_seal(&scene.link, frame);
	pipe_put(&scene.queue->in, frame, bytes);
}

/* The socket behind a number, as long as nothing else is called. NULL: there is none. */
static const struct xts_sock *socket_of(int number)
{
	struct stack *st = process_stacks();
	const struct xts_sock *s;

	pthread_mutex_lock(&st->lock);
	s = table_open(st, number);
	pthread_mutex_unlock(&st->lock);
	return s;
}

#endif
