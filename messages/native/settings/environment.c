/* The settings as they were when the library was loaded: see environment.h. */
#include "settings/environment.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "common/nearest_word.h"
#include "common/notice.h"
#include "settings/settings_file.h"

#define SHOWN_BYTES_MAX 120  /* how much of a wrong value is shown */
#define OF_TESTS "XTS_TEST_" /* prefix of variables that tests set for their own programs */
#define UNKNOWN_MAX 8        /* how many unknown names are kept for warnings */
#define UNKNOWN_BYTES 64
#define NO_FILE "/dev/null" /* value of XTS_CONFIG: read no file, not even the system's */

struct setting {
	char *value;      /* NULL: the default */
	const char *from; /* name of the variable, of its alias, or of the profile */
	enum xts_origin origin;
	unsigned line; /* line in the file */
};

static struct setting settings[XTS_ENV_COUNT];
static struct xts_settings_file file;
static const char *file_path; /* path of the file that was read, or that could not be read */
static char unknown[UNKNOWN_MAX][UNKNOWN_BYTES];
static unsigned unknown_count;
static atomic_bool warned[XTS_ENV_COUNT], begun;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_named(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(entry, name, length) && entry[length] == '=' && entry[length + 1];
}

/* The environment's entry for a variable: by its name, else by its aliases in order. NULL: not set, or empty. */
static const char *entry_of(const struct xts_variable_entry *variable, const char **name)
{
	*name = variable->name;
	for (char **entry = environ; *entry; entry++)
		if (is_named(*entry, variable->name))
			return *entry;
	for (const char *alias = variable->aliases; *alias; alias += strlen(alias) + 1)
		for (char **entry = environ; *entry; entry++)
			if (is_named(*entry, alias)) {
				*name = alias;
				return *entry;
			}
	return NULL;
}

static bool is_in(const char *list, const char *text)
{
	for (; *list; list += strlen(list) + 1)
		if (!strcmp(list, text))
			return true;
	return false;
}

static void note_unknown(const char *entry)
{
	const char *end = strchr(entry, '=');
	char name[UNKNOWN_BYTES];

	if (!end || strncmp(entry, "XTS_", strlen("XTS_")) != 0 || unknown_count == UNKNOWN_MAX ||
	    !strncmp(entry, OF_TESTS, strlen(OF_TESTS)))
		return;
	snprintf(name, sizeof name, "%.*s", (int)(end - entry), entry);
	if (!is_in(xts_variable_names, name))
		memcpy(unknown[unknown_count++], name, sizeof name);
}

static void take(unsigned variable, const char *value, struct setting from)
{
	if (settings[variable].value)
		return;
	from.value = strdup(value);
	settings[variable] = from;
}

static void take_environment(void)
{
	const char *name;

	for (char **entry = environ; *entry; entry++)
		note_unknown(*entry);
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++) {
		const char *entry = entry_of(&xts_variables[i], &name);

		if (entry)
			take(i, strchr(entry, '=') + 1,
			     (struct setting){ .from = name, .origin = XTS_ORIGIN_ENVIRONMENT });
	}
}

/* Applies the profile that has been named so far, if there is such a profile. */
static void take_profile(void)
{
	const char *name = settings[XTS_ENV_PROFILE].value;
	const struct xts_profile_entry *profile = NULL;

	for (unsigned i = 0; name && i < XTS_PROFILE_COUNT; i++)
		if (!strcmp(xts_profiles[i].name, name))
			profile = &xts_profiles[i];
	for (unsigned i = 0; profile && i < XTS_ENV_COUNT; i++)
		if (profile->values[i])
			take(i, profile->values[i],
			     (struct setting){ .from = profile->name, .origin = XTS_ORIGIN_PROFILE });
}

static void take_file(void)
{
	const char *path = settings[XTS_ENV_CONFIG].value;
	bool is_named = path;
	int r;

	if (!path)
		path = XTS_ENV_DEFAULT_CONFIG;
	if (!strcmp(path, NO_FILE))
		return;
	r = xts_settings_file_read(&file, path);
	if (r == -ENOENT && !is_named)
		return;
	if (r && !file.count) {
		file.count = 1;
		snprintf(file.fault[0].text, sizeof file.fault[0].text, "%s", strerror(-r));
	}
	file_path = path;
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++)
		if (file.values[i])
			take(i, file.values[i], (struct setting){ .line = file.lines[i], .origin = XTS_ORIGIN_FILE });
	xts_settings_file_free(&file);
}

