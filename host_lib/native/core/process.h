/*
 * The process: its stacks, its threads, fork and exit (process.c), and which stack a thread's new sockets
 * come into (choose_stack.c).
 *
 * With the setting `process` all threads use one stack for each endpoint; with `thread` each has its own; with a number
 * the threads are spread over so many. A program may also make a stack and say that a thread uses it
 * (xts_stack_create(), xts_stack_use()). Calls on a socket lock the stack that the socket is in, whoever makes them; a
 * connection comes into its listener's stack.
 *
 * Its lock is taken when something is made (a stack, a block of the socket table, a thread's record), never by a call
 * that sends, receives or waits. It is taken inside of a stack's lock, never around one.
 */
#ifndef XTS_PROCESS_H
#define XTS_PROCESS_H

#include <stdbool.h>

struct settings;
struct stack;
struct thread;

void process_start(void); /* once, before the first stack is entered */
void process_lock(void);
void process_unlock(void);
struct stack *process_stacks(void); /* the first; the others follow */
struct stack *process_next(const struct stack *st);
struct stack *process_add_stack(void);                 /* to the list, under the lock; NULL: no memory, or too many */
struct stack *process_own_stack(void);                 /* where the calling thread's new sockets come: choose_stack.c */
struct stack *process_stack_at(const char *endpoint);  /* the same, for an endpoint; NULL: no memory, or too many */
struct stack *process_new_stack(const char *endpoint); /* one that no setting gives to a thread; or NULL */
void choice_thread_ends(struct thread *t);
void choice_after_fork(void);                           /* in a child: the other threads are gone */
void process_settings(struct settings *out);            /* as xts_configure() has left them */
int process_configure(const struct settings *settings); /* 0; -EBUSY: they are in use */

/* The record of the calling thread; NULL: it has none. */
extern __thread struct thread *this_thread;
struct thread *thread_record(void); /* made, if there is none; NULL: no memory */

bool process_inherits(void); /* sockets are kept over fork */

#endif
