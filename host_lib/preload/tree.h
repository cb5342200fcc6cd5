/*
 * What the processes of one `xts run` or `xts dev` have told on standard error, so that each reason is told once among them. The
 * process whose id is in the environment (XTS_ROOT_PID) holds a page in a memfd: the program itself under `xts run`, the command
 * `xts dev` under that. Others look for the page in /proc when they have something to tell. Children of fork() have it already.
 */
#ifndef XTS_PRELOAD_TREE_H
#define XTS_PRELOAD_TREE_H

#include <stdbool.h>

#define TREE_NAME "xts-told"
#define TREE_BITS 128u
#define TREE_BYTES (TREE_BITS / 8u) /* of the page */

void tree_start(void);
/* Has nobody told this yet (a number below TREE_BITS)? It counts as told from now on. */
bool tree_tells(unsigned number);

#endif
