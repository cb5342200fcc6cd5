/* A notice of a socket that was to be offloaded and stays with the kernel, or of a refused call: its cause is kept for
 * `xts status`, and written to standard error once among the processes of one `xts run` or `xts dev`
 * (once_per_run.h). */
#ifndef XTS_PRELOAD_FALLBACK_NOTICE_H
#define XTS_PRELOAD_FALLBACK_NOTICE_H

#include "core/reason.h"

/* A socket that should have been offloaded stays with the kernel, or, error not 0, its call fails with that.
 * attach_error: the endpoint's sentence about it, or empty. */
void notice_fallback(int fd, enum xts_reason reason, int error, const char *attach_error);

/*
 * A call on the offloaded socket at fd has had this result. Where the proxy has refused it (errno), its sentence is
 * written once in the same way. Options are left out: programs try what they may set.
 */
void notice_refusal(int fd, int result);

#endif
