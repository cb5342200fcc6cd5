/* The kind `rdma` in the registry, and the library that does its work. rdma.h has the theory of operation. */
#include "queues/rdma.h"

#include <dlfcn.h>
#include <errno.h>

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

static int rdma_open(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
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
