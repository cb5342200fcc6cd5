/*
 * The settings of this process, under the names of the environment's variables. The value of a setting comes from the
 * environment, else from a profile that the environment names, else from the file of settings (settings_file.h), else
 * from a profile named in that file; otherwise it is the default. The file is the one that XTS_CONFIG names; without
 * XTS_CONFIG, /etc/xts/xts.toml if it exists.
 *
 * Everything is read and copied once, when the library is loaded: a program may clear or replace its environment, or
 * write over it (setproctitle), and its sockets still use the first values. A privileged program (AT_SECURE: set-uid,
 * file capabilities) takes nothing from the environment, which its caller controls, nor from a file.
 *
 * A program started by exec() reads its own environment and the file again, as with LD_PRELOAD.
 *
 * xts_messages/settings/environment.py declares the variables and their legal values, profiles.py the profiles.
 */
#ifndef XTS_ENVIRONMENT_H
#define XTS_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "settings/environment_names.h"

enum xts_variable_kind {
	XTS_VARIABLE_SWITCH,
	XTS_VARIABLE_NUMBER,
	XTS_VARIABLE_PATH,
	XTS_VARIABLE_CHOICE,
	XTS_VARIABLE_TEXT
};

/* A list is a sequence of terminated strings; an empty one ends it. */
struct xts_variable_entry {
	const char *name;
	const char *allowed; /* a description of the legal values */
	const char *aliases; /* names that are read if it is not set */
	const char *choices;
	const char *prefix; /* how every value begins */
	const char *key;    /* its name in the file of settings; NULL: it cannot be set there */
	/* the default as the environment would contain it; empty: there is none, or it is not text */
	const char *fallback;
	enum xts_variable_kind kind;
	uint32_t minimum, maximum; /* for a number; maximum is also the greatest length in bytes, 0: any */
};

extern const struct xts_variable_entry xts_variables[XTS_ENV_COUNT];

struct xts_profile_entry {
	const char *name;
	const char *values[XTS_ENV_COUNT]; /* NULL: not set by the profile */
};

extern const struct xts_profile_entry xts_profiles[XTS_PROFILE_COUNT];

/* All declared names that begin with XTS_, including those that C does not read: a list as above. */
extern const char xts_variable_names[];

/* Does the declaration allow this value for the variable? */
bool xts_variable_takes(enum xts_variable variable, const char *text);

/* Where a setting comes from. XTS_ORIGIN_CALL is for xts_configure() of the library. */
enum xts_origin { XTS_ORIGIN_DEFAULT, XTS_ORIGIN_PROFILE, XTS_ORIGIN_FILE, XTS_ORIGIN_ENVIRONMENT, XTS_ORIGIN_CALL };

#pragma GCC visibility push(default)

/* The value at load time, legal or not; NULL: the default holds. Never freed. */
const char *xts_environment(enum xts_variable variable);

/* The same, with the default as text (empty: it has none), and a description of its origin, such as
 * "/etc/xts/xts.toml:3". */
const char *xts_environment_value(enum xts_variable variable);
enum xts_origin xts_environment_origin(enum xts_variable variable, char *out, size_t room);

/* The file of settings that was read; NULL: there is none. */
const char *xts_environment_file(void);

/* The variable with this name or alias; -1: there is none. */
int xts_environment_find(const char *name);

/*
 * A number or switch: sets *value, unless the variable is not set. -EINVAL: the declaration does not allow the value; a
 * warning is written to standard error, once.
 */
int xts_environment_number(enum xts_variable variable, uint32_t *value);

/* For the others: 0, or -EINVAL with one warning, for a value that the declaration does not allow. */
int xts_environment_check(enum xts_variable variable);

/* Warns once that the value of a variable is not allowed, for forms that only the caller can check. -EINVAL. */
int xts_environment_refuse(enum xts_variable variable);

/* Checks a text as the value of a variable: 0, or -EINVAL with a printable description of the fault ... */
int xts_environment_fault(enum xts_variable variable, const char *value, char *out, size_t room);

/* ... and the same for the n-th fault in the settings, those in the file first; 0: there are no more. Returns the
 * first. */
int xts_environment_nth_fault(unsigned n, char *out, size_t room);
int xts_environment_first_fault(char *out, size_t room);

/* The n-th variable of the environment that begins with XTS_ and is not declared, in a sentence. False: no more. */
bool xts_environment_unknown(unsigned n, char *out, size_t room);

/* Warns, once, about all unknown variables; 0, or -EINVAL after a warning that the file of settings is wrong. */
int xts_environment_begin(void);

#pragma GCC visibility pop

#endif
