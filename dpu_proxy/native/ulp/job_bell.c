/* Jobs that are handed back, and who is woken for them: see job_bell.h. */
#include "ulp/job_bell.h"

#include <sys/eventfd.h>

void ulp_bell_init(struct ulp_bell *bell, int event_fd)
{
	list_init(&bell->jobs);
	list_init(&bell->pending);
	bell->event_fd = event_fd;
	atomic_init(&bell->waiting, 0);
	atomic_init(&bell->sleeps, true);
	atomic_init(&bell->rung, false);
	bell->made = true;
}

void ulp_bell_add(struct ulp_bell *bell, struct list *job, uint64_t now_ns)
{
	list_append(&bell->jobs, job);
	if (!atomic_fetch_add(&bell->waiting, 1))
		bell->since_ns = now_ns;
}

void ulp_bell_remove(struct ulp_bell *bell, struct list *job)
{
	if (list_empty(job))
		return;
	list_remove(job);
	if (atomic_fetch_sub(&bell->waiting, 1) == 1)
		list_remove(&bell->pending);
}

struct list *ulp_bell_take(struct ulp_bell *bell)
{
	struct list *job = list_empty(&bell->jobs) ? NULL : bell->jobs.next;

	if (job)
		ulp_bell_remove(bell, job);
	return job;
}

void ulp_bell_ring(struct ulp_bell *bell)
{
	list_remove(&bell->pending);
	if (atomic_load(&bell->waiting) && atomic_load(&bell->sleeps) && !atomic_exchange(&bell->rung, true))
		(void)eventfd_write(bell->event_fd, 1);
}

void ulp_bell_ring_soon(struct ulp_bell *bell, struct list *pending, uint64_t now_ns)
{
	if (atomic_load(&bell->waiting) >= ULP_BELL_TOGETHER || now_ns >= bell->since_ns + ULP_BELL_TOGETHER_NS)
		ulp_bell_ring(bell);
	else if (list_empty(&bell->pending))
		list_append(pending, &bell->pending);
}

void ulp_bells_ring(struct list *pending)
{
	while (!list_empty(pending))
		ulp_bell_ring(list_entry(pending->next, struct ulp_bell, pending));
}
