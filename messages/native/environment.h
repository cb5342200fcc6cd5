/*
 * The settings of this process, by the names of the environment's variables. A setting is what the environment says,
 * else what a profile named there says, else the file of settings (settings_file.h), else a profile named in that file,
 * else its default. The file is that of XTS_CONFIG; without it, /etc/xts/xts.toml if there is one.
 *
 * All is read once, when the library is loaded, into copies of its own: a program may clear or replace its environment,
 * or write over it (setproctitle), and its sockets still follow the first values. A privileged program (AT_SECURE:
 * set-uid, file capabilities) believes nothing of it, for it is its caller's, nor of a file.
 *
 * What exec() starts has what its environment and the file then say, as it has with LD_PRELOAD.
 *
 * The variables and what their values may be are declared in xts_messages/environment.py, the profiles in profiles.py.
 */
#ifndef XTS_ENVIRONMENT_H
#define XTS_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "environment_names.h"

enum xts_variable_kind {
	XTS_VARIABLE_SWITCH,
	XTS_VARIABLE_NUMBER,
	XTS_VARIABLE_PATH,
	XTS_VARIABLE_CHOICE,
	XTS_VARIABLE_TEXT
};

/* Lists are strings one after the other, with an empty one at the end. */
struct xts_variable_entry {
	const char *name;
	const char *allowed; /* what a value has to be, in words */
	const char *aliases; /* names that are read when it is not set */
	const char *choices;
	const char *prefix;   /* what a value begins with */
	const char *key;      /* its name in the file of settings; NULL: it is not set there */
	const char *fallback; /* the default as the environment would have it; empty: there is none, or it is no text */
	enum xts_variable_kind kind;
	uint32_t minimum, maximum; /* of a number; maximum also: the greatest length in bytes, 0: any */
};

extern const struct xts_variable_entry xts_variables[XTS_ENV_COUNT];

struct xts_profile_entry {
	const char *name;
	const char *values[XTS_ENV_COUNT]; /* NULL: as without the profile */
};

extern const struct xts_profile_entry xts_profiles[XTS_PROFILE_COUNT];

/* All declared names that begin with XTS_, also those that C does not read: strings as above. */
extern const char xts_variable_names[];

/* Is this what the declaration allows for a variable? */
bool xts_variable_takes(enum xts_variable variable, const char *text);

/* Where a setting comes from. xts_configure() of the library has XTS_ORIGIN_CALL. */
enum xts_origin { XTS_ORIGIN_DEFAULT, XTS_ORIGIN_PROFILE, XTS_ORIGIN_FILE, XTS_ORIGIN_ENVIRONMENT, XTS_ORIGIN_CALL };

#pragma GCC visibility push(default)

/* The value as it was then, right or wrong; NULL: the default holds. Never freed. */
const char *xts_environment(enum xts_variable variable);

/* The same with the default as a text (empty: it has none), and where it is from: in words, as "/etc/xts/xts.toml:3". */
const char *xts_environment_value(enum xts_variable variable);
enum xts_origin xts_environment_origin(enum xts_variable variable, char *out, size_t room);

/* The file of settings that was read; NULL: there is none. */
const char *xts_environment_file(void);

/* The variable of a name or alias; -1: none is declared. */
int xts_environment_find(const char *name);

/*
 * A number or switch: its value in *value, which stays as it is when the variable was not set. -EINVAL: it is not what
 * the declaration allows; a warning on standard error says so, once.
 */
int xts_environment_number(enum xts_variable variable, uint32_t *value);

/* Of the others: 0, or -EINVAL with one warning, for a value that the declaration does not allow. */
int xts_environment_check(enum xts_variable variable);

/* Warns once that the value of a variable is not what is allowed: for forms that only its reader knows. -EINVAL. */
int xts_environment_refuse(enum xts_variable variable);

/* 0, or -EINVAL and what is wrong, in printable words: of a text given as the value of a variable ... */
int xts_environment_fault(enum xts_variable variable, const char *value, char *out, size_t room);

/* ... and of the n-th thing that was set wrongly, those in the file first; 0: there are no more. The first. */
int xts_environment_nth_fault(unsigned n, char *out, size_t room);
int xts_environment_first_fault(char *out, size_t room);

/* The n-th variable of the environment that begins with XTS_ and is not declared, in a sentence. false: no more. */
bool xts_environment_unknown(unsigned n, char *out, size_t room);

/* Warns, once, of all that is unknown; 0, or -EINVAL after a warning that the file of settings is wrong. */
int xts_environment_begin(void);

#pragma GCC visibility pop

#endif
