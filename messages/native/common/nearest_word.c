/* Finding the nearest of some words: see nearest_word.h. */
#include "common/nearest_word.h"

#include <string.h>

static char lower(char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

/* Edit distance (insert, delete, replace, swap neighbours); both at most XTS_NEAREST_BYTES_MAX long. */
static unsigned distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	unsigned rows[3][XTS_NEAREST_BYTES_MAX + 1], *before = rows[0], *above = rows[1], *row = rows[2];

	for (unsigned j = 0; j <= b_bytes; j++)
		above[j] = j;
	for (size_t i = 1; i <= a_bytes; i++) {
		char c = lower(a[i - 1]);
		unsigned *oldest = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_bytes; j++) {
			unsigned best = above[j - 1] + (c != lower(b[j - 1]));

			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (i > 1 && j > 1 && c == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]) &&
			    before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			row[j] = best;
		}
		before = above;
		above = row;
		row = oldest;
	}
	return above[b_bytes];
}

const char *xts_nearest_word(const char *text, size_t bytes, const char *const *words, unsigned count)
{
	const char *nearest = NULL;
	unsigned least = bytes > 3 ? 3 : 2; /* three mistakes make another word */

	if (!bytes || bytes > XTS_NEAREST_BYTES_MAX)
		return NULL;
	for (unsigned i = 0; i < count; i++) {
		unsigned mistakes;

		if (!words[i] || strlen(words[i]) > XTS_NEAREST_BYTES_MAX)
			continue;
		mistakes = distance(text, bytes, words[i], strlen(words[i]));
		if (mistakes < least) {
			least = mistakes;
			nearest = words[i];
		}
	}
	return nearest;
}