static void read_all(void)
{
	if (getauxval(AT_SECURE))
		return;
	if (environ)
		take_environment();
	take_profile();
	take_file();
	take_profile();
}

/* Constructors of other libraries may ask before our own has run. */
const char *xts_environment(enum xts_variable variable)
{
	pthread_once(&once, read_all);
	return variable < XTS_ENV_COUNT ? settings[variable].value : NULL;
}

__attribute__((constructor)) static void at_load(void)
{
	pthread_once(&once, read_all);
}

const char *xts_environment_value(enum xts_variable variable)
{
	const char *value = xts_environment(variable);

	return value ? value : variable < XTS_ENV_COUNT ? xts_variables[variable].fallback : "";
}

enum xts_origin xts_environment_origin(enum xts_variable variable, char *out, size_t room)
{
	const struct setting *setting = &settings[variable < XTS_ENV_COUNT ? variable : 0];

	pthread_once(&once, read_all);
	switch (setting->origin) {
	case XTS_ORIGIN_ENVIRONMENT:
		snprintf(out, room, "%s in the environment", setting->from);
		break;
	case XTS_ORIGIN_FILE:
		snprintf(out, room, "%s:%u", file_path, setting->line);
		break;
	case XTS_ORIGIN_PROFILE:
		snprintf(out, room, "profile %s", setting->from);
		break;
	case XTS_ORIGIN_DEFAULT:
	case XTS_ORIGIN_CALL:
		snprintf(out, room, "default");
		break;
	}
	return setting->origin;
}

const char *xts_environment_file(void)
{
	pthread_once(&once, read_all);
	return file_path;
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

bool xts_variable_takes(enum xts_variable index, const char *text)
{
	const struct xts_variable_entry *variable = &xts_variables[index];
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
	if (variable >= XTS_ENV_COUNT || !*value || xts_variable_takes(variable, value))
		return 0;
	say_fault(&xts_variables[variable], value, out, room);
	return -EINVAL;
}

static int file_fault(unsigned n, char *out, size_t room)
{
	const struct xts_settings_fault *fault = &file.fault[n];

	if (fault->line)
		snprintf(out, room, "%s:%u:%u: %s", file_path, fault->line, fault->column, fault->text);
	else
		snprintf(out, room, "%s: %s", file_path, fault->text);
	return -EINVAL;
}

int xts_environment_nth_fault(unsigned n, char *out, size_t room)
{
	unsigned in_file, found = 0;

	pthread_once(&once, read_all);
	in_file = file.count < XTS_SETTINGS_FAULTS ? file.count : XTS_SETTINGS_FAULTS;
	if (n < in_file)
		return file_fault(n, out, room);
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++) {
		const char *value = xts_environment(i);

		if (value && xts_environment_fault(i, value, out, room) && found++ == n - in_file)
			return -EINVAL;
	}
	return 0;
}

int xts_environment_first_fault(char *out, size_t room)
{
	return xts_environment_nth_fault(0, out, room);
}

bool xts_environment_unknown(unsigned n, char *out, size_t room)
{
	const char *names[XTS_ENV_COUNT], *meant;

	pthread_once(&once, read_all);
	if (n >= unknown_count)
		return false;
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++)
		names[i] = xts_variables[i].name;
	meant = xts_nearest_word(unknown[n], strlen(unknown[n]), names, XTS_ENV_COUNT);
	snprintf(out, room, "%s is not a variable of xts-offload%s%s%s", unknown[n], meant ? ": did you mean " : "",
		 meant ? meant : "", meant ? "?" : "");
	return true;
}

int xts_environment_begin(void)
{
	uint32_t of_run = 0; /* under `xts run`, which has refused unknown names already */
	char text[512];

	if (atomic_exchange(&begun, true))
		return file.count ? -EINVAL : 0;
	xts_environment_number(XTS_ENV_ROOT_PID, &of_run);
	for (unsigned n = 0; !of_run && xts_environment_unknown(n, text, sizeof text); n++)
		xts_notice("%s", text);
	for (unsigned n = 0; n < file.count && n < XTS_SETTINGS_FAULTS; n++) {
		file_fault(n, text, sizeof text);
		xts_notice("%s", text);
	}
	return file.count ? -EINVAL : 0;
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

	return !value || xts_variable_takes(variable, value) ? 0 : xts_environment_refuse(variable);
}

int xts_environment_number(enum xts_variable variable, uint32_t *value)
{
	const char *text = xts_environment(variable);
	int r = xts_environment_check(variable);

	if (!r && text)
		to_number(text, value);
	return r;
}
