/*
 * The kinds of queues. A kind is a file with one of these tables, a line in queue_kinds.c, a number in attach.h, and
 * its part of messages/QUEUES.md. Nothing else knows it: whoever opens a queue, hands it over or adopts it goes by the
 * table, and the code above a queue goes by the queue's traits (queue.h).
 */
#ifndef XTS_QUEUE_KINDS_H
#define XTS_QUEUE_KINDS_H

#include "attaching/attach.h"
#include "queues/queue.h"

#define XTS_QUEUE_DESCRIPTORS_MAX 4
#define XTS_HUGE_PAGE_BYTES 2097152

/* How to open a queue. Each kind takes what it needs. */
struct xts_queue_options {
	uint32_t ifindex, queue_id; /* of an interface: which of its queues */
	uint32_t largest_message;   /* in bytes; 0: the largest that there can be */
	uint16_t frame_window;      /* determines the number of buffers */
	uint16_t kept_max;          /* buffers for frames that are kept longer than their credit */
	bool single_chunk;          /* frames of one buffer, even where they may have several */
	uint16_t buffers_max;       /* of an interface: how many buffers a frame may have; 0: as many as it needs */
	uint16_t numa_node;         /* of an interface: the node near which its memory should be, plus one; 0: any */
	bool huge_pages;            /* of an interface: memory in huge pages, if there are enough */
	uint16_t busy_poll_frames;  /* of an interface: that a poll may handle; 0: as the kernel has it */
	uint32_t busy_poll_us;      /* of an interface: the kernel polls its card when it is asked for frames; 0: not */
	bool zero_copy;             /* of an interface: the driver sends from and receives into the queue's memory */
	uint16_t chunk_bytes;       /* of an interface: of a buffer, as in afxdp.h; 0: as its frames need it */
};

/* A queue that is open and not in use yet. The caller passes the descriptors on, or closes them. */
struct xts_queue_opened {
	/* By the end that adopts them; -1: none. What both ends need is the same descriptor at both. At an interface
	 * one end is opened alone, the agent's or the proxy's, and is found at either. */
	int fds[2][XTS_QUEUE_DESCRIPTORS_MAX];
	struct xts_attach_reply geometry; /* kind and sizes are filled in; the caller sets epoch and addresses */
};

struct xts_queue_kind {
	uint32_t number;      /* enum xts_queue_number: in the attach reply */
	const char *name;     /* one word, for status and settings */
	const char *title;    /* for sentences */
	uint32_t descriptors; /* that an end needs */
	uint32_t traits;      /* that all queues of this kind have (enum xts_queue_trait); some may have more */

	/* Opens a queue. 0, -EINVAL (an option is out of range) or another -errno. */
	int (*open)(struct xts_queue_opened *out, const struct xts_queue_options *options);

	/* Makes one end's queue. Takes over the descriptors on success. 0, -EINVAL (geometry), -EBADF (a descriptor is
	 * not what it has to be) or another -errno. The geometry is the peer's word, and is checked. */
	int (*adopt)(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g);

	/* As adopt, for a queue that another process has used until now and left (xts_queue_leave()). NULL: no queue of
	 * this kind can be left. */
	int (*resume)(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
		      const uint8_t *state, uint32_t state_bytes);

	/* As adopt, for a queue whose process has ended at any instruction: nothing is known of it but what the kernel
	 * says. Sleeps some milliseconds. -EAGAIN: frames are still on their way, try again; -EBADMSG: its rings make
	 * no sense; -EOPNOTSUPP: not with this one. NULL: with none of this kind. */
	int (*adopt_orphan)(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			    const struct xts_attach_reply *g);
	/* As resume, for a queue whose process has died: `dead` is its struct as that process has left it, in the
	 * middle of anything, of dead_bytes, or that of another queue. It may say whatever it likes. -EBADMSG: it
	 * contradicts itself; -EAGAIN: frames are still on their way, try again. NULL: no queue of this kind can go on
	 * without its process. */
	int (*resume_dead)(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			   const struct xts_attach_reply *g, const void *dead, size_t dead_bytes);

	/* Maps all of an adopted queue's memory now, so that its use of memory is visible from the start and no first
	 * access has to wait. NULL: there is nothing to do. */
	void (*populate)(struct xts_queue *q);
};

/* The buffers for frames that are kept longer than their credit, of so many for receiving in all; -1: there are not
 * even enough for the window. */
static inline int xts_queue_kept_of(uint32_t buffers, uint32_t frame_window, uint32_t frame_buffers)
{
	return (int)buffers - (int)(frame_window * frame_buffers + XTS_CONTROL_RESERVE);
}

/* NULL: there is no such kind. */
const struct xts_queue_kind *xts_queue_kind(uint32_t number);

/* Adopts a queue of the kind that the geometry names. -EPROTO: there is no such kind. Else as adopt. */
int xts_queue_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g);

/* Goes on with one that another process has left. As above; -EOPNOTSUPP: not with a queue of this kind. */
int xts_queue_resume(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
		     const uint8_t *state, uint32_t state_bytes);

/* Adopts one whose process has ended. As above. */
int xts_queue_adopt_orphan(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			   const struct xts_attach_reply *g);
/* The same for one whose process has died. */
int xts_queue_resume_dead(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			  const struct xts_attach_reply *g, const void *dead, size_t dead_bytes);

/* Opens a queue of a kind. -EPROTO: there is no such kind. Else as open. */
int xts_queue_open(struct xts_queue_opened *out, uint32_t number, const struct xts_queue_options *options);

/* Adds a kind to those of queue_kinds.c until the process ends: one that is being tried out. It must not be changed
 * after that. Before any queue is opened; 0, -EEXIST or -ENOSPC. */
int xts_queue_kind_add(const struct xts_queue_kind *kind);

extern const struct xts_queue_kind xts_queue_afxdp;   /* afxdp.c */
extern const struct xts_queue_kind xts_queue_shm;     /* shm.c */
extern const struct xts_queue_kind xts_queue_rdma;    /* rdma.c */
extern const struct xts_queue_kind xts_queue_carried; /* shm_open.c */

/* All memory of a queue over shared memory, for a device that is to read and write its slots; NULL: it is of another
 * kind. */
void *xts_shm_memory(struct xts_queue *q, size_t *bytes);

#endif
