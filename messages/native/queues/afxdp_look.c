/* What there is to do at an AF_XDP queue when nothing has come: a driver without copies may have to be told to look for
 * buffers, and a card may be polled. */
#include <sys/socket.h>

#include "queues/afxdp_inside.h"

/* What there is to poll is asked once in this many looks, until the kernel knows: it costs a system call. */
#define CARD_EVERY 64u

/*
 * In zero-copy mode a driver that found the fill ring empty says so, and looks there again when it is told to: for
 * nothing arrives without buffers, nothing would tell it later. Called when nothing has come, and before sleeping.
 */
static void wake_receiver(struct afxdp_queue *q)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* the producer before the flags, as in afxdp_send() */
	if (__builtin_expect(!(xts_ring_load(q->fill.flags) & XDP_RING_NEED_WAKEUP), 1))
		return;
	q->base.stats.kicks++;
	(void)recvfrom(q->xsk_fd, NULL, 0, MSG_DONTWAIT, NULL, NULL); /* an error is seen when sending */
}

/*
 * Busy polling: the kernel polls the card for us when we ask it for frames, instead of waiting for the card's
 * interrupt. It knows which card when the first frame has come; where a driver does not say (veth), it never does, and
 * asking costs nothing but a system call in so many looks.
 */
static void poll_card(struct afxdp_queue *q)
{
	socklen_t length = sizeof(int);
	int card = 0;

	if (!q->card_known && q->busy_looks++ % CARD_EVERY == 0)
		q->card_known = getsockopt(q->xsk_fd, SOL_SOCKET, SO_INCOMING_NAPI_ID, &card, &length) == 0 && card;
	if (!q->card_known)
		return;
	q->base.stats.card_polls++;
	(void)recvfrom(q->xsk_fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

bool afxdp_look(struct afxdp_queue *q)
{
	uint32_t before = xts_ring_load(q->rx.producer);

	if (q->busy_polls)
		poll_card(q);
	if (q->zero_copy)
		wake_receiver(q);
	return xts_ring_load(q->rx.producer) != before;
}

bool afxdp_busy_polls(int xsk_fd)
{
	socklen_t length = sizeof(int);
	int us = 0;

	return getsockopt(xsk_fd, SOL_SOCKET, SO_BUSY_POLL, &us, &length) == 0 && us > 0;
}
