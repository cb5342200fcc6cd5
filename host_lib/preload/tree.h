/*
 * What the processes of one `xts run` have told on standard error, so that each reason is told once among them. The first of
 * them, whose process id `xts run` leaves in the environment (XTS_ROOT_PID), holds a page in a memfd; others look for it in
 * /proc when they have something to tell. Children of fork() have it already.
 */
#ifndef XTS_PRELOAD_TREE_H
#define XTS_PRELOAD_TREE_H

#include <stdbool.h>

#define TREE_NAME "xts-told"
#define TREE_BITS 64u

void tree_start(void);
/* Has nobody told this yet (a number below TREE_BITS)? It counts as told from now on. */
bool tree_tells(unsigned number);

#endif
