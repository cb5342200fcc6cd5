/* Lines about a program that is about to be started: see run_notice.h. */
#include "run_notice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/notice.h"
#include "settings/environment.h"
#include "preload.h"

/*
 * Standard error of another process, its own descriptor, for a moment. If it were opened by its name in /proc, a file
 * would be written from its start. -1: that process has ended, or this one may not look into it.
 */
static int standard_error_of(uint32_t pid)
{
	int process = (int)real()->syscall(SYS_pidfd_open, (long)pid, 0L), fd;

	if (process < 0)
		return -1;
	fd = (int)real()->syscall(SYS_pidfd_getfd, (long)process, (long)STDERR_FILENO, 0L);
	real()->close(process);
	return fd;
}

/* May a system call end this process, or does nobody know? Who executes a program may read a file. */
static bool may_be_confined(void)
{
	char text[4096] = "";
	int fd = real()->openat(AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : real()->read(fd, text, sizeof text - 1);

	if (fd >= 0)
		real()->close(fd);
	return length <= 0 || !strstr(text, "\nSeccomp:\t0\n");
}

static bool told_on_that_of(uint32_t pid, const char *text)
{
	int fd = pid ? standard_error_of(pid) : -1;
	bool told = fd >= 0 && xts_notice_on(fd, text);

	if (fd >= 0)
		real()->close(fd);
	return told;
}

void run_notice(const char *format, ...)
{
	int before = errno;
	uint32_t first = 0;
	va_list arguments;
	char text[480];

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	if (!xts_notice_on(STDERR_FILENO, text) && !may_be_confined() && !told_on_that_of((uint32_t)getppid(), text)) {
		xts_environment_number(XTS_ENV_ROOT_PID, &first);
		told_on_that_of(first, text);
	}
	errno = before;
}
