/* Splitting a line of rules into words, and reporting faults in one; see rules_scan.h. */
#include "rules/rules_scan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest_word.h"

#define SHOWN_BYTES_MAX 40u /* longest part of a word that a message shows */
#define NUMBER_DIGITS_MAX 9u

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_line_end(const struct scan *scan, const char *at)
{
	return at == scan->end || *at == '\n' || (*at == '\r' && (at + 1 == scan->end || at[1] == '\n'));
}

static void skip_blanks(struct scan *scan)
{
	while (scan->at < scan->end && is_blank(*scan->at))
		scan->at++;
}

bool scan_at_line_end(struct scan *scan)
{
	skip_blanks(scan);
	return is_line_end(scan, scan->at) || *scan->at == '#';
}

bool scan_next_line(struct scan *scan)
{
	const char *newline = memchr(scan->at, '\n', (size_t)(scan->end - scan->at));

	if (!newline)
		return false;
	scan->at = scan->line_start = newline + 1;
	scan->line++;
	return true;
}

struct word scan_peek_raw(struct scan *scan)
{
	struct word word;

	skip_blanks(scan);
	word.text = scan->at;
	for (word.bytes = 0; !is_line_end(scan, scan->at + word.bytes) && !is_blank(scan->at[word.bytes]); word.bytes++)
		;
	return word;
}

struct word scan_peek(struct scan *scan)
{
	struct word word = scan_peek_raw(scan);
	const char *hash = memchr(word.text, '#', word.bytes);

	if (hash)
		word.bytes = (size_t)(hash - word.text);
	return word;
}

bool scan_take(struct scan *scan, char c)
{
	skip_blanks(scan);
	if (scan->at == scan->end || *scan->at != c)
		return false;
	scan->at++;
	return true;
}

/* A word in a form that can be shown anywhere: truncated, and without control characters. */
static void show(char out[4 * SHOWN_BYTES_MAX + 8], const char *text, size_t bytes)
{
	size_t used = 0;

	for (size_t i = 0; i < bytes && i < SHOWN_BYTES_MAX; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c > ' ' && c < 0x7f)
			out[used++] = (char)c;
		else
			used += (size_t)snprintf(out + used, 5, "\\x%02x", c);
	}
	strcpy(out + used, bytes > SHOWN_BYTES_MAX ? "..." : "");
}

int scan_fail_at(struct scan *scan, const char *at, size_t bytes, const char *expected, const char *meant)
{
	char found[4 * SHOWN_BYTES_MAX + 8];
	struct xts_rules_error *error = scan->error;
	size_t room = sizeof error->text;

	error->line = scan->line;
	error->column = (unsigned)(at - scan->line_start) + 1;
	show(found, at, bytes);
	if (!bytes)
		snprintf(error->text, room, "expected %s, found %s", expected,
			 is_line_end(scan, at) ? "the end of the line" : "a comment");
	else if (meant)
		snprintf(error->text, room, "expected %s, found '%s': did you mean '%s'?", expected, found, meant);
	else
		snprintf(error->text, room, "expected %s, found '%s'", expected, found);
	return -EINVAL;
}

int scan_fail(struct scan *scan, const char *expected)
{
	struct word found = scan_peek(scan);

	return scan_fail_at(scan, found.text, found.bytes, expected, NULL);
}

int scan_fail_keyword(struct scan *scan, struct word found, const char *const *words, unsigned count,
		      const char *expected)
{
	const char *meant = xts_nearest_word(found.text, found.bytes, words, count);

	return scan_fail_at(scan, found.text, found.bytes, expected, meant);
}

int scan_keyword(struct scan *scan, const char *const *words, unsigned count, const char *expected, unsigned *index)
{
	struct word word = scan_peek(scan);

	for (unsigned i = 0; i < count; i++) {
		if (!word_is(word, words[i]))
			continue;
		*index = i;
		scan->at += word.bytes;
		return 0;
	}
	return scan_fail_keyword(scan, word, words, count, expected);
}

int scan_number(struct scan *scan, unsigned first, unsigned last, const char *what, unsigned *value)
{
	const char *start;
	char expected[80];
	size_t digits = 0;

	skip_blanks(scan);
	start = scan->at;
	snprintf(expected, sizeof expected, "%s from %u to %u", what, first, last);
	while (start + digits < scan->end && start[digits] >= '0' && start[digits] <= '9')
		digits++;
	if (!digits)
		return scan_fail(scan, expected);
	if (digits > 1 && *start == '0')
		return scan_fail_at(scan, start, digits, "a decimal number without leading zeros", NULL);
	*value = 0;
	for (size_t i = 0; i < digits && digits <= NUMBER_DIGITS_MAX; i++)
		*value = *value * 10 + (unsigned)(start[i] - '0');
	if (digits > NUMBER_DIGITS_MAX || *value < first || *value > last)
		return scan_fail_at(scan, start, digits, expected, NULL);
	scan->at += digits;
	return 0;
}
