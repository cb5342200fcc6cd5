/*
 * Cancelling threads (pthread_cancel).
 *
 * Theory of operation
 *
 * A call that waits has locks, entries in lists and memory of its own. The C library would end its thread in the middle
 * of that, and nothing would undo it. So cancellation is disabled from where a thread enters the library to where it
 * leaves it (xts_go_in(), xts_come_out()), and a request is handled as a signal that was put off (signals.h): it ends the
 * wait, the call returns through all of its functions, and the thread ends where it leaves the library and holds nothing.
 *
 * A sleeping thread does not notice a request that it has disabled. So who cancels has to wake it:
 * xts_pthread_cancel() makes the request, notes it in the record of the thread, and rings the bell of its wait. No
 * request is lost. A call that is a cancellation point makes the thread's record first, and then looks for a request
 * (xts_cancellation_point()). A request that came before is found there; a later one finds the record. And a thread that
 * is about to sleep reads its record under the lock of the stack, under which it is rung too.
 *
 * What a call has sent or received is not given up: it returns that, and the request is handled by the next call.
 */
#include <pthread.h>

#include "core/caller.h"
#include "core/process.h"
#include "core/stack.h"
#include "core/signals.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

static void wake_thread(struct stack *st, pthread_t thread)
{
	stack_enter(st);
	for (struct waiter *w = st->waiters; w; w = w->next) {
		if (!pthread_equal(w->thread->id, thread))
			continue;
		if (w->thread->sleeping)
			thread_ring(st, w->thread);
		w->thread->sleeping = false;
	}
	stack_leave(st);
}

int xts_pthread_cancel(pthread_t thread)
{
	int r = kernel_calls.pthread_cancel(thread);

	xts_look_who_calls();
	if (r || !thread_note_cancel(thread))
		return r;
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		wake_thread(st, thread);
	return 0;
}

void xts_cancellation_point(void)
{
	if (__builtin_expect(xts_inside.depth, 0))
		return; /* the outer call has looked */
	xts_look_who_calls();
	if (__builtin_expect(!this_thread, 0)) {
		xts_go_in();
		(void)thread_record(); /* without memory a request is handled by the next call */
		xts_come_out();
	}
	pthread_testcancel();
}

bool cancel_is_due(struct thread *thread)
{
	if (!atomic_load_explicit(&thread->cancelled, memory_order_relaxed) ||
	    xts_inside.cancel_state != PTHREAD_CANCEL_ENABLE)
		return false;
	xts_inside.cancelled = 1;
	return true;
}

void cancel_run(void)
{
	xts_inside.cancelled = 0;
	atomic_store(&this_thread->cancelled, false);
	pthread_testcancel();
}
