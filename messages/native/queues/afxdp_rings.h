/*
 * The four rings of an AF_XDP socket as the kernel maps them (linux/if_xdp.h; Documentation/networking/af_xdp.rst), and
 * what Debian 12's header does not know yet.
 *
 * On each ring one side is ours and the other the kernel's. Indexes run freely and are masked when used; the kernel's
 * are read with acquire, ours written with release.
 */
#ifndef XTS_AFXDP_RINGS_H
#define XTS_AFXDP_RINGS_H

#include <linux/if_xdp.h>
#include <stddef.h>
#include <stdint.h>

#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4) /* bind: frames may span descriptors (Linux 6.6) */
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0) /* descriptor option: the frame continues in the next descriptor */
#endif
#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9 /* socket option: descriptors one sendto may send (Linux 6.18) */
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

#define XTS_AFXDP_SLOT_BYTES 61440u /* 15 chunks: the largest message */
#define XTS_AFXDP_RING_ENTRIES_MAX 8192u

struct xts_ring {
	uint32_t *producer, *consumer, *flags;
	void *entries;
	uint32_t mask;
	uint32_t ours; /* our own index: what we have produced or consumed; it may not be published yet */
	void *map;
	size_t map_bytes;
};

static inline uint32_t xts_ring_load(const uint32_t *index)
{
	return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}
static inline void xts_ring_store(uint32_t *index, uint32_t value)
{
	__atomic_store_n(index, value, __ATOMIC_RELEASE);
}

static inline struct xdp_desc *xts_ring_descriptor(const struct xts_ring *r, uint32_t index)
{
	return (struct xdp_desc *)r->entries + (index & r->mask);
}

static inline uint64_t *xts_ring_address(const struct xts_ring *r, uint32_t index)
{
	return (uint64_t *)r->entries + (index & r->mask);
}

/* Maps the ring at page offset (XDP_PGOFF_*) of a socket: readable with MADV_DONTFORK. 0 or -errno. */
int xts_ring_map(struct xts_ring *ring, int fd, const struct xdp_ring_offset *offset, uint64_t page_offset,
		 uint32_t entries, size_t entry_bytes);
void xts_ring_unmap(struct xts_ring *ring);
/* The offsets for xts_ring_map. 0 or -errno. */
int xts_ring_offsets(int fd, struct xdp_mmap_offsets *out);

#endif
