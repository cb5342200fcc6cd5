/*
 * Opening AF_XDP sockets: the part that needs privilege, and the mapping of their rings. See afxdp.h.
 *
 * Whether the driver copies is decided before that, by what it says it can (xts_bpf/zero_copy.py). A driver with zero
 * copy takes the buffers that it receives into from the fill ring, and looks there first when the socket is bound. So
 * the ring is full by then: frames arrive, and the XDP program sees them, also while no process has the queue yet.
 */
#include "queues/afxdp.h"
#include "queues/afxdp_rings.h"
#include "queues/afxdp_umem.h"
#include "decorators/parts.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LAST_WORD_ENTRIES 64u
#ifndef SO_PREFER_BUSY_POLL /* the headers of some distributions on which we build lack them */
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif
#define NODES_MAX 1024u
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

int xts_ring_offsets(int fd, struct xdp_mmap_offsets *out)
{
	socklen_t length = sizeof *out;

	if (getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, out, &length) < 0)
		return -errno;
	return length == sizeof *out ? 0 : -EPROTONOSUPPORT; /* before Linux 5.4: no flags */
}

int xts_ring_map(struct xts_ring *ring, int fd, const struct xdp_ring_offset *offset, uint64_t page_offset,
		 uint32_t entries, size_t entry_bytes)
{
	ring->map_bytes = offset->desc + entries * entry_bytes;
	ring->map = mmap(NULL, ring->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
			 (off_t)page_offset);
	if (ring->map == MAP_FAILED) {
		ring->map = NULL;
		return -errno;
	}
	/* Cannot fail on a mapping that has just been made. A child that inherited the mapping would keep the queue
	 * busy. */
	(void)madvise(ring->map, ring->map_bytes, MADV_DONTFORK);
	ring->producer = (uint32_t *)((uint8_t *)ring->map + offset->producer);
	ring->consumer = (uint32_t *)((uint8_t *)ring->map + offset->consumer);
	ring->flags = (uint32_t *)((uint8_t *)ring->map + offset->flags);
	ring->entries = (uint8_t *)ring->map + offset->desc;
	ring->mask = entries - 1;
	return 0;
}

void xts_ring_unmap(struct xts_ring *ring)
{
	if (ring->map)
		munmap(ring->map, ring->map_bytes);
	ring->map = NULL;
}

/*
 * The largest frame that the interface sends, including the Ethernet header, or -errno. Any socket can be used for the
 * query; the agent's systemd unit allows no Internet sockets.
 */
static int interface_frame_bytes(uint32_t ifindex)
{
	struct ifreq request = { 0 };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int result;

	if (fd < 0)
		return -errno;
	result = if_indextoname(ifindex, request.ifr_name) && ioctl(fd, SIOCGIFMTU, &request) == 0 ?
			 request.ifr_mtu + (int)XTS_ETH_BYTES :
			 -errno;
	close(fd);
	return result;
}

/* Of a chunk, for frames of so many bytes. -EOVERFLOW: small ones are wanted, and too small; -EINVAL: others are. */
static int chunk_bytes_for(const struct xts_queue_options *options, int frame_bytes)
{
	bool fits = (uint32_t)frame_bytes + XTS_CHUNK_SPARE <= XTS_CHUNK_SMALL_BYTES - XTS_CHUNK_HEADROOM;

	switch (options->chunk_bytes) {
	case 0:
		return fits ? XTS_CHUNK_SMALL_BYTES : XTS_CHUNK_BYTES;
	case XTS_CHUNK_SMALL_BYTES:
		return fits ? (int)XTS_CHUNK_SMALL_BYTES : -EOVERFLOW;
	case XTS_CHUNK_BYTES:
		return XTS_CHUNK_BYTES;
	default:
		return -EINVAL;
	}
}

/*
 * Sizes for a frame window: there are buffers for every frame of the window and of the control reserve, in each
 * direction. With zero copy there are as many again for receiving. The driver takes them out of the fill ring when it
 * handles what has arrived, and not when they are given back. So what the receiver has just freed, and the sender may
 * use, is not with the card yet; the card then has those that were not in use.
 */
