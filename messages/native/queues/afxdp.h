/*
 * AF_XDP queues: opening them (with privilege) and adopting them (without). queue.h describes their use.
 *
 * UMEM: a sealed memfd of rx_chunks * chunk_bytes for receiving, followed by tx_slots * slot_bytes. A message of up to
 * slot_bytes is sent as a chain of descriptors of one chunk each; received ones come in chunks of 3840 bytes. Where each
 * frame of the wire fits into half a chunk, as with an MTU of 1,500, chunks are half as large, and each has one frame.
 */
#ifndef XTS_AFXDP_H
#define XTS_AFXDP_H

#include "attaching/attach.h"
#include "queues/queue_kinds.h"

#define XTS_CHUNK_BYTES 4096u
#define XTS_CHUNK_SMALL_BYTES 2048u
/* The kernel keeps so much free in front of a received frame (XDP_PACKET_HEADROOM). */
#define XTS_CHUNK_HEADROOM 256u
/* What a frame may be longer than ours: two tags of a VLAN and the checksum, which drivers and kernel count in. */
#define XTS_CHUNK_SPARE 12u

/* The descriptors of an end. */
enum xts_afxdp_descriptors { XTS_AFXDP_SOCKET, XTS_AFXDP_UMEM };

/*
 * Opens and binds a socket on a queue of an interface of this network namespace: memfd (sealed, populated), UMEM_REG,
 * four rings, SO_SNDBUFFORCE, bind. Falls back to one chunk per frame if the kernel has no XDP_USE_SG
 * (geometry.largest_message shows it). With zero_copy the fill ring is full when this returns. Needs CAP_NET_RAW and
 * CAP_NET_ADMIN. Returns 0 or -errno (EBUSY: the queue is taken, or was closed less than some 300 ms ago; EINVAL: no
 * such queue, or the driver refuses zero copy, as it also does by other errors; EPERM; ENOBUFS: RLIMIT_MEMLOCK;
 * EMSGSIZE: the MTU is too small; EOVERFLOW: it is too large for small chunks, and options wants such).
 */
int xts_afxdp_open(struct xts_queue_opened *out, const struct xts_queue_options *options);

/* Does the driver use the socket's memory itself? By what the kernel says of a socket that is bound (XDP_OPTIONS): 1, 0
 * (it copies), or -errno. */
int xts_afxdp_is_zero_copy(int xsk_fd);

/* Could a queue be opened now? 0, EBUSY as above, or another -errno. It binds a socket of one chunk, so that it takes
 * microseconds where opening takes milliseconds; if the result is 0, the queue is busy again for a moment. */
int xts_afxdp_probe(uint32_t ifindex, uint32_t queue_id);

/* A second, transmit-only socket of the agent on the queue of xsk_fd, for a last frame after the queue's owner has died
 * (XDP_SHARED_UMEM). Sends one frame of at most chunk_bytes through it. Returns 0 or -errno. */
int xts_afxdp_last_word_open(int xsk_fd, uint32_t ifindex, uint32_t queue_id);
int xts_afxdp_last_word_send(int last_word_fd, int xsk_fd, int umem_fd, const struct xts_attach_reply *geometry,
			     const void *frame, uint32_t bytes);

#endif
