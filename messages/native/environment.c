/* The environment as it was when the library was loaded: see environment.h. */
#include "environment.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "notice.h"

#define SHOWN_BYTES_MAX 120 /* of a wrong value */

static char *values[XTS_ENV_COUNT];
static atomic_bool warned[XTS_ENV_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_named(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(entry, name, length) && entry[length] == '=' && entry[length + 1];
}

/* The entry that sets a variable: by its name, else by its aliases in their order. NULL: not set, or empty. */
static const char *entry_of(const struct xts_variable_entry *variable)
{
	for (char **entry = environ; *entry; entry++)
		if (is_named(*entry, variable->name))
			return *entry;
	for (const char *alias = variable->aliases; *alias; alias += strlen(alias) + 1)
		for (char **entry = environ; *entry; entry++)
			if (is_named(*entry, alias))
				return *entry;
	return NULL;
}

static void read_environment(void)
{
	if (!environ || getauxval(AT_SECURE))
		return;
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++) {
		const char *entry = entry_of(&xts_variables[i]);

		if (entry)
			values[i] = strdup(strchr(entry, '=') + 1);
	}
}

/* What else is started with the program may ask before our own constructor has run. */
const char *xts_environment(enum xts_variable variable)
{
	pthread_once(&once, read_environment);
	return variable < XTS_ENV_COUNT ? values[variable] : NULL;
}

__attribute__((constructor)) static void at_load(void)
{
	pthread_once(&once, read_environment);
}

static bool is_in(const char *list, const char *text)
{
	for (; *list; list += strlen(list) + 1)
		if (!strcmp(list, text))
			return true;
	return false;
}

int xts_environment_find(const char *name)
{
	for (int i = 0; i < XTS_ENV_COUNT; i++)
		if (!strcmp(xts_variables[i].name, name) || is_in(xts_variables[i].aliases, name))
			return i;
	return -1;
}

/* --- right or wrong ----------------------------------------------------------------------------------------------- */

static bool to_number(const char *text, uint32_t *out)
{
	unsigned long long value;
	char *end;

	if (*text < '0' || *text > '9') /* strtoull() also takes spaces and signs */
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value > UINT32_MAX)
		return false;
	*out = (uint32_t)value;
	return true;
}

static bool is_right(const struct xts_variable_entry *variable, const char *text)
{
	uint32_t number;

	switch (variable->kind) {
	case XTS_VARIABLE_SWITCH:
		return !strcmp(text, "0") || !strcmp(text, "1");
	case XTS_VARIABLE_NUMBER:
		return to_number(text, &number) && number >= variable->minimum && number <= variable->maximum;
	case XTS_VARIABLE_CHOICE:
		return is_in(variable->choices, text);
	case XTS_VARIABLE_PATH:
	case XTS_VARIABLE_TEXT:
		break;
	}
	return (!variable->maximum || strlen(text) <= variable->maximum) &&
	       !strncmp(text, variable->prefix, strlen(variable->prefix));
}

static void say_fault(const struct xts_variable_entry *variable, const char *value, char *out, size_t room)
{
	snprintf(out, room, "%s=%.*s%s: must be %s", variable->name, SHOWN_BYTES_MAX, value,
		 strlen(value) > SHOWN_BYTES_MAX ? "..." : "", variable->allowed);
	for (char *at = out; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
}

int xts_environment_fault(enum xts_variable variable, const char *value, char *out, size_t room)
{
	if (variable >= XTS_ENV_COUNT || !*value || is_right(&xts_variables[variable], value))
		return 0;
	say_fault(&xts_variables[variable], value, out, room);
	return -EINVAL;
}

int xts_environment_first_fault(char *out, size_t room)
{
	int r = 0;

	for (unsigned i = 0; !r && i < XTS_ENV_COUNT; i++) {
		const char *value = xts_environment(i);

		if (value)
			r = xts_environment_fault(i, value, out, room);
	}
	return r;
}

int xts_environment_refuse(enum xts_variable variable)
{
	const char *value = xts_environment(variable);
	char text[512];

	if (value && !atomic_exchange(&warned[variable], true)) {
		say_fault(&xts_variables[variable], value, text, sizeof text);
		xts_notice("%s", text);
	}
	return -EINVAL;
}

int xts_environment_check(enum xts_variable variable)
{
	const char *value = xts_environment(variable);

	return !value || is_right(&xts_variables[variable], value) ? 0 : xts_environment_refuse(variable);
}

int xts_environment_number(enum xts_variable variable, uint32_t *value)
{
	const char *text = xts_environment(variable);
	int r = xts_environment_check(variable);

	if (!r && text)
		to_number(text, value);
	return r;
}