static int geometry_for(struct xts_attach_reply *g, const struct xts_queue_options *options, bool single_chunk)
{
	uint32_t window = options->frame_window, packets = 1;
	uint32_t needed, received;
	int frame_bytes = interface_frame_bytes(options->ifindex), chunk_bytes;

	if (frame_bytes < 0)
		return frame_bytes;
	if (window < XTS_FRAME_WINDOW_MIN || window > XTS_FRAME_WINDOW_MAX || options->kept_max > XTS_QUEUE_KEPT_MAX)
		return -EINVAL;
	if (frame_bytes < (int)XTS_FRAME_BYTES_LEAST)
		return -EMSGSIZE;
	chunk_bytes = chunk_bytes_for(options, frame_bytes);
	if (chunk_bytes < 0)
		return chunk_bytes;
	single_chunk |= xts_parts_needed((uint32_t)frame_bytes);
	if (xts_parts_needed((uint32_t)frame_bytes)) {
		window = xts_parts_window(window);
		packets = XTS_PARTS_MAX;
	}
	memset(g, 0, sizeof *g);
	g->magic = XTS_ATTACH_MAGIC;
	g->version = XTS_ATTACH_VERSION;
	g->kind = XTS_QUEUE_AFXDP;
	g->ethertype = XTS_ETHERTYPE;
	g->frame_window = (uint16_t)window;
	g->queue_id = options->queue_id;
	g->chunk_bytes = (uint32_t)chunk_bytes;
	g->largest_message = single_chunk ? XTS_FRAME_BYTES_SINGLE : XTS_FRAME_BYTES_MAX;
	if (g->largest_message > (uint32_t)frame_bytes)
		g->largest_message = (uint32_t)frame_bytes;
	/* A chunk for receiving holds less than one for sending: what the peer may send is what counts. */
	if (options->buffers_max && g->largest_message > options->buffers_max * XTS_FRAME_BYTES_SINGLE)
		g->largest_message = options->buffers_max * XTS_FRAME_BYTES_SINGLE;
	g->slot_bytes = single_chunk ? g->chunk_bytes : XTS_AFXDP_SLOT_BYTES;
	g->tx_slots = window * packets + XTS_CONTROL_RESERVE;
	received = window * (single_chunk ? packets : 16);
	g->rx_chunks = received + options->kept_max + XTS_CONTROL_RESERVE;
	if (options->zero_copy)
		g->rx_chunks += received;
	needed = g->tx_slots * (g->slot_bytes / g->chunk_bytes);
	if (needed < g->rx_chunks)
		needed = g->rx_chunks;
	for (g->ring_entries = 64; g->ring_entries < needed; g->ring_entries *= 2)
		;
	if_indextoname(options->ifindex, g->interface);
	return 0;
}

static size_t umem_bytes(const struct xts_attach_reply *g)
{
	return (size_t)g->rx_chunks * g->chunk_bytes + (size_t)g->tx_slots * g->slot_bytes;
}

/* Gives the socket this memory of these bytes. The file has file_bytes, and the rest of its last page is not used. */
static int umem_register(int xsk_fd, int umem_fd, uint32_t chunk_bytes, size_t bytes, size_t file_bytes,
			 uint16_t numa_node)
{
	struct xdp_umem_reg registration = { .len = bytes, .chunk_size = chunk_bytes };
	unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	void *memory;
	int error = 0;

	if (ftruncate(umem_fd, (off_t)file_bytes) < 0 ||
	    fcntl(umem_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	memory = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, umem_fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	/* A wish: memory of another node works, and is slower. */
	if (numa_node && numa_node <= NODES_MAX) {
		nodes[(numa_node - 1u) / (8 * sizeof *nodes)] = 1ul << ((numa_node - 1u) % (8 * sizeof *nodes));
		(void)syscall(SYS_mbind, memory, file_bytes, MPOL_PREFERRED, nodes, NODES_MAX + 1ul, 0u);
	}
	registration.addr = (uint64_t)(uintptr_t)memory;
	if (setsockopt(xsk_fd, SOL_XDP, XDP_UMEM_REG, &registration, sizeof registration) < 0)
		error = -errno;
	munmap(memory, file_bytes); /* the socket keeps its own reference to the pages */
	return error;
}

/*
 * Makes the socket's memory. Returns its descriptor, or -errno: ENOBUFS: no more may be locked; ENOMEM: there is none.
 * Without huge pages (or enough of them: mmap() reserves them) it has small ones.
 */
static int umem_make(int xsk_fd, const struct xts_attach_reply *g, const struct xts_queue_options *options)
{
	size_t bytes = umem_bytes(g);
	int error = -ENOMEM;

	for (int huge = options->huge_pages; huge >= 0; huge--) {
		int umem_fd = memfd_create("xts-umem",
					   MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0u));

		if (umem_fd < 0) {
			error = -errno;
			continue;
		}
		error = umem_register(xsk_fd, umem_fd, g->chunk_bytes, bytes, huge ? xts_umem_huge(bytes) : bytes,
				      options->numa_node);
		if (!error)
			return umem_fd;
		close(umem_fd);
	}
	return error;
}

static int socket_configure(int fd, const struct xts_attach_reply *g)
{
	static const int rings[] = { XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING };
	/* The default is enough for three frames of 60 KB; each skb counts with its overhead, about a third more. */
	int send_buffer = (int)(g->tx_slots * g->slot_bytes) * 2;
	int budget = (int)g->ring_entries;

	for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
		if (setsockopt(fd, SOL_XDP, rings[i], &g->ring_entries, sizeof g->ring_entries) < 0)
			return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof send_buffer) < 0)
		return -errno;
	/* It only saves system calls; Linux has it from 6.18 on. */
	(void)setsockopt(fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof budget);
	return 0;
}

