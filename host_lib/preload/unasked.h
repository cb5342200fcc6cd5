/* A fall-back to the kernel that nobody asked for: its cause is kept for `xts status`, and told on standard error once
 * among the processes of one `xts run` (tree.h). */
#ifndef XTS_PRELOAD_UNASKED_H
#define XTS_PRELOAD_UNASKED_H

#include "core/reason.h"

/* A socket that should have been offloaded stays with the kernel, or, error not 0, its call fails with that. */
void unasked(int fd, enum xts_reason reason, int error);

#endif
