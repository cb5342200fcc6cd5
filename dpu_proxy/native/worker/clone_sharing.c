/* A process next to this one that shares its table of descriptors: the understudy (understudy.py), and from it the
 * workers' next process. Whoever of them ends, what is open stays open. */
#include "worker/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the C library keeps the thread's number: as fork() does it, the kernel writes the child's there. It is asked
 * once, as prctl() is forbidden later. NULL: the kernel does not say. */
static int *thread_number(void)
{
	static int *at;

	if (!at && prctl(PR_GET_TID_ADDRESS, &at))
		at = NULL;
	return at;
}

/* With a copy of the memory, as fork(), and with the same parent as this process. There is one thread. */
int xts_clone_sharing(void)
{
	unsigned long flags = CLONE_FILES | CLONE_PARENT | SIGCHLD;
	int *number = thread_number();
	long pid;

	if (number)
		flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#if defined(__x86_64__)
	pid = syscall(SYS_clone, flags, 0, NULL, number, 0);
#else
	pid = syscall(SYS_clone, flags, 0, NULL, 0, number);
#endif
	return pid < 0 ? -errno : (int)pid;
}