/* Asks for busy polling. What is in force, the socket says later: a kernel without it, or a driver that has nothing to
 * poll, is no reason to have no queue. Needs CAP_NET_ADMIN. */
static void busy_poll_ask(int fd, const struct xts_queue_options *options)
{
	int us = (int)options->busy_poll_us, frames = options->busy_poll_frames, on = 1;

	if (!us)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us);
	(void)setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof on);
	if (frames)
		(void)setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &frames, sizeof frames);
}

/* Puts all chunks for receiving into the fill ring, as afxdp_make() does for a socket in copy mode. */
static int fill(int xsk_fd, const struct xts_attach_reply *g)
{
	struct xdp_mmap_offsets at;
	struct xts_ring ring = { 0 };
	int error = xts_ring_offsets(xsk_fd, &at);

	if (!error)
		error = xts_ring_map(&ring, xsk_fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, g->ring_entries, sizeof(uint64_t));
	if (error || !ring.map)
		return error;
	for (uint32_t chunk = 0; chunk < g->rx_chunks; chunk++)
		*xts_ring_address(&ring, chunk) = (uint64_t)chunk * g->chunk_bytes;
	xts_ring_store(ring.producer, g->rx_chunks);
	xts_ring_unmap(&ring);
	return 0;
}

static int socket_open(struct xts_queue_opened *out, const struct xts_queue_options *options, bool single_chunk)
{
	struct xts_attach_reply *g = &out->geometry;
	struct sockaddr_xdp address = { .sxdp_family = AF_XDP,
					.sxdp_ifindex = options->ifindex,
					.sxdp_queue_id = options->queue_id };
	int error = geometry_for(g, options, single_chunk);
	int xsk_fd, umem_fd;

	if (error)
		return error;
	address.sxdp_flags = (uint16_t)((options->zero_copy ? XDP_ZEROCOPY : XDP_COPY) | XDP_USE_NEED_WAKEUP |
					(g->slot_bytes == g->chunk_bytes ? 0 : XDP_USE_SG));
	xsk_fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (xsk_fd < 0)
		return -errno;
	umem_fd = umem_make(xsk_fd, g, options);
	error = umem_fd < 0 ? umem_fd : 0;
	if (!error)
		error = socket_configure(xsk_fd, g);
	if (!error && options->zero_copy)
		error = fill(xsk_fd, g);
	if (!error && bind(xsk_fd, (struct sockaddr *)&address, sizeof address) < 0)
		error = -errno;
	if (error) {
		close(xsk_fd);
		if (umem_fd >= 0)
			close(umem_fd);
		return error;
	}
	busy_poll_ask(xsk_fd, options);
	for (unsigned end = 0; end < 2; end++) {
		out->fds[end][XTS_AFXDP_SOCKET] = xsk_fd;
		out->fds[end][XTS_AFXDP_UMEM] = umem_fd;
	}
	return 0;
}

int xts_afxdp_open(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	int error = socket_open(out, options, options->single_chunk);

	/* Linux before 6.6 has no XDP_USE_SG; a wrong queue number gives EINVAL both times. */
	if (error == -EINVAL && !options->single_chunk)
		error = socket_open(out, options, true);
	return error;
}

int xts_afxdp_is_zero_copy(int xsk_fd)
{
	struct xdp_options found = { 0 };
	socklen_t length = sizeof found;

	if (getsockopt(xsk_fd, SOL_XDP, XDP_OPTIONS, &found, &length) < 0)
		return -errno;
	return (found.flags & XDP_OPTIONS_ZEROCOPY) != 0;
}

