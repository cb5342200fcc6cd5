/*
 * The size of a queue's memory in pages. Huge pages are mapped and unmapped as a whole, so the file is as long as its
 * pages; the geometry only says how much of it is used.
 */
#ifndef XTS_AFXDP_UMEM_H
#define XTS_AFXDP_UMEM_H

#include "queues/queue_kinds.h"
#include "queues/sealed_memory.h"

#include <stddef.h>

static inline size_t xts_umem_huge(size_t bytes)
{
	const size_t page = XTS_HUGE_PAGE_BYTES;

	return (bytes + page - 1) / page * page;
}

/* How much of a sealed file to map, of which so many bytes are used; 0: it is shorter, or not sealed. */
static inline size_t xts_umem_mapped(int umem_fd, size_t bytes)
{
	uint64_t there = xts_sealed_bytes(umem_fd);

	if (there < bytes)
		return 0;
	return there == xts_umem_huge(bytes) ? (size_t)there : bytes;
}

#endif
