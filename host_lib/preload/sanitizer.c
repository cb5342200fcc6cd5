/*
 * Programs that are built with a sanitizer. Its run-time library asks functions of fixed names, if there are any, for
 * defaults; what the program's environment (ASAN_OPTIONS and so on) says comes before them. So such programs, and all
 * that they start, work without a change of their environment. A program that has such a function itself keeps its own.
 *
 * Address: gcc's run-time library ends a program if another library comes before it in the order of symbols, as a
 * preloaded one does: that library's functions might go past those of the run-time library. Ours do not, for the next
 * function of a name (real.c) is the run-time library's.
 *
 * Thread: gcc's does not know pthread_mutex_clocklock(), so it takes our unlocking for a mistake.
 */
#include "preload.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
EXPORT const char *__asan_default_options(void);
EXPORT const char *__tsan_default_suppressions(void);

EXPORT const char *__asan_default_options(void)
{
	return "verify_asan_link_order=0";
}

EXPORT const char *__tsan_default_suppressions(void)
{
	return "mutex:libxts.so\n";
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
