/* The kinds of queues that there are. queue_kinds.h says what a kind has. */
#include "queues/queue_kinds.h"

#include <errno.h>
#include <string.h>

#define ADDED_MAX 4u

static const struct xts_queue_kind *const kinds[] = {
	&xts_queue_afxdp,
	&xts_queue_shm,
	&xts_queue_rdma,
	&xts_queue_carried,
};

static const struct xts_queue_kind *added[ADDED_MAX];

static const struct xts_queue_kind *find(const struct xts_queue_kind *const *list, size_t count, uint32_t number)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] && list[i]->number == number)
			return list[i];
	return NULL;
}

const struct xts_queue_kind *xts_queue_kind(uint32_t number)
{
	const struct xts_queue_kind *kind = find(kinds, sizeof kinds / sizeof(void *), number);

	return kind ? kind : find(added, ADDED_MAX, number);
}

int xts_queue_kind_add(const struct xts_queue_kind *kind)
{
	if (xts_queue_kind(kind->number))
		return -EEXIST;
	for (size_t i = 0; i < ADDED_MAX; i++) {
		if (!added[i]) {
			added[i] = kind;
			return 0;
		}
	}
	return -ENOSPC;
}

int xts_queue_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	const struct xts_queue_kind *kind = xts_queue_kind(g->kind);

	return kind ? kind->adopt(out, end, fds, g) : -EPROTO;
}

int xts_queue_resume(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
		     const uint8_t *state, uint32_t state_bytes)
{
	const struct xts_queue_kind *kind = xts_queue_kind(g->kind);

	if (!kind)
		return -EPROTO;
	return kind->resume ? kind->resume(out, end, fds, g, state, state_bytes) : -EOPNOTSUPP;
}

int xts_queue_adopt_orphan(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			   const struct xts_attach_reply *g)
{
	const struct xts_queue_kind *kind = xts_queue_kind(g->kind);

	if (!kind)
		return -EPROTO;
	return kind->adopt_orphan ? kind->adopt_orphan(out, end, fds, g) : -EOPNOTSUPP;
}

int xts_queue_resume_dead(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			  const struct xts_attach_reply *g, const void *dead, size_t dead_bytes)
{
	const struct xts_queue_kind *kind = xts_queue_kind(g->kind);

	if (!kind)
		return -EPROTO;
	return kind->resume_dead ? kind->resume_dead(out, end, fds, g, dead, dead_bytes) : -EOPNOTSUPP;
}

int xts_queue_open(struct xts_queue_opened *out, uint32_t number, const struct xts_queue_options *options)
{
	const struct xts_queue_kind *kind = xts_queue_kind(number);

	memset(out, 0, sizeof *out);
	memset(out->fds, -1, sizeof out->fds);
	return kind ? kind->open(out, options) : -EPROTO;
}
