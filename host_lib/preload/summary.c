/* The line that a process under `xts run -v` writes when it ends: how many sockets were offloaded and how many were
 * not, with the reasons; bytes; CPU time. */
#include "summary.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "settings/environment.h"
#include "common/notice.h"
#include "preload.h"
#include "process_page.h"

#define TEXT_BYTES 400u

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static size_t append(char *text, size_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));

static size_t append(char *text, size_t at, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text + at, TEXT_BYTES - at, format, arguments);
	va_end(arguments);
	return n < 0 ? at : at + (size_t)n < TEXT_BYTES ? at + (size_t)n : TEXT_BYTES - 1;
}

static size_t append_bytes(char *text, size_t at, uint64_t bytes, const char *what)
{
	static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB" };
	double amount = (double)bytes;
	unsigned unit = 0;

	while (amount >= 1000 && unit < sizeof units / sizeof *units - 1) {
		amount /= 1000;
		unit++;
	}
	return append(text, at, unit ? "%.1f %s %s" : "%.0f %s %s", amount, units[unit], what);
}

/* Leaves out sockets that nobody would want to offload: looking up a name makes a UDP socket. */
static uint64_t stayed(unsigned reason)
{
	uint64_t count = atomic_load_explicit(&preload.stayed[reason], memory_order_relaxed);
	uint64_t others = atomic_load_explicit(&preload.not_streams, memory_order_relaxed);

	return reason != XTS_REASON_PROTOCOL ? count : count > others ? count - others : 0;
}

static size_t append_stayed(char *text, size_t at)
{
	uint64_t total = 0;

	for (unsigned i = 1; i < XTS_REASON_COUNT; i++)
		total += stayed(i);
	at = append(text, at, "; %llu not", (unsigned long long)total);
	for (unsigned i = 1, listed = 0; i < XTS_REASON_COUNT; i++) {
		uint64_t count = stayed(i);

		if (count)
			at = append(text, at, "%s%llu %s", listed++ ? ", " : " (", (unsigned long long)count,
				    xts_reason_name(i));
	}
	return total ? append(text, at, ")") : at;
}

void summary_tell(void)
{
	static atomic_bool written;
	struct xts_totals totals = { 0 };
	char text[TEXT_BYTES] = "";
	struct rusage used;
	uint32_t wanted = 0;
	size_t at;

	xts_environment_number(XTS_ENV_VERBOSE, &wanted);
	if (!wanted || !report_made() || atomic_exchange(&written, true))
		return;
	(void)XTS(xts_get_totals(&totals));
	at = append(text, 0, "%llu offloaded (", (unsigned long long)atomic_load(&preload.offloaded));
	at = append_bytes(text, at, totals.sent_bytes, "sent, ");
	at = append_bytes(text, at, totals.received_bytes, "received)");
	at = append_stayed(text, at);
	if (atomic_load(&preload.failed_calls))
		at = append(text, at, "; calls that failed, since their sockets could not be offloaded: %llu",
			    (unsigned long long)atomic_load(&preload.failed_calls));
	if (xts_hints_taken())
		at = append(text, at, "; options taken as hints: %llu", (unsigned long long)xts_hints_taken());
	if (totals.relayed)
		at = append(text, at, "; over the agent's relay, as no queue was free");
	if (xts_cpu_used(&used) == 0)
		append(text, at, "; CPU %.2f s user, %.2f s system", seconds(used.ru_utime), seconds(used.ru_stime));
	xts_notice("%s (process %d): sockets: %s", report_program(), (int)getpid(), text);
}

/* For exit(); _exit() makes this call itself. */
__attribute__((destructor)) static void at_exit(void)
{
	if (!preload_shares_memory())
		summary_tell();
}
