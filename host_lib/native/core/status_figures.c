/*
 * The figures behind the status page (status.h), which the endpoint keeps when this process is killed.
 *
 * Bytes and CPU time are written as calls are made. The caller (the interposer, or install()) counts sockets by reason.
 * A thread may call xts_publish_counts() while it holds a stack's lock, so that function waits for no lock. What it
 * cannot write at once is written by the thread that has the lock, when that thread leaves the stack.
 */
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/process.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "attaching/status.h"
#include "core/signals.h"
#include "xts_private.h"

#define CPU_EVERY_NS (100 * 1000000ull) /* getrusage() takes a lock of the process */

static struct {
	_Atomic uint64_t sockets[XTS_FIGURES_REASONS];
	_Atomic uint32_t changes; /* of the sockets by reason; 0: they are not counted */
	_Atomic uint64_t program;
} counts;

static struct {
	pid_t pid; /* the process that began it; 0: none */
	struct rusage used;
} begun;

static struct xts_status_figures *figures_of(struct stack *st)
{
	return st->channel ? st->channel->attachment.figures : NULL;
}

static uint64_t microseconds(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec;
}

void xts_cpu_begin(void)
{
	begun.pid = getrusage(RUSAGE_SELF, &begun.used) ? 0 : getpid();
}

int xts_cpu_used(struct rusage *used)
{
	int r = getrusage(RUSAGE_SELF, used);

	if (r || begun.pid != getpid())
		return r;
	timersub(&used->ru_utime, &begun.used.ru_utime, &used->ru_utime);
	timersub(&used->ru_stime, &begun.used.ru_stime, &used->ru_stime);
	return 0;
}

/* A clock that costs no system call, and is accurate to some milliseconds. */
static uint64_t coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t program_number(void)
{
	uint64_t none = 0, number = atomic_load_explicit(&counts.program, memory_order_relaxed);

	if (!number) {
		number = now_ns();
		if (!atomic_compare_exchange_strong(&counts.program, &none, number))
			number = none;
	}
	return number;
}

static void write_cpu(struct stack *st, struct xts_status_figures *f)
{
	uint64_t now = coarse_ns();
	struct rusage used;

	if (now - st->cpu_written_ns < CPU_EVERY_NS || xts_cpu_used(&used))
		return;
	st->cpu_written_ns = now;
	f->user_us = microseconds(used.ru_utime);
	f->system_us = microseconds(used.ru_stime);
}

static void write_counts(struct stack *st, struct xts_status_figures *f)
{
	uint32_t changes = atomic_load_explicit(&counts.changes, memory_order_acquire);

	if (f->magic && changes == st->counts_written)
		return;
	st->counts_written = changes;
	f->counted = changes != 0;
	for (unsigned i = 0; i < XTS_FIGURES_REASONS; i++)
		f->sockets[i] = atomic_load_explicit(&counts.sockets[i], memory_order_relaxed);
}

void figures_data(struct stack *st)
{
	struct xts_status_figures *f = figures_of(st);

	if (!f)
		return;
	f->sent_bytes = st->sent_bytes;
	f->received_bytes = st->received_bytes;
}

void figures_update(struct stack *st)
{
	struct xts_status_figures *f = figures_of(st);

	if (!f)
		return;
	if (!f->magic)
		st->cpu_written_ns = 0; /* the page belongs to another channel */
	figures_data(st);
	write_cpu(st, f);
	write_counts(st, f);
	f->stack = st->place;
	f->program = program_number();
	f->magic = XTS_FIGURES_MAGIC;
}

void figures_close(struct stack *st)
{
	struct xts_status_figures *f = figures_of(st);

	if (f)
		f->closed = 1;
}

void figures_after_fork(void)
{
	for (unsigned i = 0; i < XTS_FIGURES_REASONS; i++)
		atomic_store_explicit(&counts.sockets[i], 0, memory_order_relaxed);
}

bool figures_behind(const struct stack *st)
{
	return st->counts_written != atomic_load_explicit(&counts.changes, memory_order_relaxed);
}

void xts_publish_counts(const uint64_t *sockets, unsigned count)
{
	sig_atomic_t locked = xts_inside.locked;

	for (unsigned i = 0; i < count && i < XTS_FIGURES_REASONS; i++)
		atomic_store_explicit(&counts.sockets[i], sockets[i], memory_order_relaxed);
	atomic_fetch_add_explicit(&counts.changes, 1, memory_order_acq_rel);
	xts_go_in();
	xts_look_who_calls();
	xts_inside.locked = 1;
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		if (pthread_mutex_trylock(&st->lock) != 0)
			continue; /* the lock is held by this thread, or by one that will see the change */
		figures_update(st);
		pthread_mutex_unlock(&st->lock);
	}
	xts_inside.locked = locked;
	xts_come_out();
}
