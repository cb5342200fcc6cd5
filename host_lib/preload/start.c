/* The settings of this process, read once, before its first socket. A fault in them is reported and ends the process:
 * it must not run with half of the rules. */
#include "preload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/caller.h"
#include "decision/sandboxed.h"
#include "settings/environment.h"
#include "common/notice.h"
#include "process_page.h"
#include "once_per_run.h"
#include "rules_in_force.h"
#include "strict_outcome.h"

struct preload preload;

#define EXIT_MISCONFIGURED 2

/* One line in one write, without stdio, since the program may be interrupted anywhere. */
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

	if (!xts_logs(XTS_LOG_INFO))
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
	abort(); /* not reached, but the type of the pointer does not say so */
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

__attribute__((format(printf, 1, 2))) static void report_line(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	report(format, arguments);
	va_end(arguments);
}

static void check_environment(void)
{
	char fault[512];

	if (!xts_environment_first_fault(fault, sizeof fault)) {
		xts_environment_begin();
		return;
	}
	for (unsigned n = 0; xts_environment_nth_fault(n, fault, sizeof fault); n++)
		report_line("%s", fault);
	refuse("the settings are wrong: the program is not started");
}

static void refuse_rules(const char *path, const struct xts_rules_errors *errors)
{
	unsigned kept = errors->count < XTS_RULES_ERRORS ? errors->count : XTS_RULES_ERRORS;

	for (unsigned i = 0; i < kept; i++)
		report_line("%s:%u:%u: %s", path, errors->error[i].line, errors->error[i].column, errors->error[i].text);
	refuse("%s: %u mistake%s: the program is not started", path, errors->count, errors->count == 1 ? "" : "s");
}

/* `xts run` starts such a program without the interposer, and says so. But a script or a service may start one as
 * well. */
static bool is_sandboxed(void)
{
	const char *name = program_invocation_short_name, *why = xts_sandboxed(name);

	if (!why)
		return false;
	if (preload.strict)
		refuse("%s %s: refused, for XTS_STRICT", name, why);
	if (once_per_run(ONCE_SANDBOXED))
		xts_notice("%s (process %d) %s: its sockets stay with the kernel", name, (int)getpid(), why);
	return true;
}

static void start_once(void)
{
	const struct xts_rules_errors *mistakes;
	const char *path;
	int r;

	xts_on_descriptors(descriptor_own, descriptor_disown);
	xts_on_gone(descriptor_gone);
	xts_on_halves(descriptor_half_of);
	check_environment();
	preload.strict = switched_on(XTS_ENV_STRICT);
	r = rules_begin(&path, &mistakes);
	if (r == -EINVAL)
		refuse_rules(path, mistakes);
	if (r)
		refuse("XTS_RULES=%s: %s", path, strerror(-r));
	once_per_run_start(preload.strict);
	strict_outcome_start();
	if (is_sandboxed())
		rules_leave_all();
	xts_inherit_over_fork();
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
	xts_watch_fork_late();
	process_take_over();
	spawn_take_over();
	decide_lost_places();
}
