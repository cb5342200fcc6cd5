/* Lines on standard error: see notice.h. */
#include "notice.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "environment.h"

static struct stat at_load;
static bool was_open;

__attribute__((constructor)) static void note_standard_error(void)
{
	was_open = fstat(STDERR_FILENO, &at_load) == 0;
}

static bool may_speak(void)
{
	const char *quiet = xts_environment(XTS_ENV_QUIET);
	struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct stat now;

	if ((quiet && !strcmp(quiet, "1")) || !was_open || fstat(STDERR_FILENO, &now) < 0)
		return false;
	if (now.st_dev != at_load.st_dev || now.st_ino != at_load.st_ino || now.st_rdev != at_load.st_rdev)
		return false;
	/* A pipe that is full would hold the program up, one without a reader end it. */
	return poll(&out, 1, 0) == 1 && out.revents == POLLOUT;
}

void xts_notice(const char *format, ...)
{
	char line[512] = "libxts: ";
	size_t begin = strlen(line), end;
	int before = errno, n;
	va_list arguments;

	if (may_speak()) {
		va_start(arguments, format);
		n = vsnprintf(line + begin, sizeof line - begin - 1, format, arguments);
		va_end(arguments);
		end = strlen(line);
		for (char *at = line + begin; n >= 0 && *at; at++)
			if ((unsigned char)*at < ' ' || *at == 0x7f)
				*at = '?';
		line[end++] = '\n';
		if (n >= 0 && write(STDERR_FILENO, line, end) < 0)
			errno = before; /* there is nowhere to write it */
	}
	errno = before;
}
