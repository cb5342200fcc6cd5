/* The words of a rule file, and reports of where one is wrong. Lines end in LF or CR LF; columns count bytes. */
#ifndef XTS_RULES_SCAN_H
#define XTS_RULES_SCAN_H

#include "rules/rules.h"

struct scan {
	const char *at, *end; /* the text that has not been read */
	const char *line_start;
	unsigned line;
	struct xts_rules_error *error;
};

struct word {
	const char *text;
	size_t bytes;
};

bool scan_at_line_end(struct scan *scan);     /* skips blanks; true: nothing but a comment follows */
bool scan_next_line(struct scan *scan);       /* false: there are no more lines */
struct word scan_peek(struct scan *scan);     /* up to a blank, the end of the line or a comment; may be empty */
struct word scan_peek_raw(struct scan *scan); /* up to a blank or the end of the line; may contain a # */
bool scan_take(struct scan *scan, char c);    /* skips blanks; true: this character followed, and was read */

/*
 * Each returns 0, or -EINVAL with *scan->error filled: what was expected, and the word that was found.
 */
int scan_fail(struct scan *scan, const char *expected);
int scan_fail_at(struct scan *scan, const char *at, size_t bytes, const char *expected, const char *meant);
int scan_keyword(struct scan *scan, const char *const *words, unsigned count, const char *expected, unsigned *index);
/* Fails with the nearest of the words suggested. */
int scan_fail_keyword(struct scan *scan, struct word found, const char *const *words, unsigned count,
		      const char *expected);
int scan_number(struct scan *scan, unsigned first, unsigned last, const char *what, unsigned *value);

static inline bool word_is(struct word word, const char *text)
{
	size_t i = 0;

	while (i < word.bytes && text[i] && word.text[i] == text[i])
		i++;
	return i == word.bytes && !text[i];
}

#endif
