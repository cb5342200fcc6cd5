/*
 * The system calls that a process of the proxy may still make (seccomp). Any other ends the process, after a line on stderr that says
 * which it was: a hole in what reads messages then is a restart.
 */
#ifndef XTS_SYSCALL_FILTER_H
#define XTS_SYSCALL_FILTER_H

#include <stdbool.h>

enum xts_calls {
	XTS_CALLS_OF_KEYS = 0,    /* of the process with the private keys */
	XTS_CALLS_OF_WORKERS = 1, /* of that of the workers */
	XTS_CALLS_OF_PARSERS = 2, /* beside: bpf(2), to run programs that are loaded */
	XTS_CALLS_OF_START = 4,   /* beside: threads. A second filter without it ends the start */
};

/* For this thread and those that it starts later; of workers for all threads of the process, which have to have the same filters. The kernel has
 * to hold no-new-privileges of it already. 0 or -errno. For ever: only fewer are possible later. */
int xts_calls_only(int calls);
/* How many calls are allowed. */
int xts_calls_count(int calls);

#endif
