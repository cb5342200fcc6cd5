/*
 * The file of settings, xts.toml: lines of `name = value`, for the variables that have a key
 * (xts_messages/settings/environment.py).
 *
 * C reads it in each process, so that a program under LD_PRELOAD, and one that calls libxts, have the same settings as
 * one that `xts run` starts. The reader accepts a subset of TOML: one table, keys without quotes, and as values true
 * and false, decimal integers, and strings on one line, "basic" with \" and \\ or 'literal'. A file that is accepted
 * means the same to a TOML reader; the rest of TOML is refused. A file is accepted as a whole or refused as a whole,
 * with all its mistakes reported.
 */
#ifndef XTS_SETTINGS_FILE_H
#define XTS_SETTINGS_FILE_H

#include <stddef.h>

#include "settings/environment_names.h"

#define XTS_SETTINGS_FAULTS 16u /* this many are kept; all are counted */
#define XTS_SETTINGS_FILE_BYTES_MAX (64u << 10)

struct xts_settings_fault {
	unsigned line, column; /* from 1; columns count bytes. 0: the file as a whole */
	char text[200];
};

struct xts_settings_file {
	char *values[XTS_ENV_COUNT];   /* malloc(), in the form that the environment would have; NULL: not given */
	unsigned lines[XTS_ENV_COUNT]; /* their lines */
	unsigned count;                /* number of mistakes */
	struct xts_settings_fault fault[XTS_SETTINGS_FAULTS];
};

#pragma GCC visibility push(default)

/* 0; -EINVAL with mistakes and no values; -ENOMEM. */
int xts_settings_file_parse(struct xts_settings_file *out, const char *text, size_t bytes);

/*
 * The same for a file, which must belong to root or to the user, and must not be writable by others: it names the
 * endpoint to which a program's data goes. -ENOENT: there is no file, which is not a mistake by itself.
 */
int xts_settings_file_read(struct xts_settings_file *out, const char *path);

void xts_settings_file_free(struct xts_settings_file *file);

#pragma GCC visibility pop

#endif
