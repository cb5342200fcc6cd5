/*
 * What is told when there is no queue, no proxy or no endpoint, and so the kernel serves what was to be offloaded. A program
 * says it once, its forked children say nothing more: whoever started it reads it, and `xts status --processes` has the rest.
 * Causes that are in the program itself (an option, an address, a rule) are no news to anybody, and are only counted.
 */
#include "unasked.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "notice.h"
#include "preload.h"
#include "report.h"

static bool nobody_asked_for(enum xts_reason reason)
{
	return reason == XTS_REASON_NO_ENDPOINT || reason == XTS_REASON_PROXY_DOWN || reason == XTS_REASON_LIMIT ||
	       reason == XTS_REASON_REFUSED || reason == XTS_REASON_NO_QUEUE;
}

void unasked(enum xts_reason reason, int error)
{
	static atomic_bool told;
	struct xts_info info = {.size = sizeof info};
	const char *why = xts_reason_text(reason);
	int before = errno;

	if (!nobody_asked_for(reason))
		return;
	if (XTS(xts_get_info(&info)) < 0 && info.attach_error[0]) {
		why = info.attach_error;
		report_attach_error(why);
	}
	if (!atomic_exchange(&told, true)) {
		if (error)
			xts_notice("%s (process %d): not offloaded, so calls fail with \"%s\" (%s): %s", report_program(), (int)getpid(),
				   strerror(error), xts_reason_name(reason), why);
		else
			xts_notice("%s (process %d): not offloaded, sockets stay with the kernel (%s): %s", report_program(),
				   (int)getpid(), xts_reason_name(reason), why);
	}
	errno = before;
}
