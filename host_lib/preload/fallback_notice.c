/*
 * Notices about sockets that stay with the kernel because there is no queue, no proxy or no endpoint, and about calls
 * that the proxy has refused. Each is written once among the processes of one `xts run`, or once in a process without
 * it. `xts status --processes` has the rest. Causes in the program itself (an option, an address, a rule) are only
 * counted, unless a call fails for them in a strict process.
 */
#include "fallback_notice.h"

#include <errno.h>
#include <string.h>

#include "common/notice.h"
#include "preload.h"
#include "process_page.h"
#include "once_per_run.h"
#include "decision/decision.h"

/* Numbers in the page of notices: reasons for which a socket stays with the kernel, reasons for which a call fails, and
 * the proxy's refusals. */
#define FAILURES 32u
#define REFUSALS 64u

_Static_assert(XTS_REASON_COUNT <= FAILURES, "a bit for each");

void notice_fallback(int fd, enum xts_reason reason, int error, const char *explanation)
{
	const char *why = xts_reason_text(reason);
	char where[80];
	int before = errno;

	if (!xts_reason_is_noticed(reason) && !error)
		return;
	if (explanation[0]) {
		why = explanation;
		if (xts_reason_is_noticed(reason))
			report_attach_error(why);
	}
	if (once_per_run(error ? FAILURES + reason : reason)) {
		report_where(fd, where, sizeof where);
		if (error)
			xts_notice(
				"%s (process %d): descriptor %d%s: not offloaded, so its call fails with \"%s\" (%s%s): %s",
				report_program(), (int)getpid(), fd, where, strerror(error), xts_reason_name(reason),
				preload.strict ? ", strict" : "", why);
		else
			xts_notice("%s (process %d): not offloaded, sockets stay with the kernel (%s): %s",
				   report_program(), (int)getpid(), xts_reason_name(reason), why);
	}
	errno = before;
}

void notice_refusal(int fd, int result)
{
	int before = errno;
	int refusal;
	char where[80];

	if (result >= 0 || (before != EACCES && before != ENOBUFS && before != ESHUTDOWN))
		return;
	refusal = XTS((int)xts_last_refusal());
	if (refusal > 0 && REFUSALS + (unsigned)refusal < ONCE_WRAP_BIO && once_per_run(REFUSALS + (unsigned)refusal)) {
		report_where(fd, where, sizeof where);
		xts_notice("%s (process %d): descriptor %d%s: \"%s\": %s", report_program(), (int)getpid(), fd, where,
			   strerror(before), xts_refusal_text((unsigned)refusal));
	}
	errno = before;
}
