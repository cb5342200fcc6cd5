/*
 * What the environment says, read once, when the library is loaded, into copies of its own: a program may clear or
 * replace its environment, or write over it (setproctitle), and its sockets still follow the first values. A privileged
 * program (AT_SECURE: set-uid, file capabilities) believes nothing of it, for it is its caller's.
 *
 * What exec() starts has what its environment then says, as it has with LD_PRELOAD.
 *
 * The variables and what their values may be are declared in xts_messages/environment.py.
 */
#ifndef XTS_ENVIRONMENT_H
#define XTS_ENVIRONMENT_H

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
	const char *prefix; /* what a value begins with */
	enum xts_variable_kind kind;
	uint32_t minimum, maximum; /* of a number; maximum also: the greatest length in bytes, 0: any */
};

extern const struct xts_variable_entry xts_variables[XTS_ENV_COUNT];

#pragma GCC visibility push(default)

/* The value as it was then, right or wrong; NULL: it was not set, or is empty. Never freed. */
const char *xts_environment(enum xts_variable variable);

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

/* ... and of the first variable that was set wrongly. */
int xts_environment_first_fault(char *out, size_t room);

#pragma GCC visibility pop

#endif
