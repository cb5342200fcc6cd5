/* Which of some words a wrong one may have been meant as: for "did you mean". */
#ifndef XTS_NEAREST_WORD_H
#define XTS_NEAREST_WORD_H

#include <stddef.h>

/* At most so many bytes of what was written are compared. */
#define XTS_NEAREST_BYTES_MAX 32u

/* Of words up to count, those that are NULL left out; NULL: none is near. Capitals are not counted. */
const char *xts_nearest_word(const char *text, size_t bytes, const char *const *words, unsigned count);

#endif
