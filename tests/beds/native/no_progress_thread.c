/*
 * In place of progress_thread.c, where the library is to have one thread, so that the same input always does the same:
 * a thread of its own is never needed. For pair_host.c and tests/fuzz/fuzz_host.c.
 */
#include <stdbool.h>

#include "waiting/progress_thread.h"

void progress_reserve(struct stack *st)
{
	(void)st;
}

void progress_need(struct stack *st)
{
	(void)st;
}

void progress_forget(struct stack *st)
{
	(void)st;
}

void progress_pause(struct stack *st)
{
	(void)st;
}

void progress_resume(struct stack *st)
{
	(void)st;
}

void progress_look(struct stack *st)
{
	(void)st;
}

void progress_wake(struct stack *st)
{
	(void)st;
}

bool progress_will_flush(struct stack *st)
{
	(void)st;
	return false;
}
