/*
 * Bells: the eventfds that wake sleeping threads. Each thread that waits has one of its own, made with its first wait.
 * If no descriptor is available then, the thread uses the spare bell of its stack, which was made when the stack
 * attached and which all such threads share: a wait must not fail for lack of a descriptor. The progress thread's was
 * made then, too (progress_thread.c).
 *
 * Ringing the spare wakes all threads that sleep on it. The last thread for which it was rung resets it; the others go
 * back to sleep. At each wait a thread tries again to get a bell of its own.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/stack.h"
#include "common/own_descriptors.h"
#include "core/wait.h"

int bell_make(void)
{
	return xts_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void bell_reserve(struct stack *st)
{
	if (st->bells.spare < 0)
		st->bells.spare = bell_make();
}

bool bell_get(struct stack *st, struct thread *t)
{
	bool rung = t->rung;
	int own;

	if (t->bell >= 0 && !t->shares_bell)
		return true;
	own = bell_make();
	if (own >= 0)
		bell_heard(st, t, false);
	t->shares_bell = own < 0;
	t->bell = own < 0 ? st->bells.spare : own;
	if (own >= 0 && rung)
		thread_ring(st, t);
	return t->bell >= 0;
}

void thread_ring(struct stack *st, struct thread *t)
{
	uint64_t one = 1;

	if (t->shares_bell) {
		if (t->rung)
			return;
		t->rung = true;
		st->bells.meant++;
	}
	if (write(t->bell, &one, sizeof one) < 0)
		return; /* the counter is full: it is ringing already */
}

void bell_heard(struct stack *st, struct thread *t, bool ringing)
{
	uint64_t count;

	if (t->shares_bell) {
		if (!t->rung)
			return;
		t->rung = false;
		if (--st->bells.meant)
			return;
	} else if (!ringing) {
		return;
	}
	if (read(t->bell, &count, sizeof count) < 0)
		return;
}

void bell_give_up(struct thread *t)
{
	if (t->bell >= 0 && !t->shares_bell)
		xts_own_close(t->bell);
	t->bell = -1;
	t->shares_bell = false;
}

void bells_forget(struct stack *st)
{
	if (st->bells.spare >= 0)
		xts_own_close(st->bells.spare);
	st->bells.spare = -1;
	st->bells.meant = 0;
}
