/* The progress thread of a stack: progress_thread.c. */
#ifndef XTS_PROGRESS_H
#define XTS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct stack;
struct thread;

#define HOLD_US 200u

struct progress {
	bool started, standing_by, sleeping_on_queue;
	uint64_t looks_again_ns; /* standing by: when it looks again by itself */
	struct thread *self;
	int clock_fd; /* -1: none yet */
	bool clock_set;
};

void progress_need(struct stack *st); /* something has to be looked after: wakes or starts the thread */
void progress_wake(struct stack *st); /* if it sleeps on the queue */
void progress_forget(struct stack *st);
bool progress_will_flush(struct stack *st); /* in HOLD_US at the latest; false: it cannot */

#endif
