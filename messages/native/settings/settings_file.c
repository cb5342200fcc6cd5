/* Reading the file of settings: see settings_file.h. */
#include "settings/settings_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings/environment.h"
#include "common/file_text.h"
#include "common/nearest_word.h"
#include "common/utf8.h"

#define SHOWN_BYTES_MAX 40   /* how much of the text a message shows */
#define VALUE_BYTES_MAX 4096 /* longest value; each variable has a limit of its own too */

struct reader {
	struct xts_settings_file *file;
	const char *at, *end; /* position in the line, which ends before its newline */
	const char *line_start;
	unsigned line;
};

/* --- mistakes ----------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int fault_at(struct reader *r, const char *at, const char *format, ...)
{
	struct xts_settings_fault *fault;
	va_list arguments;

	if (r->file->count++ >= XTS_SETTINGS_FAULTS)
		return -EINVAL;
	fault = &r->file->fault[r->file->count - 1];
	fault->line = r->line;
	fault->column = r->line ? (unsigned)(at - r->line_start) + 1 : 0;
	va_start(arguments, format);
	vsnprintf(fault->text, sizeof fault->text, format, arguments);
	va_end(arguments);
	for (char *c = fault->text; *c; c++)
		if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
			*c = '?';
	return -EINVAL;
}

/* The length of the text here, up to a blank, for a message. */
static int found_bytes(const struct reader *r, const char *at)
{
	int n = 0;

	while (at + n < r->end && at[n] != ' ' && at[n] != '\t' && n < SHOWN_BYTES_MAX)
		n++;
	return n;
}

static int expected(struct reader *r, const char *what)
{
	if (r->at == r->end || *r->at == '#')
		return fault_at(r, r->at, "expected %s, found the end of the line", what);
	return fault_at(r, r->at, "expected %s, found %.*s", what, found_bytes(r, r->at), r->at);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static bool is_key(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* Is it the name of a variable that only the environment can set, without XTS_ and in lower case? */
static const char *only_of_environment(const char *name, size_t bytes)
{
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++) {
		const char *variable = xts_variables[i].name + strlen("XTS_");
		size_t n = 0;

		while (n < bytes && (variable[n] | 0x20) == name[n])
			n++;
		if (n == bytes && !variable[n] && !xts_variables[i].key)
			return xts_variables[i].name;
	}
	return NULL;
}

static int unknown_name(struct reader *r, const char *name, size_t bytes)
{
	const char *keys[XTS_ENV_COUNT], *other = only_of_environment(name, bytes), *meant;
	int shown = bytes < SHOWN_BYTES_MAX ? (int)bytes : SHOWN_BYTES_MAX;

	if (other)
		return fault_at(r, name, "%.*s is not set in a file: %s sets it for one program", shown, name, other);
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++)
		keys[i] = xts_variables[i].key;
	meant = xts_nearest_word(name, bytes, keys, XTS_ENV_COUNT);
	if (meant)
		return fault_at(r, name, "unknown setting %.*s: did you mean %s?", shown, name, meant);
	return fault_at(r, name, "unknown setting %.*s (`xts env` lists them)", shown, name);
}

