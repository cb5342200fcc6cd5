/*
 * Shared-memory queues: a memfd with two directions, each a ring of descriptors from sender to receiver, a ring of
 * returned slots back, and slots of slot_bytes; and a pair of bells, rung only for a side that asked to be woken.
 * Either side may be hostile: indexes are checked against private copies, never trusted.
 *
 * The bells are the two ends of a Unix stream socket pair, not eventfds: the file flags of an eventfd are shared by
 * both holders, so that a hostile one could make the other block in read or write. Each side sleeps on its own end, and
 * rings by sending a byte on it. In addition, when a process ends, the other side's bell shows end of file.
 */
#ifndef XTS_SHM_H
#define XTS_SHM_H

#include "attach.h"
#include "queue.h"

#define XTS_SHM_SLOTS_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE)

enum xts_shm_side { XTS_SHM_HOST, XTS_SHM_PROXY };

struct xts_shm_area {
	int memfd;                        /* sealed against resizing */
	int host_bell;                    /* the host's end */
	int proxy_bell;                   /* the proxy's end */
	struct xts_attach_reply geometry; /* kind, sizes and addresses are filled in; the caller sets epoch */
};

/* Makes the memory and the bells for a frame window. 0, -EINVAL (window or size out of range) or another -errno. */
int xts_shm_create(struct xts_shm_area *out, uint16_t frame_window, uint32_t largest_message);

/* Makes one side's queue from it. Takes over the descriptors on success (dup them first to use both sides in one
 * process). Only the side's own bell is needed; the other's may be -1 and is closed if given. wait_fd is the side's own
 * bell. 0, -EINVAL (geometry), -EBADF (memory too small or not sealed) or another -errno. */
int xts_shm_open(struct xts_queue **out, enum xts_shm_side side, int memfd, int host_bell, int proxy_bell,
		 const struct xts_attach_reply *geometry);

#endif
