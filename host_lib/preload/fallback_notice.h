/* Notices about sockets that should have been offloaded and stay with the kernel, and about refused calls. The cause is
 * kept for `xts status`, and written to standard error once among the processes of one `xts run` or `xts dev`
 * (once_per_run.h). */
#ifndef XTS_PRELOAD_FALLBACK_NOTICE_H
#define XTS_PRELOAD_FALLBACK_NOTICE_H

#include "core/reason.h"

/* A socket that should have been offloaded stays with the kernel or, if error is not 0, its call fails with error.
 * explanation: as in struct xts_decision. */
void notice_fallback(int fd, enum xts_reason reason, int error, const char *explanation);

/*
 * A call on the offloaded socket at fd has returned this result. If the proxy has refused it (errno), its explanation
 * is written once in the same way. Options are left out, since programs try which ones they may set.
 */
void notice_refusal(int fd, int result);

#endif
