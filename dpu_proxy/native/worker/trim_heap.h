/*
 * Returns free memory to the system. malloc keeps freed memory as long as something in use lies behind it, and keeps up
 * to 64 MB at the end of each thread's heap (the threshold follows the largest block ever freed); spill.c keeps blocks,
 * too. So a proxy would stay as large as in its busiest moment. A worker that has freed enough trims its heap in the
 * first idle round after a second, or after ten seconds if there is none, and at most once in ten seconds.
 */
#ifndef XTS_TRIM_HEAP_H
#define XTS_TRIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/timer.h"

struct trim {
	struct timer timer;
	uint64_t freed_bytes; /* approximately, since the last trim */
	uint64_t last_ns;
	struct timers *timers;
	bool due;
	void (*give_up)(void);
};

/* give_up: frees what the thread keeps for later, before each trim. */
void trim_init(struct trim *t, void (*give_up)(void));
/* This many bytes have been freed. */
void trim_count(struct trim *t, struct timers *timers, uint64_t now_ns, uint64_t bytes);
/* For a worker that will sleep: trims if it is due. */
void trim_if_due(struct trim *t, uint64_t now_ns);

#endif
