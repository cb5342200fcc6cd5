/*
 * Notices that are written to standard error once among the processes of one `xts run` or `xts dev`. A page of bits
 * says which have been written. It is a memfd of the process whose id is in the environment (XTS_ROOT_PID): the program
 * itself under `xts run`, the command `xts dev` under that. Other processes look for the page in /proc when they have a
 * notice. Children of fork() have it already.
 */
#ifndef XTS_PRELOAD_ONCE_PER_RUN_H
#define XTS_PRELOAD_ONCE_PER_RUN_H

#include <stdbool.h>

#define ONCE_NAME "xts-notices"
#define ONCE_BITS 128u
#define ONCE_SANDBOXED (ONCE_BITS - 1u) /* fallback_notice.c uses the lower numbers */
#define ONCE_BYTES (ONCE_BITS / 8u)     /* bytes of the page */

void once_per_run_start(void);
/* Does this notice (a number below ONCE_BITS) still have to be written? It counts as written from now on. */
bool once_per_run(unsigned number);

#endif
