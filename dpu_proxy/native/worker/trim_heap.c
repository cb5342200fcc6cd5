/* When free memory is returned to the system, and how much has to be free for that; see trim_heap.h. */
#include "worker/trim_heap.h"

#include <malloc.h>
#include <stdlib.h>

#include "worker/list.h"

#define WORTH_BYTES (256u << 10)
#define AFTER_NS 1000000000u
#define EVERY_NS (10 * (uint64_t)AFTER_NS)

#ifdef __GLIBC__
/* Set to fixed values: otherwise malloc raises both with the size of freed blocks, up to 64 MB. */
/* this much free memory at the end of a thread's heap stays there for the next burst */
#define HEAP_END_BYTES (1 << 20)
#define MMAP_BYTES (4 << 20)
#define BLOCK_BYTES (128 << 10) /* large enough that free() checks the end of the heap */

static void keep_little(void)
{
	(void)mallopt(M_TRIM_THRESHOLD, HEAP_END_BYTES);
	(void)mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
}

/* malloc_trim() gives back free memory inside all heaps, but not at the end of a thread's own heap; a free() there does
 * that. */
static void give_back(void)
{
	void *volatile at_the_end;

	(void)malloc_trim(0);
	(void)mallopt(M_TRIM_THRESHOLD, 1);
	at_the_end = malloc(BLOCK_BYTES);
	free(at_the_end);
	(void)mallopt(M_TRIM_THRESHOLD, HEAP_END_BYTES);
}
#else
static void keep_little(void) { }
static void give_back(void) { }
#endif

static void trim_now(struct trim *t, uint64_t now_ns)
{
	timer_cancel(&t->timer);
	t->due = false;
	t->freed_bytes = 0;
	t->last_ns = now_ns;
	t->give_up();
	give_back();
}

static void expired(struct timer *timer)
{
	struct trim *t = list_entry(timer, struct trim, timer);

	if (t->due) {
		trim_now(t, timer->deadline_ns); /* the worker has been busy all the time */
		return;
	}
	t->due = true;
	timer_set(t->timers, timer, timer->deadline_ns + EVERY_NS);
}

void trim_init(struct trim *t, void (*give_up)(void))
{
	t->give_up = give_up;
	t->timer.expired = expired;
	keep_little();
}

void trim_count(struct trim *t, struct timers *timers, uint64_t now_ns, uint64_t bytes)
{
	uint64_t at_ns = now_ns + AFTER_NS;

	t->timers = timers;
	t->freed_bytes += bytes;
	if (t->freed_bytes < WORTH_BYTES || t->due || timer_is_set(&t->timer))
		return;
	if (t->last_ns && at_ns < t->last_ns + EVERY_NS)
		at_ns = t->last_ns + EVERY_NS;
	timer_set(timers, &t->timer, at_ns);
}

void trim_if_due(struct trim *t, uint64_t now_ns)
{
	if (t->due)
		trim_now(t, now_ns);
}
