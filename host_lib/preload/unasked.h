/* A fall-back to the kernel that nobody asked for: its cause is kept for `xts status`, and told on standard error once
 * among the processes of one `xts run` or `xts dev` (tree.h). */
#ifndef XTS_PRELOAD_UNASKED_H
#define XTS_PRELOAD_UNASKED_H

#include "core/reason.h"

/* A socket that should have been offloaded stays with the kernel, or, error not 0, its call fails with that. */
void unasked(int fd, enum xts_reason reason, int error);

/*
 * A call on the offloaded socket at fd has had this result. Where the proxy has refused it (errno), its sentence is told once in the
 * same way. Options are left out: programs try what they may set.
 */
void unasked_refusal(int fd, int result);

#endif
