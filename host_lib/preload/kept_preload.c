/*
 * A start script may set LD_PRELOAD for its program, to another allocator for instance, and so remove the interposer
 * unknowingly. So whatever starts a program here (exec, posix_spawn, system) looks at the environment that it gives.
 * If LD_PRELOAD has other libraries but not the interposer, that is added at the end, as `xts run` does. Two cases are
 * taken to be meant, and left: LD_PRELOAD is not there or empty, and no variable of ours is there (`env -i`, sudo).
 *
 * The caller may be the child of a program with threads: so nothing is allocated, and the copy is on its stack.
 */
#include "kept_preload.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/arguments.h"
#include "settings/environment.h"
#include "not_preloaded.h"
#include "preload.h"
#include "run_notice.h"

#define NAME "LD_PRELOAD="
#define LIBRARY "/libxts-preload.so"
#define SEPARATORS " :"

static char own[PATH_MAX]; /* how LD_PRELOAD named the interposer when this program was started; empty: it did not */

/* The interposer in a list of libraries, and how long its name is; NULL: it is not there. */
static const char *find(const char *libraries, size_t *length)
{
	const size_t name = sizeof LIBRARY - 1;

	while (*(libraries += strspn(libraries, SEPARATORS))) {
		*length = strcspn(libraries, SEPARATORS);
		if (*length >= name && !memcmp(libraries + *length - name, LIBRARY, name))
			return libraries;
		libraries += *length;
	}
	return NULL;
}

__attribute__((constructor)) static void note_own(void)
{
	const char *libraries = secure_getenv("LD_PRELOAD"), *found;
	size_t length;

	found = libraries ? find(libraries, &length) : NULL;
	if (found && length < sizeof own)
		memcpy(own, found, length);
}

/* One question for each page, since entries and texts lie together, and an exec has some hundred of them. */
static bool is_readable(const void *data, size_t bytes, uintptr_t *page)
{
	uintptr_t first = (uintptr_t)data / ARGUMENT_PAGE, last = ((uintptr_t)data + bytes - 1) / ARGUMENT_PAGE;

	if (first == *page && last == *page)
		return true;
	if (!xts_argument_is_readable(data, bytes))
		return false;
	*page = last;
	return true;
}

bool environment_is_readable(char *const environment[])
{
	uintptr_t page_of_entries = UINTPTR_MAX, page_of_texts = UINTPTR_MAX;

	for (char *const *entry = environment; entry; entry++) {
		if (!is_readable(entry, sizeof *entry, &page_of_entries))
			return false;
		if (!*entry)
			break;
		if (!is_readable(*entry, 1, &page_of_texts))
			return false;
	}
	return true;
}

/* The last one, which the loader takes. NULL: there is none. */
static const char *preload_of(char *const environment[])
{
	const char *found = NULL;

	for (char *const *entry = environment; entry && *entry; entry++)
		if (!strncmp(*entry, NAME, sizeof NAME - 1))
			found = *entry + sizeof NAME - 1;
	return found;
}

static bool has_settings(char *const environment[])
{
	for (char *const *entry = environment; entry && *entry; entry++)
		if (!strncmp(*entry, "XTS_", 4))
			return true;
	return false;
}

size_t kept_preload_bytes(char *const environment[])
{
	const char *libraries;
	size_t length;

	if (!*own)
		return 0;
	libraries = preload_of(environment);
	if (!libraries || !libraries[strspn(libraries, SEPARATORS)] || find(libraries, &length) ||
	    !has_settings(environment))
		return 0;
	return sizeof NAME + strlen(libraries) + 1 + strlen(own);
}

void kept_preload(char *list[], char *text, size_t bytes, char *const environment[])
{
	const char *libraries = preload_of(environment);
	int at = 0;

	snprintf(text, bytes, NAME "%s:%s", libraries, own);
	for (; environment[at]; at++)
		list[at] = environment[at] + sizeof NAME - 1 == libraries ? text : environment[at];
	list[at] = NULL;
}

static const char *why_not_in(char *const environment[])
{
	const char *libraries = preload_of(environment);
	size_t length;

	return !libraries || !find(libraries, &length) ? "its environment does not name it" : NULL;
}

const char *kept_preload_never(const char *program, char *const environment[])
{
	const char *why = *own ? why_not_in(environment) : NULL;

	return why ? why : why_never_preloaded(program);
}

void kept_preload_tell(const char *program, char *const environment[])
{
	uint32_t wanted = 0;
	const char *why;

	xts_environment_number(XTS_ENV_VERBOSE, &wanted);
	if (!wanted || !*own)
		return;
	why = why_not_in(environment);
	if (!why)
		why = why_not_preloaded(program);
	if (why)
		run_notice("%s (process %d) is started without the interposer, for %s", program, (int)getpid(), why);
}