static int find_key(const char *name, size_t bytes)
{
	for (int i = 0; i < XTS_ENV_COUNT; i++)
		if (xts_variables[i].key && strlen(xts_variables[i].key) == bytes &&
		    !memcmp(xts_variables[i].key, name, bytes))
			return i;
	return -1;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

enum form { FORM_STRING, FORM_INTEGER, FORM_BOOLEAN };

struct value {
	enum form form;
	char text[VALUE_BYTES_MAX];
	size_t bytes;
};

static int put(struct reader *r, struct value *v, char c)
{
	if (v->bytes + 1 >= sizeof v->text)
		return fault_at(r, r->at, "a value is at most %d bytes long", VALUE_BYTES_MAX - 1);
	v->text[v->bytes++] = c;
	return 0;
}

static int read_string(struct reader *r, struct value *v)
{
	const char *begin = r->at;
	char quote = *r->at++;
	int error = 0;

	v->form = FORM_STRING;
	if (r->end - begin >= 3 && begin[1] == quote && begin[2] == quote)
		return fault_at(r, begin, "a string over several lines is not taken here");
	while (r->at < r->end && *r->at != quote && !error) {
		if (*r->at == '\\' && quote == '"') {
			if (r->at + 1 == r->end || (r->at[1] != '"' && r->at[1] != '\\'))
				return fault_at(r, r->at,
						"in a string only \\\" and \\\\ are taken; use '...' for others");
			r->at++;
		}
		error = put(r, v, *r->at);
		r->at++;
	}
	if (!error && r->at == r->end)
		error = fault_at(r, begin, "the string does not end on its line");
	r->at++;
	return error;
}

/* Digits, with single underscores between them. */
static int read_integer(struct reader *r, struct value *v)
{
	const char *begin = r->at;
	int error = 0;

	v->form = FORM_INTEGER;
	for (; r->at < r->end && ((*r->at >= '0' && *r->at <= '9') || *r->at == '_') && !error; r->at++) {
		if (*r->at != '_')
			error = put(r, v, *r->at);
		else if (r->at == begin || r->at[-1] == '_' || r->at + 1 == r->end || r->at[1] < '0' || r->at[1] > '9')
			return fault_at(r, begin, "expected a decimal number, found %.*s", found_bytes(r, begin), begin);
	}
	if (!error && v->bytes > 1 && v->text[0] == '0')
		error = fault_at(r, begin, "a number has no leading zeros");
	return error;
}

static bool take_word(struct reader *r, const char *word)
{
	size_t bytes = strlen(word);

	if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0 ||
	    (r->at + bytes < r->end && is_key(r->at[bytes])))
		return false;
	r->at += bytes;
	return true;
}

static int read_value(struct reader *r, struct value *v)
{
	if (r->at < r->end && (*r->at == '"' || *r->at == '\''))
		return read_string(r, v);
	if (r->at < r->end && *r->at >= '0' && *r->at <= '9')
		return read_integer(r, v);
	v->form = FORM_BOOLEAN;
	if (take_word(r, "true"))
		return put(r, v, '1');
	if (take_word(r, "false"))
		return put(r, v, '0');
	return expected(r, "true, false, a number or a string");
}

/* The form in which a value of this kind is written. */
static const char *form_of(const struct xts_variable_entry *variable, enum form form)
{
	switch (variable->kind) {
	case XTS_VARIABLE_SWITCH:
		return form == FORM_BOOLEAN ? NULL : "true or false";
	case XTS_VARIABLE_NUMBER:
		return form == FORM_INTEGER ? NULL : variable->allowed;
	case XTS_VARIABLE_PATH:
		return form == FORM_STRING ? NULL : "a string with an absolute path";
	case XTS_VARIABLE_CHOICE:
		return form == FORM_STRING ? NULL : variable->allowed;
	case XTS_VARIABLE_TEXT:
		return form == FORM_BOOLEAN ? variable->allowed : NULL; /* some variables take a word or a number */
	}
	return NULL;
}

