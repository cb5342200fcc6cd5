/* The progress thread of a stack: progress_thread.c. */
#ifndef XTS_PROGRESS_H
#define XTS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct stack;
struct thread;

#define HOLD_US 200u

struct progress {
	bool started, standing_by, sleeping_on_queue;
	uint64_t looks_again_ns; /* while it stands by: when it looks again without being woken */
	struct thread *self;
	pid_t tid;       /* its own, since it was last started */
	unsigned paused; /* so many calls need it gone: own_threads.c */
	int bell;        /* an eventfd for the thread, until it begins; -1: none */
	int clock_fd;    /* -1: none */
	bool clock_set;
};

/* Makes the descriptors of the thread, when the stack attaches. */
void progress_reserve(struct stack *st);
void progress_need(struct stack *st); /* there is work for the thread: wakes or starts it */
void progress_wake(struct stack *st); /* if it sleeps on the queue */
void progress_look(struct stack *st); /* there is another channel to watch: wakes it if it stands by */
void progress_forget(struct stack *st);
void progress_pause(struct stack *st);      /* it ends as soon as it can, and is not started any more, until … */
void progress_resume(struct stack *st);     /* … this, as often */
bool progress_will_flush(struct stack *st); /* it will flush within HOLD_US; false: it cannot */

#endif
