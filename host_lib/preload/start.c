/* The settings of this process, read once, before its first socket. A fault in them is reported and ends the
 * process: it must not run with half of the rules. */
#include "preload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "environment.h"
#include "report.h"
#include "once_per_run.h"

struct preload preload;

#define EXIT_MISCONFIGURED 2

/* One line in one write, without stdio: the program may be in the middle of anything. */
static void report(const char *format, va_list arguments)
{
	char line[512] = "libxts-preload: ";
	size_t at = strlen(line);
	int n = vsnprintf(line + at, sizeof line - at - 1, format, arguments);

	if (n < 0)
		return;
	at += (size_t)n < sizeof line - at - 1 ? (size_t)n : sizeof line - at - 2;
	line[at++] = '\n';
	if (real()->write(STDERR_FILENO, line, at) < 0)
		return;
}

void preload_log(const char *format, ...)
{
	int before = errno;
	va_list arguments;

	if (!preload.log)
		return;
	va_start(arguments, format);
	report(format, arguments);
	va_end(arguments);
	errno = before;
}

__attribute__((format(printf, 1, 2), noreturn)) static void refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	report(format, arguments);
	va_end(arguments);
	real()->_exit(EXIT_MISCONFIGURED);
	abort(); /* not reached; the pointer's type does not say so */
}

void preload_refused(void)
{
	atomic_fetch_add_explicit(&preload.unseen, 1, memory_order_relaxed);
	report_counters();
}

bool preload_reentered(void)
{
	preload_refused();
	errno = EDEADLK;
	return false;
}

static bool switched_on(enum xts_variable variable)
{
	uint32_t value = 0;

	xts_environment_number(variable, &value);
	return value;
}

static void check_environment(void)
{
	char fault[256];

	if (xts_environment_first_fault(fault, sizeof fault))
		refuse("%s", fault);
}

static void start_once(void)
{
	const struct xts_rules *rules = xts_rules_default();
	const char *path = xts_environment(XTS_ENV_RULES);
	struct xts_rules_error error = { 0 };
	struct xts_rules *read = NULL;
	int r;

	xts_on_descriptors(descriptor_own, descriptor_disown);
	xts_on_gone(descriptor_gone);
	check_environment();
	preload.log = switched_on(XTS_ENV_LOG);
	preload.strict = switched_on(XTS_ENV_STRICT);
	if (path) {
		r = xts_rules_read(&read, path, &error);
		if (r == -EINVAL)
			refuse("%s:%u:%u: %s", path, error.line, error.column, error.text);
		if (r)
			refuse("XTS_RULES=%s: %s", path, strerror(-r));
		rules = read;
	}
	report_begin(program_invocation_short_name, path);
	once_per_run_start();
	xts_inherit_over_fork();
	preload.rules = xts_rules_group(rules, program_invocation_short_name, xts_environment(XTS_ENV_APPLICATION_ID));
}

void preload_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_once);
}

__attribute__((constructor)) static void start(void)
{
	xts_cpu_begin();
	preload_start();
	process_take_over();
	spawn_take_over();
	decide_lost_places();
}
