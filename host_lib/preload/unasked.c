/*
 * What is told when there is no queue, no proxy or no endpoint, and so the kernel serves what was to be offloaded. Each reason is
 * told once among the processes of one `xts run`, or once in a process without it: whoever started it reads it, and
 * `xts status --processes` has the rest. Causes that are in the program itself (an option, an address, a rule) are only
 * counted, unless a strict process has a call fail for them.
 */
#include "unasked.h"

#include <errno.h>
#include <string.h>

#include "notice.h"
#include "preload.h"
#include "report.h"
#include "tree.h"

/* Numbers in the page of what was told: what left a socket to the kernel, what made a call fail, what the proxy has refused. */
#define FAILURES 32u
#define REFUSALS 64u

_Static_assert(XTS_REASON_COUNT <= FAILURES, "a bit for each");

static bool nobody_asked_for(enum xts_reason reason)
{
	return reason == XTS_REASON_NO_ENDPOINT || reason == XTS_REASON_PROXY_DOWN || reason == XTS_REASON_LIMIT ||
	       reason == XTS_REASON_REFUSED || reason == XTS_REASON_NO_QUEUE;
}

void unasked(int fd, enum xts_reason reason, int error)
{
	struct xts_info info = {.size = sizeof info};
	const char *why = xts_reason_text(reason);
	char where[80];
	int before = errno;

	if (!nobody_asked_for(reason) && !error)
		return;
	if (nobody_asked_for(reason) && XTS(xts_get_info(&info)) < 0 && info.attach_error[0]) {
		why = info.attach_error;
		report_attach_error(why);
	}
	if (tree_tells(error ? FAILURES + reason : reason)) {
		report_where(fd, where, sizeof where);
		if (error)
			xts_notice("%s (process %d): descriptor %d%s: not offloaded, so its call fails with \"%s\" (%s, strict): %s",
				   report_program(), (int)getpid(), fd, where, strerror(error), xts_reason_name(reason), why);
		else
			xts_notice("%s (process %d): not offloaded, sockets stay with the kernel (%s): %s", report_program(),
				   (int)getpid(), xts_reason_name(reason), why);
	}
	errno = before;
}

void unasked_refusal(int fd, int result)
{
	int before = errno;
	int refusal;
	char where[80];

	if (result >= 0 || (before != EACCES && before != ENOBUFS && before != ESHUTDOWN))
		return;
	refusal = XTS((int)xts_last_refusal());
	if (refusal > 0 && REFUSALS + (unsigned)refusal < TREE_BITS && tree_tells(REFUSALS + (unsigned)refusal)) {
		report_where(fd, where, sizeof where);
		xts_notice("%s (process %d): descriptor %d%s: \"%s\": %s", report_program(), (int)getpid(), fd, where,
			   strerror(before), xts_refusal_text((unsigned)refusal));
	}
	errno = before;
}
