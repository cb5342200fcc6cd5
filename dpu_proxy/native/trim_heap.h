/*
 * Returns free memory to the system. malloc keeps what it gets back as long as something in use lies behind it, and of
 * the end of its heaps up to 64 MB (the threshold follows the largest block ever freed), one heap a thread; spill.c
 * keeps blocks. So a proxy would stay as large as in its busiest moment. A worker that has freed enough trims its heap
 * a second later, and at least ten seconds after the last time, in the first idle round, or after ten seconds if there
 * is none.
 */
#ifndef XTS_TRIM_HEAP_H
#define XTS_TRIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "timer.h"

struct trim {
	struct timer timer;
	uint64_t freed_bytes; /* about, since the last time */
	uint64_t last_ns;
	struct timers *timers;
	bool due;
};

void trim_init(struct trim *t);
/* So many bytes have been freed. */
void trim_count(struct trim *t, struct timers *timers, uint64_t now_ns, uint64_t bytes);
/* For a worker that is about to sleep; does something only when it is due. */
void trim_if_due(struct trim *t, uint64_t now_ns);

#endif
