/* The kind `rdma` in the registry, and the library that does its work. rdma.h has the theory of operation. */
#include "queues/rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>

#define RDMA_PAGE 4096u

static const struct xts_rdma_module *module;

int xts_rdma_load(const char *path)
{
	const struct xts_rdma_module *found;
	void *library;

	if (module)
		return 0;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return -ENOENT;
	found = dlsym(library, "xts_rdma_module");
	if (!found || found->version != XTS_RDMA_MODULE_VERSION) {
		dlclose(library);
		return -EPROTONOSUPPORT;
	}
	module = found;
	return 0;
}

void xts_rdma_addresses(struct xts_attach_reply *g)
{
	memcpy(g->local_mac, (const uint8_t[]){ 0x02, 'r', 'd', 'm', 0, 1 }, 6);
	memcpy(g->peer_mac, (const uint8_t[]){ 0x02, 'r', 'd', 'm', 0, 2 }, 6);
}

void xts_rdma_geometry(struct xts_attach_reply *g, const struct xts_queue_options *options)
{
	memset(g, 0, sizeof *g);
	g->magic = XTS_ATTACH_MAGIC;
	g->version = XTS_ATTACH_VERSION;
	g->kind = XTS_QUEUE_RDMA;
	g->ethertype = XTS_ETHERTYPE;
	g->frame_window = options->frame_window;
	g->queue_id = options->queue_id;
	g->largest_message = options->largest_message ? options->largest_message : XTS_FRAME_BYTES_MAX;
	if (options->single_chunk && g->largest_message > XTS_FRAME_BYTES_SINGLE)
		g->largest_message = XTS_FRAME_BYTES_SINGLE;
	g->slot_bytes = (g->largest_message + RDMA_PAGE - 1) / RDMA_PAGE * RDMA_PAGE;
	g->rx_chunks = options->frame_window + XTS_CONTROL_RESERVE + options->kept_max;
	g->tx_slots = options->frame_window + XTS_CONTROL_RESERVE + XTS_RDMA_SIGNAL_EVERY;
	xts_rdma_addresses(g);
	(void)if_indextoname(options->ifindex, g->interface);
}

int xts_rdma_numbers(int events_fd, struct xts_rdma_numbers *out)
{
	return module ? module->numbers(events_fd, out) : -EOPNOTSUPP;
}

int xts_rdma_step(int events_fd, const struct xts_rdma_step *step)
{
	return module ? module->step(events_fd, step) : -EOPNOTSUPP;
}

void xts_rdma_discard(int events_fd)
{
	if (module)
		module->discard(events_fd);
}

int xts_rdma_keep(int events_fd)
{
	return module ? module->keep(events_fd) : -EOPNOTSUPP;
}

int xts_rdma_renew(int events_fd)
{
	return module ? module->renew(events_fd) : -EOPNOTSUPP;
}

int xts_rdma_carrier(int *events_fd, const struct xts_queue_options *options)
{
	struct xts_queue_opened out = { 0 };
	int error;

	xts_rdma_geometry(&out.geometry, options);
	error = module ? module->carrier(&out, options) : -EOPNOTSUPP;
	*events_fd = error ? -1 : out.fds[0][XTS_RDMA_EVENTS];
	return error;
}

int xts_rdma_carry(int events_fd, struct xts_queue *queue)
{
	size_t bytes = 0;
	void *memory = xts_shm_memory(queue, &bytes);

	if (!memory)
		return -EINVAL;
	return module ? module->carry(events_fd, queue, memory, bytes) : -EOPNOTSUPP;
}

int xts_rdma_run(int events_fd, int life_fd, int word_fd, uint32_t spin_us)
{
	return module ? module->run(events_fd, life_fd, word_fd, spin_us) : -EOPNOTSUPP;
}

static int rdma_open(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	xts_rdma_geometry(&out->geometry, options);
	return module ? module->open(out, options) : -EOPNOTSUPP;
}

static int rdma_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	return module ? module->adopt(out, end, fds, g) : -EOPNOTSUPP;
}

/* DEATH_SHOWS is not among the traits: nobody attaches to such a queue. That the connection has ended it says itself
 * (-EPIPE), and pings find a peer that is silent. */
const struct xts_queue_kind xts_queue_rdma = {
	.number = XTS_QUEUE_RDMA,
	.name = "rdma",
	.title = "RDMA",
	.descriptors = 2,
	.traits = XTS_QUEUE_KICK_COSTS | XTS_QUEUE_PACKETS | XTS_QUEUE_RETAINS,
	.open = rdma_open,
	.adopt = rdma_adopt,
};
