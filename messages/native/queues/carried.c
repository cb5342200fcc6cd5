/* What a worker has of a queue over RDMA: shared memory, whose other end is a process that carries the frames
 * (rdma/rdma_carrier.c). The peer of the worker is beyond that process, and so is what its frames cost: such a queue
 * has the traits of what carries them. That process is the proxy's, and writes to no frame that it has passed on. */
#include "queues/rdma.h"
#include "queues/shm_inside.h"

static int carried_open_pair(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	int error = shm_open_as(XTS_QUEUE_CARRIED, out, options);

	xts_rdma_addresses(&out->geometry);
	return error;
}

const struct xts_queue_kind xts_queue_carried = {
	.number = XTS_QUEUE_CARRIED,
	.name = "carried",
	.title = "carried",
	.descriptors = 2,
	.traits = CARRIED_TRAITS,
	.open = carried_open_pair,
	.adopt = shm_adopt,
	.resume = shm_resume,
	.resume_dead = shm_resume_dead,
};
