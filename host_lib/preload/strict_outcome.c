/*
 * A program under `xts run --strict` whose sockets were to be offloaded by the rules, and of which not a single one
 * was, ends with status 3: a test that passes has then tested what it was meant to. Its children count, too, in the
 * page that they share (once_per_run.h). Who opened no such socket, or has rules that leave them all to the kernel, is
 * left alone. A signal's status is not changed. Under `xts dev` that command does the same.
 *
 * Only the first process's status is changed: nobody waits for the others as for `xts run`. It may have executed other
 * programs meanwhile; one that does not have the interposer is not seen.
 */
#include "strict_outcome.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/reason.h"
#include "common/notice.h"
#include "once_per_run.h"
#include "process_page.h"

int strict_outcome(int status)
{
	struct run_sockets sockets;
	const char *name;

	if (!run_is_first())
		return status;
	sockets = run_sockets();
	if (sockets.offloaded || !sockets.refused)
		return status;
	name = xts_reason_name(sockets.reason);
	xts_notice("%s (process %d): --strict: no socket was offloaded, and %llu that the rules offload %s refused (%s): "
		   "exit status %d instead of %d",
		   report_program(), (int)getpid(), (unsigned long long)sockets.refused,
		   sockets.refused == 1 ? "was" : "were", name ? name : "?", EXIT_NOTHING_OFFLOADED, status);
	return EXIT_NOTHING_OFFLOADED;
}

/* The C library lets a handler call exit(): the others run, and its status is the program's. */
static void at_exit(int status, void *unused)
{
	int wanted = strict_outcome(status);

	(void)unused;
	if (wanted != status)
		exit(wanted); /* NOLINT(concurrency-mt-unsafe): as above */
}

void strict_outcome_start(void)
{
	if (run_is_first())
		on_exit(at_exit, NULL);
}
