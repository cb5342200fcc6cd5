/*
 * Bells: what a sleeping thread is woken by. Each thread that waits has an eventfd of its own, made with its first wait; where
 * no descriptor is to be had for it then, it shares a spare one, made when the process was attached, with all others that
 * have come too late: a wait is no call that may fail for want of a descriptor.
 *
 * The spare rings for all who sleep on it, and is silenced by the last of those who were meant; the others go back to sleep.
 * A thread asks for a bell of its own again with each wait.
 */
#include "core/library.h"

#include <sys/eventfd.h>
#include <unistd.h>

static int spare = -1;
static unsigned meant; /* threads that the spare was rung for, and that have not noticed yet */

static int make(void)
{
	return xts_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void bell_reserve(void)
{
	if (spare < 0)
		spare = make();
}

bool bell_get(struct thread *t)
{
	bool rung = t->rung;
	int own;

	if (t->bell >= 0 && !t->shares_bell)
		return true;
	own = make();
	if (own >= 0)
		bell_heard(t, false);
	t->shares_bell = own < 0;
	t->bell = own < 0 ? spare : own;
	if (own >= 0 && rung)
		thread_ring(t);
	return t->bell >= 0;
}

void thread_ring(struct thread *t)
{
	uint64_t one = 1;

	if (t->shares_bell) {
		if (t->rung)
			return;
		t->rung = true;
		meant++;
	}
	if (write(t->bell, &one, sizeof one) < 0)
		return; /* full: it rings already */
}

void bell_heard(struct thread *t, bool ringing)
{
	uint64_t count;

	if (t->shares_bell) {
		if (!t->rung)
			return;
		t->rung = false;
		if (--meant)
			return;
	} else if (!ringing) {
		return;
	}
	if (read(t->bell, &count, sizeof count) < 0)
		return;
}

void bell_give_up(struct thread *t)
{
	bell_heard(t, false);
	if (t->bell >= 0 && !t->shares_bell)
		xts_own_close(t->bell);
	t->bell = -1;
	t->shares_bell = false;
}

void bells_forget(void)
{
	if (spare >= 0)
		xts_own_close(spare);
	spare = -1;
	meant = 0;
}
