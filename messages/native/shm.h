/*
 * Shared-memory queues: a memfd with two directions, each a ring of descriptors from sender to receiver, a ring of
 * returned slots back, and slots of slot_bytes; and two eventfd doorbells, rung only for a side that asked to be woken.
 * Either side may be hostile: indexes are checked against private copies, never trusted.
 */
#ifndef XTS_SHM_H
#define XTS_SHM_H

#include "attach.h"
#include "queue.h"

enum xts_shm_side { XTS_SHM_HOST, XTS_SHM_PROXY };

struct xts_shm_area {
	int memfd;      /* sealed against resizing */
	int host_bell;  /* eventfd the host sleeps on */
	int proxy_bell; /* eventfd the proxy sleeps on */
	struct xts_attach_reply geometry; /* kind, sizes, addresses filled in; epoch is the caller's */
};

/* Makes the memory and the doorbells for a frame window. 0 or -errno. */
int xts_shm_create(struct xts_shm_area *out, uint16_t frame_window, uint32_t largest_message);

/* Makes one side's queue of it. Takes over the three descriptors on success (dup them first to use both sides in one
 * process). wait_fd is the side's own bell. */
int xts_shm_open(struct xts_queue **out, enum xts_shm_side side, int memfd, int host_bell, int proxy_bell,
		 const struct xts_attach_reply *geometry);

#endif
