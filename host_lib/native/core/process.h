/*
 * The process: its stacks and its threads (process.c), fork and exit (processes/fork.c), and in which stack a thread's
 * new sockets are made (choose_stack.c).
 *
 * With the setting `process` all threads use one stack for each endpoint; with `thread` each has its own; with a number
 * N the threads are spread over N stacks. A program may also make a stack and choose it for a thread
 * (xts_stack_create(), xts_stack_use()). A call on a socket locks the stack of that socket, whichever thread calls; an
 * accepted connection is in its listener's stack.
 *
 * The process's lock is taken when something is made (a stack, a block of the socket table, a thread's record), never
 * by a call that sends, receives or waits. It may be taken while a stack's lock is held, never the other way round.
 */
#ifndef XTS_PROCESS_H
#define XTS_PROCESS_H

#include <pthread.h>
#include <stdbool.h>

struct settings;
struct stack;
struct thread;
struct xts_fork_part;

void process_start(void); /* once, before the first stack is entered */
void process_lock(void);
void process_unlock(void);
struct stack *process_stacks(void); /* the first; the others follow */
struct stack *process_next(const struct stack *st);
/* adds one to the list, under the lock; NULL: no memory, or too many */
struct stack *process_add_stack(void);
/* the stack of the calling thread's new sockets: choose_stack.c */
struct stack *process_own_stack(void);
struct stack *process_stack_at(const char *endpoint);  /* the same, for an endpoint; NULL: no memory, or too many */
struct stack *process_new_stack(const char *endpoint); /* a stack that the setting gives to no thread; or NULL */
void choice_thread_ends(struct thread *t);
void choice_after_fork(void);                           /* in a child, where the other threads do not exist */
void process_settings(struct settings *out);            /* the settings after xts_configure() */
int process_configure(const struct settings *settings); /* 0; -EBUSY: they are in use */

/* The record of the calling thread; NULL: it has none. */
extern __thread struct thread *this_thread;
struct thread *thread_record(void); /* made, if there is none; NULL: no memory */
/* Notes in the record of that thread that it is to end. False: it has none. */
bool thread_note_cancel(pthread_t id);

bool process_inherits(void); /* are sockets kept over fork? */

/* Of processes/fork.c: what it does at a fork, and what it needs for that. */
extern const struct xts_fork_part process_at_fork;
void process_after_fork_child(void); /* the other threads do not exist there */
void process_orphaned(void);         /* likewise; their records may be half changed */
void process_begin_first(void);      /* the first stack, which is all 0 */

#endif
