/*
 * The system calls that a process of the proxy, or the agent's relay, may make (seccomp). Any other call ends the
 * process, after a line on stderr that names it. So an exploited bug in the parsing of messages causes a restart at
 * most.
 */
#ifndef XTS_ALLOWED_SYSCALLS_H
#define XTS_ALLOWED_SYSCALLS_H

#include <stdbool.h>

enum xts_calls {
	XTS_CALLS_OF_KEYS = 0,    /* for the process with the private keys */
	XTS_CALLS_OF_WORKERS = 1, /* for the process of the workers */
	XTS_CALLS_OF_PARSERS = 2, /* added to these: bpf(2), to run loaded programs */
	/* added to these: making threads. A second filter without it ends the start-up phase */
	XTS_CALLS_OF_START = 4,
	XTS_CALLS_OF_RELAY = 8, /* for the agent's relay */
	XTS_CALLS_OF_RDMA = 16, /* added to those of workers or of a relay: queues over RDMA, which are open already */
	/* for the process from which the workers' next one is made: what that one needs until its own filter is there */
	XTS_CALLS_OF_UNDERSTUDY = 32,
};

/* Restricts this thread and those that it starts later; with XTS_CALLS_OF_WORKERS all threads of the process, which
 * must have the same filters. PR_SET_NO_NEW_PRIVS has to be set. 0 or -errno. It cannot be undone: later calls can only
 * restrict further. */
int xts_calls_only(int calls);
/* The number of calls that are allowed. */
int xts_calls_count(int calls);
/* Is this built with a sanitizer, whose run-time library reads files of /proc? */
int xts_calls_sanitized(void);

#endif
