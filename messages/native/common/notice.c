/* Lines on standard error: see notice.h. */
#include "common/notice.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings/environment.h"

static struct stat at_load;
static bool was_open;

__attribute__((constructor)) static void note_standard_error(void)
{
	was_open = fstat(STDERR_FILENO, &at_load) == 0;
}

/* --- levels ------------------------------------------------------------------------------------------------------- */

static const uint32_t *_Atomic asked_for;
static atomic_uint of_settings; /* 1 + the level; 0: not looked up yet */

enum xts_log_level xts_log_level_of(const char *word)
{
	static const char *const words[][2] = {
		[XTS_LOG_NONE] = { "none", "none" },
		[XTS_LOG_WARNING] = { "warning", "0" },
		[XTS_LOG_INFO] = { "info", "1" },
		[XTS_LOG_DEBUG] = { "debug", "debug" },
	};
	enum xts_log_level level = XTS_LOG_NONE;

	while (level < XTS_LOG_LEVELS && strcmp(word, words[level][0]) != 0 && strcmp(word, words[level][1]) != 0)
		level++;
	return level;
}

static enum xts_log_level level_of_settings(void)
{
	const char *quiet = xts_environment(XTS_ENV_QUIET);
	unsigned known = atomic_load_explicit(&of_settings, memory_order_relaxed);
	enum xts_log_level level;

	if (known)
		return known - 1;
	level = quiet && !strcmp(quiet, "1") ? XTS_LOG_NONE : xts_log_level_of(xts_environment_value(XTS_ENV_LOG));
	if (level == XTS_LOG_LEVELS)
		level = XTS_LOG_WARNING; /* the word is wrong, which a warning reports */
	atomic_store_explicit(&of_settings, level + 1, memory_order_relaxed);
	return level;
}

void xts_log_follow(const uint32_t *asked)
{
	atomic_store_explicit(&asked_for, asked, memory_order_release);
}

enum xts_log_level xts_log_level_now(void)
{
	const uint32_t *word = atomic_load_explicit(&asked_for, memory_order_acquire);
	uint32_t asked = word ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0;

	return asked && asked <= XTS_LOG_LEVELS ? asked - 1 : level_of_settings();
}

bool xts_logs(enum xts_log_level level)
{
	return level <= xts_log_level_now();
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Is it the file that standard error was, and can take a line now? */
static bool may_speak(int fd)
{
	struct pollfd out = { .fd = fd, .events = POLLOUT };
	struct stat now;

	if (!was_open || fstat(fd, &now) < 0)
		return false;
	if (now.st_dev != at_load.st_dev || now.st_ino != at_load.st_ino || now.st_rdev != at_load.st_rdev)
		return false;
	/* A write to a full pipe would block the program, one without a reader would end it. */
	return poll(&out, 1, 0) == 1 && out.revents == POLLOUT;
}

static void write_line(int fd, const char *format, va_list arguments)
{
	char line[512] = "libxts: ";
	size_t begin = strlen(line), end;
	int n = vsnprintf(line + begin, sizeof line - begin - 1, format, arguments);

	if (n < 0)
		return;
	end = strlen(line);
	for (char *at = line + begin; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	line[end++] = '\n';
	if (write(fd, line, end) < 0)
		return; /* there is no place to write it to */
}

__attribute__((format(printf, 2, 3))) static void write_words(int fd, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(fd, format, arguments);
	va_end(arguments);
}

void xts_log(enum xts_log_level level, const char *format, ...)
{
	int before = errno;
	va_list arguments;

	if (xts_logs(level) && may_speak(STDERR_FILENO)) {
		va_start(arguments, format);
		write_line(STDERR_FILENO, format, arguments);
		va_end(arguments);
	}
	errno = before;
}

void xts_notice(const char *format, ...)
{
	int before = errno;
	va_list arguments;

	if (xts_logs(XTS_LOG_WARNING) && may_speak(STDERR_FILENO)) {
		va_start(arguments, format);
		write_line(STDERR_FILENO, format, arguments);
		va_end(arguments);
	}
	errno = before;
}

bool xts_notice_on(int fd, const char *text)
{
	int before = errno;
	bool taken = may_speak(fd);

	if (taken && xts_logs(XTS_LOG_WARNING))
		write_words(fd, "%s", text);
	errno = before;
	return taken;
}
