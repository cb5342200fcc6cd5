/*
 * The process: its stacks, its threads, fork and exit (process.c).
 *
 * Its lock is taken when something is made (a stack, a block of the socket table, a thread's record), never by a call that
 * sends, receives or waits. It is taken inside of a stack's lock, never around one.
 */
#ifndef XTS_PROCESS_H
#define XTS_PROCESS_H

#include <stdbool.h>

struct settings;
struct stack;
struct thread;

void process_start(void);                     /* once, before the first stack is entered */
void process_lock(void);
void process_unlock(void);
struct stack *process_stacks(void);           /* the first; the others follow */
struct stack *process_own_stack(void);        /* where the calling thread's new sockets come */
void process_settings(struct settings *out);  /* as xts_configure() has left them */
int process_configure(const struct settings *settings); /* 0; -EBUSY: they are in use */

/* The record of the calling thread; NULL: it has none. */
extern __thread struct thread *this_thread;
struct thread *thread_record(void);           /* made, if there is none; NULL: no memory */

bool process_inherits(void);                  /* sockets are kept over fork */

#endif