static int probe_bind(int fd, const struct sockaddr_xdp *address)
{
	static const int rings[] = { XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_TX_RING };
	uint32_t entries = 1;
	int umem_fd = memfd_create("xts-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int error = umem_fd < 0 ? -errno :
				  umem_register(fd, umem_fd, XTS_CHUNK_BYTES, XTS_CHUNK_BYTES, XTS_CHUNK_BYTES, 0);

	for (size_t i = 0; !error && i < sizeof rings / sizeof *rings; i++)
		if (setsockopt(fd, SOL_XDP, rings[i], &entries, sizeof entries) < 0)
			error = -errno;
	if (!error && bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
		error = -errno;
	if (umem_fd >= 0)
		close(umem_fd);
	return error;
}

int xts_afxdp_probe(uint32_t ifindex, uint32_t queue_id)
{
	struct sockaddr_xdp address = {
		.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY, .sxdp_ifindex = ifindex, .sxdp_queue_id = queue_id
	};
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return -errno;
	error = probe_bind(fd, &address);
	close(fd);
	return error;
}

int xts_afxdp_last_word_open(int xsk_fd, uint32_t ifindex, uint32_t queue_id)
{
	struct sockaddr_xdp address = { .sxdp_family = AF_XDP,
					.sxdp_flags = XDP_SHARED_UMEM,
					.sxdp_ifindex = ifindex,
					.sxdp_queue_id = queue_id,
					.sxdp_shared_umem_fd = (uint32_t)xsk_fd };
	uint32_t entries = LAST_WORD_ENTRIES;
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_XDP, XDP_TX_RING, &entries, sizeof entries) < 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int error = -errno;

		close(fd);
		return error;
	}
	return fd;
}

/* The completion ring is shared with the dead owner, which may have left it full or inconsistent: all of its entries
 * count as done. */
static int completions_forget(int xsk_fd, uint32_t entries)
{
	struct xdp_mmap_offsets at;
	struct xts_ring completion = { 0 };
	int error = xts_ring_offsets(xsk_fd, &at);

	if (!error)
		error = xts_ring_map(&completion, xsk_fd, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, entries,
				     sizeof(uint64_t));
	if (error || !completion.map)
		return error;
	xts_ring_store(completion.consumer, xts_ring_load(completion.producer));
	xts_ring_unmap(&completion);
	return 0;
}

static int last_word_put(int last_word_fd, uint64_t address, uint32_t bytes)
{
	struct xdp_mmap_offsets at;
	struct xts_ring tx = { 0 };
	struct xdp_desc *d;
	uint32_t index;
	int error = xts_ring_offsets(last_word_fd, &at);

	if (!error)
		error = xts_ring_map(&tx, last_word_fd, &at.tx, XDP_PGOFF_TX_RING, LAST_WORD_ENTRIES,
				     sizeof(struct xdp_desc));
	if (error || !tx.map)
		return error;
	index = *tx.producer; /* only ours: this socket was never passed on */
	d = xts_ring_descriptor(&tx, index);
	*d = (struct xdp_desc){ .addr = address, .len = bytes };
	xts_ring_store(tx.producer, index + 1);
	if (sendto(last_word_fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
		error = -errno;
	xts_ring_unmap(&tx);
	return error;
}

/* Through a mapping: huge pages cannot be written to by pwrite(). */
static int umem_write(int umem_fd, const struct xts_attach_reply *g, uint64_t address, const void *data, size_t bytes)
{
	size_t mapped = xts_umem_mapped(umem_fd, umem_bytes(g));
	uint8_t *memory = mapped ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, umem_fd, 0) : MAP_FAILED;

	if (memory == MAP_FAILED)
		return mapped ? -errno : -EBADF;
	memcpy(memory + address, data, bytes);
	munmap(memory, mapped);
	return 0;
}

int xts_afxdp_last_word_send(int last_word_fd, int xsk_fd, int umem_fd, const struct xts_attach_reply *g,
			     const void *frame, uint32_t bytes)
{
	/* The last chunk of the last slot: its owner is dead, so its content may be overwritten. */
	uint64_t address = umem_bytes(g) - g->chunk_bytes;
	int error;

	if (bytes == 0 || bytes > g->chunk_bytes)
		return -EINVAL;
	error = umem_write(umem_fd, g, address, frame, bytes);
	if (error)
		return error;
	error = completions_forget(xsk_fd, g->ring_entries);
	if (!error)
		error = last_word_put(last_word_fd, address, bytes);
	return error;
}
