/* Makes a queue over shared memory, and opens one end of it: the kind of queue (shm.c has what it does). */
#include "queues/shm_inside.h"

#include "queues/sealed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t shm_bytes(const struct xts_attach_reply *g)
{
	return SHM_HEADER_BYTES + 2 * (size_t)g->shm_slots * g->slot_bytes;
}

static bool shm_geometry_ok(const struct xts_attach_reply *g)
{
	return (g->kind == XTS_QUEUE_SHM || g->kind == XTS_QUEUE_CARRIED) && g->frame_window >= XTS_FRAME_WINDOW_MIN &&
	       g->frame_window <= XTS_FRAME_WINDOW_MAX && g->largest_message >= XTS_FRAME_BYTES_SINGLE &&
	       g->largest_message <= XTS_FRAME_BYTES_MAX && g->slot_bytes >= g->largest_message &&
	       g->slot_bytes <= XTS_FRAME_BYTES_MAX && g->slot_bytes % SHM_PAGE == 0 &&
	       xts_queue_kept_of(g->shm_slots, g->frame_window, 1) >= 0 && g->shm_slots <= SHM_SLOTS_MAX;
}

static int shm_make(struct xts_queue_opened *out)
{
	struct xts_attach_reply *g = &out->geometry;
	int bells[2], error;
	int memfd = memfd_create("xts-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (memfd < 0)
		return -errno;
	if (ftruncate(memfd, (off_t)shm_bytes(g)) < 0 ||
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) < 0) {
		error = -errno;
		close(memfd);
		return error;
	}
	for (unsigned end = 0; end < 2; end++) {
		out->fds[end][SHM_MEMORY] = memfd;
		out->fds[end][SHM_BELL] = bells[end];
	}
	return 0;
}

int shm_open_as(uint32_t kind, struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	struct xts_attach_reply *g = &out->geometry;
	uint32_t largest = options->largest_message ? options->largest_message : XTS_FRAME_BYTES_MAX;

	g->magic = XTS_ATTACH_MAGIC;
	g->version = XTS_ATTACH_VERSION;
	g->kind = kind;
	g->ethertype = XTS_ETHERTYPE;
	g->frame_window = options->frame_window;
	g->queue_id = options->queue_id;
	g->largest_message = largest;
	g->slot_bytes = (largest + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
	g->shm_slots = options->frame_window + XTS_CONTROL_RESERVE + options->kept_max;
	/* Locally administered addresses: there is no Ethernet, but frames have an Ethernet header all the same. */
	memcpy(g->local_mac, (const uint8_t[]){ 0x02, 'x', 't', 's', 0, 1 }, 6);
	memcpy(g->peer_mac, (const uint8_t[]){ 0x02, 'x', 't', 's', 0, 2 }, 6);
	return shm_geometry_ok(g) ? shm_make(out) : -EINVAL;
}

static int shm_open_pair(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	return shm_open_as(XTS_QUEUE_SHM, out, options);
}

static void shm_init(struct shm_queue *q, enum xts_queue_end end, const struct xts_attach_reply *g)
{
	struct shm_header *header = q->memory;
	uint8_t *slots = (uint8_t *)q->memory + SHM_HEADER_BYTES;
	size_t half = (size_t)g->shm_slots * g->slot_bytes;

	q->base.ops = &shm_ops;
	q->base.largest_message = g->largest_message;
	q->base.frame_window = g->frame_window;
	q->base.kept_max = (uint32_t)xts_queue_kept_of(g->shm_slots, g->frame_window, 1);
	q->base.traits = g->kind == XTS_QUEUE_SHM ? SHM_TRAITS : CARRIED_TRAITS;
	q->base.traits |= g->largest_message > XTS_FRAME_BYTES_SINGLE ? XTS_QUEUE_FRAGMENTS : 0;
	q->base.wait_fd = q->bell;
	memcpy(q->base.local_mac, end == XTS_QUEUE_HOST ? g->local_mac : g->peer_mac, 6);
	memcpy(q->base.peer_mac, end == XTS_QUEUE_HOST ? g->peer_mac : g->local_mac, 6);
	q->tx = &header->direction[end];
	q->rx = &header->direction[!end];
	q->tx_memory = slots + (end == XTS_QUEUE_HOST ? 0 : half);
	q->rx_memory = slots + (end == XTS_QUEUE_HOST ? half : 0);
	q->slots = g->shm_slots;
	q->slot_bytes = g->slot_bytes;
	for (q->free_count = 0; q->free_count < q->slots; q->free_count++)
		q->free[q->free_count] = (uint16_t)(q->slots - 1 - q->free_count);
}

int shm_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	struct shm_queue *q;

	if (!shm_geometry_ok(g))
		return -EINVAL;
	if (xts_sealed_bytes(fds[SHM_MEMORY]) < shm_bytes(g))
		return -EBADF;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->memfd = fds[SHM_MEMORY];
	q->bell = fds[SHM_BELL];
	q->memory_bytes = shm_bytes(g);
	q->memory_number = xts_memory_number(q->memfd);
	q->memory = mmap(NULL, q->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, q->memfd, 0);
	if (q->memory == MAP_FAILED || madvise(q->memory, q->memory_bytes, MADV_DONTFORK) < 0) {
		int error = -errno;

		if (q->memory != MAP_FAILED)
			munmap(q->memory, q->memory_bytes);
		free(q);
		return error;
	}
	shm_init(q, end, g);
	*out = &q->base;
	return 0;
}

void *xts_shm_memory(struct xts_queue *q, size_t *bytes)
{
	if (q->ops != &shm_ops)
		return NULL;
	*bytes = shm_of(q)->memory_bytes;
	return shm_of(q)->memory;
}

const struct xts_queue_kind xts_queue_shm = {
	.number = XTS_QUEUE_SHM,
	.name = "shm",
	.title = "shared-memory",
	.descriptors = 2,
	.traits = SHM_TRAITS,
	.open = shm_open_pair,
	.adopt = shm_adopt,
	.resume = shm_resume,
	.resume_dead = shm_resume_dead,
};
