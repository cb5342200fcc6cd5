/*
 * What the processes of one `xts run` or `xts dev` share: which notices have been written to standard error, each once
 * among all of them; and, for --strict, how many sockets were offloaded and how many that the rules offload were not
 * (strict_outcome.h). This is a page in memory. It is a memfd of the process whose id is in the environment
 * (XTS_ROOT_PID): the program itself under `xts run`, the command `xts dev` under that. Other processes look for the
 * page in /proc when they have a notice, strict ones at their start, before they may change their user. Children of
 * fork() have it already. The first process keeps it when it executes another program, if it is strict.
 */
#ifndef XTS_PRELOAD_ONCE_PER_RUN_H
#define XTS_PRELOAD_ONCE_PER_RUN_H

#include <stdbool.h>
#include <stdint.h>

#define ONCE_NAME "xts-notices"
#define ONCE_BITS 128u
#define ONCE_SANDBOXED (ONCE_BITS - 1u) /* fallback_notice.c uses the lower numbers */
#define ONCE_WRAP_BIO (ONCE_BITS - 2u)  /* xts_socket/_tls_context.py */
#define ONCE_BYTES 64u                  /* of the page: struct run_page */

/* `strict`: --strict is in force. */
void once_per_run_start(bool strict);
/* Does this notice (a number below ONCE_BITS) still have to be written? It counts as written from now on. */
bool once_per_run(unsigned number);

/* Sockets of all processes of the run, if they are strict. `reason`: why the last one was refused. */
struct run_sockets {
	uint64_t offloaded, refused;
	unsigned reason;
};
void run_count_offloaded(void);
/* The rules offload a socket, and it was not offloaded. */
void run_count_refused(unsigned reason);
struct run_sockets run_sockets(void);

/* Is this the first process of a strict run, whose exit status is that of `xts run`? */
bool run_is_first(void);
/* The first process is about to execute another program, or could not. */
void run_over_exec(bool about_to);

#endif
