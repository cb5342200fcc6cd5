/* The environment as it was when the library was loaded: see environment.h. */
#include "environment.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static char *copies; /* "NAME=VALUE" of each, terminated, and an empty one at the end */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int is_wanted(const char *entry)
{
	return !strncmp(entry, "XTS_", 4) || !strncmp(entry, "XLIO_", 5) || !strncmp(entry, "VMA_", 4);
}

static void read_environment(void)
{
	size_t bytes = 1;
	char *at;

	if (!environ || getauxval(AT_SECURE))
		return;
	for (char **entry = environ; *entry; entry++)
		bytes += is_wanted(*entry) ? strlen(*entry) + 1 : 0;
	copies = at = malloc(bytes);
	if (!copies)
		return;
	for (char **entry = environ; *entry; entry++)
		if (is_wanted(*entry))
			at = stpcpy(at, *entry) + 1;
	*at = 0;
}

/* What else is started with the program may ask before our own constructor has run. */
const char *xts_environment(const char *name)
{
	size_t length = strlen(name);

	pthread_once(&once, read_environment);
	for (const char *at = copies; at && *at; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

__attribute__((constructor)) static void at_load(void)
{
	pthread_once(&once, read_environment);
}