static int keep(struct reader *r, int variable, const char *at, struct value *v)
{
	const struct xts_variable_entry *entry = &xts_variables[variable];
	const char *wanted = form_of(entry, v->form);
	int shown = found_bytes(r, at);

	v->text[v->bytes] = 0;
	if (memchr(v->text, 0, v->bytes))
		wanted = entry->allowed;
	else if (!wanted && !v->bytes)
		wanted = "a value (without the line it is the default)";
	else if (!wanted && entry->kind == XTS_VARIABLE_PATH && v->text[0] != '/')
		wanted = "an absolute path";
	else if (!wanted && !xts_variable_takes((enum xts_variable)variable, v->text))
		wanted = entry->allowed;
	if (wanted)
		return fault_at(r, at, "%s: expected %s, found %.*s", entry->key, wanted, shown, at);
	r->file->values[variable] = strdup(v->text);
	r->file->lines[variable] = r->line;
	return r->file->values[variable] ? 0 : -ENOMEM;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void skip_blanks(struct reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t'))
		r->at++;
}

/* TOML allows no other control characters, not even in a comment. */
static int check_characters(struct reader *r)
{
	for (const char *c = r->at; c < r->end; c++)
		if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
			return fault_at(r, c, "a control character (0x%02x)", (unsigned)(unsigned char)*c);
	return 0;
}

static int read_line(struct reader *r)
{
	const char *name, *at;
	struct value value = { .bytes = 0 };
	size_t bytes = 0;
	int variable, error;

	error = check_characters(r);
	skip_blanks(r);
	if (error || r->at == r->end || *r->at == '#')
		return error;
	name = r->at;
	if (*name == '[')
		return fault_at(r, name, "this file has no tables: a setting is a line NAME = VALUE");
	while (name + bytes < r->end && is_key(name[bytes]))
		bytes++;
	if (!bytes)
		return expected(r, "the name of a setting");
	variable = find_key(name, bytes);
	if (variable < 0)
		return unknown_name(r, name, bytes);
	r->at += bytes;
	skip_blanks(r);
	if (r->at == r->end || *r->at != '=')
		return expected(r, "= and a value");
	r->at++;
	skip_blanks(r);
	at = r->at;
	error = read_value(r, &value);
	if (error)
		return error;
	skip_blanks(r);
	if (r->at < r->end && *r->at != '#')
		return expected(r, "the end of the line");
	if (r->file->lines[variable])
		return fault_at(r, name, "%s is given in line %u already", xts_variables[variable].key,
				r->file->lines[variable]);
	return keep(r, variable, at, &value);
}

static int check_encoding(struct reader *r, const char *text, size_t bytes)
{
	size_t n;

	r->line = 1;
	r->line_start = text;
	for (size_t i = 0; i < bytes; i += n) {
		n = xts_utf8_bytes((const unsigned char *)text + i, bytes - i);
		if (!n)
			return fault_at(r, text + i, "this is not UTF-8");
		if (text[i] == '\n') {
			r->line++;
			r->line_start = text + i + 1;
		}
	}
	return 0;
}

static void forget_values(struct xts_settings_file *file)
{
	for (unsigned i = 0; i < XTS_ENV_COUNT; i++) {
		free(file->values[i]);
		file->values[i] = NULL;
	}
}

int xts_settings_file_parse(struct xts_settings_file *out, const char *text, size_t bytes)
{
	struct reader r = { .file = out };
	const char *end = text + bytes;
	int error = 0;

	memset(out, 0, sizeof *out);
	if (check_encoding(&r, text, bytes))
		return -EINVAL;
	r.line = 0;
	for (const char *at = text; at < end && error != -ENOMEM;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		r.at = r.line_start = at;
		r.end = newline ? newline : end;
		r.line++;
		at = newline ? newline + 1 : end;
		if (newline && r.end > r.at && r.end[-1] == '\r')
			r.end--;
		error = read_line(&r);
	}
	if (error == -ENOMEM || out->count)
		forget_values(out);
	return error == -ENOMEM ? error : out->count ? -EINVAL : 0;
}

void xts_settings_file_free(struct xts_settings_file *file)
{
	forget_values(file);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int refuse_file(struct xts_settings_file *out, const char *why)
{
	struct reader r = { .file = out };

	fault_at(&r, NULL, "%s", why);
	return -EINVAL;
}

int xts_settings_file_read(struct xts_settings_file *out, const char *path)
{
	struct xts_file_text file;
	int r = xts_file_text_read(&file, path, XTS_SETTINGS_FILE_BYTES_MAX);

	memset(out, 0, sizeof *out);
	if (r == -ENOENT || r == -ENOMEM)
		return r;
	if (r == -EFBIG)
		return refuse_file(out, "expected a regular file of at most 64 KiB");
	if (r == -EAGAIN)
		return refuse_file(out, "somebody writes it again and again while it is read");
	if (r)
		return refuse_file(out, strerror(-r));
	if (file.status.st_uid != 0 && file.status.st_uid != geteuid())
		r = refuse_file(out, "it belongs to another user, and would say where this program's data goes");
	else if (file.status.st_mode & (S_IWGRP | S_IWOTH))
		r = refuse_file(out, "others may write it, and with it where this program's data goes: chmod go-w");
	else
		r = xts_settings_file_parse(out, file.text, file.bytes);
	free(file.text);
	return r;
}
